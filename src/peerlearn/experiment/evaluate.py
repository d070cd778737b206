"""Accuracy of everyone who can answer: the ensemble, each peer, nearest class means, copies."""

from typing import Any

import torch
from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.predictor import Predictor
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.table import summarise
from peerlearn.records.schema import Matrices


class Scores:
    """The accuracy matrices of a run, a row added after each task.

    Args:
        learner: that is evaluated.
        ncm: whether nearest class means are.
    """

    def __init__(self, learner: OnlineLearner, ncm: bool) -> None:
        peers, answers = len(learner.peers), learner.predictors
        self.ensemble = AccuracyMatrix()
        self.peers = [AccuracyMatrix() for _ in range(peers)] if peers > 1 else []
        self.ncm = AccuracyMatrix() if ncm else None
        # where there are slow copies: of all who can answer, one of which is the ensemble
        several = answers if len(answers) > 1 else {}
        self.answers: dict[str, AccuracyMatrix] = {name: AccuracyMatrix() for name in several}

    def add(self, learner: OnlineLearner, tests: list[ImageSet]) -> Tensor:
        """Evaluate on the test images of all tasks so far; one row for each matrix.

        Returns the class that each image was taken for, (N,).
        """
        x = torch.cat([test.x for test in tests])
        if not len(learner.memory):
            self.ncm = None  # a matrix with a row missing says nothing
        method, who = learner.method, learner.collaboration.answer
        chosen = torch.empty(0)
        for name, predictor in learner.predictors.items():
            features = name == who and self.ncm is not None
            said = _Answered(predictor, x, method.gives_logits, features)
            classes = method.predict(said, x)
            right = _right(classes, tests)
            if name in self.answers:
                self.answers[name].add_row(right)
            if name == who:
                chosen = classes
                self.ensemble.add_row(right)
                if self.ncm is not None:
                    self.ncm.add_row(_right(said.nearest_mean(x), tests))
            if name == "peers":
                for matrix, own in zip(self.peers, said.by_peer, strict=False):
                    matrix.add_row(_right(own.argmax(dim=1), tests))
        return chosen

    def to_lists(self) -> dict[str, Any]:
        """As accuracy.json holds them."""
        matrices: dict[str, Any] = {
            "ensemble": self.ensemble.to_lists(),
            "peers": [matrix.to_lists() for matrix in self.peers],
            "ncm": None if self.ncm is None else self.ncm.to_lists(),
        }
        if self.answers:
            matrices["answers"] = {name: m.to_lists() for name, m in self.answers.items()}
        return matrices

    def restore(self, saved: Matrices) -> None:
        """Become the scores whose `to_lists()` this was."""
        self.ensemble = AccuracyMatrix(saved.ensemble)
        self.peers = [AccuracyMatrix(rows) for rows in saved.peers]
        self.ncm = None if saved.ncm is None else AccuracyMatrix(saved.ncm)
        self.answers = {name: AccuracyMatrix(rows) for name, rows in saved.answers.items()}

    def summary(self) -> dict[str, Any]:
        """Metrics of every matrix, by the names of `RunFolder.write_summary`."""
        return {
            "metrics": summarise(self.ensemble),
            "peers": [summarise(matrix) for matrix in self.peers if len(matrix)],
            "ncm": summarise(self.ncm) if self.ncm is not None and len(self.ncm) else None,
            "answers": {name: summarise(m) for name, m in self.answers.items() if len(m)},
        }


class _Answered:
    """The predictor for a method's rule, with what is wanted of some images computed once."""

    def __init__(self, predictor: Predictor, x: Tensor, logits: bool, features: bool) -> None:
        self.by_peer: list[Tensor] = []  # logits, (B, C)
        self._predictor, self._x = predictor, x
        self._features: Tensor | None = None
        if logits:
            self.by_peer, self._features = predictor.answers(x, features=features)
        elif features:
            self._features = predictor.features(x)

    def logits(self, x: Tensor) -> Tensor:
        """(B, C): the mean of the peers' logits."""
        if x is not self._x or not self.by_peer:
            return self._predictor.logits(x)
        return torch.stack(self.by_peer).mean(dim=0)

    def features(self, x: Tensor) -> Tensor:
        """(B, D): the mean of the peers' features."""
        if x is not self._x or self._features is None:
            return self._predictor.features(x)
        return self._features.clone()  # a rule may work in place

    def nearest_mean(self, x: Tensor) -> Tensor:
        """(B,): the class of the nearest class mean."""
        return self._predictor.class_means().nearest(self.features(x))


def _right(predicted: Tensor, tests: list[ImageSet]) -> list[float]:
    parts = predicted.cpu().split([len(test) for test in tests])
    return [
        float((part == test.y).double().mean()) for part, test in zip(parts, tests, strict=True)
    ]
