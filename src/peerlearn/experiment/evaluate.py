"""Accuracy of all predictors: the ensemble, each peer, nearest class means, EMA copies."""

from typing import Any

import torch
from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.snapshot import Outputs, Snapshot
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
        peers, sources = len(learner.peers), learner.sources
        self.ensemble = AccuracyMatrix()
        self.peers = [AccuracyMatrix() for _ in range(peers)] if peers > 1 else []
        self.ncm = AccuracyMatrix() if ncm else None
        # where the ensemble is one of several choices: of all of them
        several = sources if len(sources) > 1 or learner.predict_with == "ncm" else ()
        self.answers: dict[str, AccuracyMatrix] = {name: AccuracyMatrix() for name in several}

    def add(self, learner: OnlineLearner, tests: list[ImageSet]) -> Tensor:
        """Evaluate on the test images of all tasks so far; one row for each matrix.

        Returns the class that each image was taken for, (N,).
        """
        x = torch.cat([test.x for test in tests])
        if not len(learner.memory):
            self.ncm = None  # a matrix with a row missing says nothing
        chosen, usual = torch.empty(0), learner.snapshot().source
        for source in learner.sources:
            is_chosen = source == usual
            means = is_chosen and self.ncm is not None
            snapshot, by_peer = _computed(learner.snapshot(source, memory=means), x, features=means)
            classes = snapshot.predict(x)
            right = _right(classes, tests)
            if source in self.answers:
                self.answers[source].add_row(right)
            if is_chosen:
                by_means = snapshot.nearest_mean(x) if means else classes
                if self.ncm is not None:
                    self.ncm.add_row(_right(by_means, tests))
                chosen = by_means if learner.predict_with == "ncm" else classes
                self.ensemble.add_row(_right(chosen, tests))
            if source == "peers":
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


def _computed(snapshot: Snapshot, x: Tensor, *, features: bool) -> tuple[Snapshot, list[Tensor]]:
    """Return the snapshot with its outputs for x at hand, and each network's logits, (B, C)."""
    if snapshot.method.gives_logits:
        outputs = snapshot.outputs(x, features=features)
    else:
        outputs = Outputs([], snapshot.features(x) if features else None)
    return snapshot.with_outputs(x, outputs), outputs.logits


def _right(predicted: Tensor, tests: list[ImageSet]) -> list[float]:
    parts = predicted.cpu().split([len(test) for test in tests])
    return [
        float((part == test.y).double().mean()) for part, test in zip(parts, tests, strict=True)
    ]
