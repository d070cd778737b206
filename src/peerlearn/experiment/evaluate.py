"""Accuracy of all predictors: the ensemble, each peer, nearest class means, EMA copies."""

from typing import Any

import torch
from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.learner.frozen import Frozen, PeerAnswers
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.predictor import Predictor
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.table import summarise
from peerlearn.records.schema import Matrices, as_stored


class Scores:
    """The accuracy matrices of a run, a row added after each task.

    Args:
        learner: that is evaluated.
        ncm: whether nearest class means are.
    """

    def __init__(self, learner: OnlineLearner, ncm: bool) -> None:
        peers, predictors = len(learner.peers), learner.predictors
        self.ensemble = AccuracyMatrix()
        self.peers = [AccuracyMatrix() for _ in range(peers)] if peers > 1 else []
        self.ncm = AccuracyMatrix() if ncm else None
        # where the ensemble is one of several choices: of all of them
        several = predictors if len(predictors) > 1 or predictors.usual == "ncm" else {}
        self.answers: dict[str, AccuracyMatrix] = {name: AccuracyMatrix() for name in several}

    def add(self, learner: OnlineLearner, tests: list[ImageSet]) -> Tensor:
        """Evaluate on the test images of all tasks so far; one row for each matrix.

        Returns the class that each image was taken for, (N,).
        """
        x = torch.cat([test.x for test in tests])
        if not len(learner.memory):
            self.ncm = None  # a matrix with a row missing says nothing
        chosen = torch.empty(0)
        for name, predictor in learner.predictors.items():
            is_chosen = name == learner.predictors.networks
            means = is_chosen and self.ncm is not None
            frozen, by_peer = _shown(predictor, x, features=means)
            classes = predictor.classes(frozen, x)
            right = _right(classes, tests)
            if name in self.answers:
                self.answers[name].add_row(right)
            if is_chosen:
                by_means = frozen.nearest_mean(x) if means else classes
                if self.ncm is not None:
                    self.ncm.add_row(_right(by_means, tests))
                chosen = by_means if learner.predictors.usual == "ncm" else classes
                self.ensemble.add_row(_right(chosen, tests))
            if name == "peers":
                for matrix, own in zip(self.peers, by_peer, strict=False):
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
            matrices["answers"] = as_stored({k: m.to_lists() for k, m in self.answers.items()})
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
            "answers": as_stored({k: summarise(m) for k, m in self.answers.items() if len(m)}),
        }


def _shown(predictor: Predictor, x: Tensor, *, features: bool) -> tuple[Frozen, list[Tensor]]:
    """Return the networks with their predictions for x at hand, and each one's logits (B, C)."""
    has_memory = len(predictor.memory) > 0
    frozen = predictor.now(means=has_memory and (features or predictor.has_own_rule))
    if predictor.method.gives_logits:
        answers = frozen.answers(x, features=features)
    else:
        answers = PeerAnswers([], frozen.features(x) if features else None)
    return frozen.keeping(x, answers), answers.logits


def _right(predicted: Tensor, tests: list[ImageSet]) -> list[float]:
    parts = predicted.cpu().split([len(test) for test in tests])
    return [
        float((part == test.y).double().mean()) for part, test in zip(parts, tests, strict=True)
    ]
