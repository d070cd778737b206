"""Accuracy of everything that can answer: the ensemble, each peer, nearest class means."""

from typing import Any

import torch
from torch import Tensor

from peerlearn.data import ImageSet
from peerlearn.learner import OnlineLearner
from peerlearn.metrics import AccuracyMatrix


class Scores:
    """The accuracy matrices of a run, a row added after each task."""

    def __init__(self, peers: int, ncm: bool) -> None:
        self.ensemble = AccuracyMatrix()
        self.peers = [AccuracyMatrix() for _ in range(peers)] if peers > 1 else []
        self.ncm = AccuracyMatrix() if ncm else None

    def add(self, learner: OnlineLearner, tests: list[ImageSet]) -> None:
        """Evaluate on the test images of all tasks so far; one row for each matrix."""
        x = torch.cat([test.x for test in tests])
        answers = [learner.logits(x, peer=i) for i in range(len(learner.peers))]
        self.ensemble.add_row(_right(torch.stack(answers).mean(dim=0).argmax(dim=1), tests))
        for matrix, logits in zip(self.peers, answers, strict=False):
            matrix.add_row(_right(logits.argmax(dim=1), tests))
        if self.ncm is not None:
            self.ncm.add_row(_right(learner.predict_ncm(x), tests))

    def to_lists(self) -> dict[str, Any]:
        """As accuracy.json holds them."""
        return {
            "ensemble": self.ensemble.to_lists(),
            "peers": [matrix.to_lists() for matrix in self.peers],
            "ncm": None if self.ncm is None else self.ncm.to_lists(),
        }

    def restore(self, lists: dict[str, Any]) -> None:
        """Become the scores whose `to_lists()` this was."""
        self.ensemble = AccuracyMatrix.from_lists(lists["ensemble"])
        self.peers = [AccuracyMatrix.from_lists(rows) for rows in lists["peers"]]
        self.ncm = None if lists["ncm"] is None else AccuracyMatrix.from_lists(lists["ncm"])

    def summary(self) -> dict[str, Any]:
        """As summary.json holds them; nothing before the first row."""
        if not len(self.ensemble):
            return {}
        steps = [self.ensemble.at(k).average_accuracy for k in range(len(self.ensemble))]
        return {
            **self.ensemble.summary(),
            "anytime": sum(steps) / len(steps),  # the mean of AA after each task
            "peers": [matrix.summary() for matrix in self.peers],
            "ncm": None if self.ncm is None else self.ncm.summary(),
        }


def _right(predicted: Tensor, tests: list[ImageSet]) -> list[float]:
    parts = predicted.cpu().split([len(test) for test in tests])
    return [
        float((part == test.y).double().mean()) for part, test in zip(parts, tests, strict=True)
    ]
