"""Evaluation along the stream: points inside tasks, and predictions before a batch is learnt.

As with probes, nothing is drawn that learning draws and nothing that is learnt moves.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.devices import generator
from peerlearn.experiment.settings import EvaluationSettings
from peerlearn.learner.online import OnlineLearner
from peerlearn.metrics.along import Point, Prequential, summarise_points
from peerlearn.records.schema import SavedCurve
from peerlearn.stream.base import Batch

USUAL_EVERY = 100  # images between points if nobody says how many
USUAL_WINDOW = 1000  # images, where predictions are due and nobody says how many


class Curve:
    """The accuracy of a learner at points of the stream.

    For each batch call `before`, let it be learnt, then `inside` or, after the last of a task,
    `at_end`: both return the point that is due, or None.

    Args:
        settings: how often, and on how many test images.
        learner: who is asked.
        tests: the test images of each task.
        window: images of which the recent prequential accuracy is; 0: batches are not predicted.
    """

    def __init__(
        self,
        settings: EvaluationSettings,
        learner: OnlineLearner,
        tests: Sequence[ImageSet],
        window: int,
    ) -> None:
        self.settings, self.learner, self.tests, self.window = settings, learner, tests, window
        self.points: list[Point] = []
        self.images = (0, 0)  # that had passed before the last batch, and after it
        self.met = torch.zeros(learner.method.stream.num_classes, dtype=torch.bool)
        self.prequential = Prequential(window)

    def before(self, batch: Batch) -> None:
        """Predict a batch that is about to be learnt, if that is asked for."""
        if self.window:
            self.prequential.add(self._answer(batch.x).eq(batch.y).tolist())
        self.met[batch.y] = True
        self.images = (self.images[1], self.images[1] + len(batch.y))

    def inside(self, task: int) -> Point | None:
        """The point that is due after a batch within a task."""
        if not self._on_grid:
            return None
        if not self.settings.evaluate_every:
            return self._add(Point(self.images[1], self._on_grid))
        y, home = self._labels
        shown = self.met[y] | (home <= task)
        x = self._pixels[shown]
        return self._add(self._point(self._answer(x) == y[shown], y[shown], home[shown], task))

    def at_end(self, task: int, said: Tensor) -> Point | None:
        """The point at the end of a task.

        said: (N,), the classes predicted for the test images of all tasks so far.
        """
        if not self.settings.evaluate_every:
            return self._add(Point(self.images[1], self._on_grid)) if self.window else None
        later = [test.take(self.met[test.y].nonzero()[:, 0]) for test in self.tests[task + 1 :]]
        said = torch.cat([said.cpu(), *(self._answer(test.x) for test in later)])
        y, home = labels_of([*self.tests[: task + 1], *later])
        point = self._point(said == y, y, home, task)
        return self._add(point._replace(classes=by_class(said == y, y, self.met)))

    def summary(self) -> dict[str, float]:
        """The metrics of all points so far, by name."""
        return summarise_points(self.points)

    @property
    def how(self) -> dict[str, int]:
        """How they were had, as summary.json says it."""
        every, probe = self.settings.evaluate_every, self.settings.probe
        evaluated = {"every": every, "probe": probe} if every else {}
        return {**evaluated, **({"window": self.window} if self.window else {})}

    def state(self) -> dict[str, Any]:
        """What goes into a checkpoint; the points are in probes.jsonl."""
        return {
            "images": list(self.images),
            "met": self.met.nonzero().flatten().tolist(),
            "right": self.prequential.right,
            "last": "".join("01"[right] for right in self.prequential.last),
            "points": len(self.points),
        }

    def restore(self, saved: SavedCurve, points: Sequence[Point]) -> None:
        """Become the one whose `state()` this was, with the points so far."""
        before, after = saved.images
        self.points, self.images = list(points), (before, after)
        self.met[torch.tensor(saved.met, dtype=torch.int64)] = True
        self.prequential = Prequential(self.window)
        self.prequential.add([right == "1" for right in saved.last])
        self.prequential.right, self.prequential.count = saved.right, after

    @property
    def _on_grid(self) -> bool:
        """Whether one of the points at equal distances lies within the last batch."""
        every = self.settings.evaluate_every or (USUAL_EVERY if self.window else 0)
        return bool(every) and self.images[1] // every > self.images[0] // every

    def _add(self, point: Point) -> Point:
        if self.window:
            total, recent = self.prequential.total, self.prequential.recent
            point = point._replace(prequential=total, recent=recent)
        self.points.append(point)
        return point

    def _point(self, right: Tensor, y: Tensor, home: Tensor, task: int) -> Point:
        """What (N,) answers say. y, home: labels of the images, and tasks of their classes."""
        tasks = tuple(share(right[home == i]) for i in range(task + 1))
        return Point(self.images[1], self._on_grid, share(right[self.met[y]]), tasks)

    def _answer(self, x: Tensor) -> Tensor:
        """(N,): the class of each image; -1 as long as there is nobody to ask."""
        method = self.learner.method
        if not len(x) or not (method.gives_logits or len(self.learner.memory)):
            return torch.full((len(x),), -1)
        return self.learner.predict(x).cpu()

    @cached_property
    def _sample(self) -> list[ImageSet]:
        """Some test images of each class, by task; the same for all methods."""
        rng = generator(self.learner.seed, "evaluation")
        return [sample(test, self.settings.probe, rng) for test in self.tests]

    @cached_property
    def _pixels(self) -> Tensor:
        return torch.cat([test.x for test in self._sample])

    @cached_property
    def _labels(self) -> tuple[Tensor, Tensor]:
        return labels_of(self._sample)


def labels_of(tests: Sequence[ImageSet]) -> tuple[Tensor, Tensor]:
    """(N,) of all test images: their labels, and the task that each belongs to."""
    home = [torch.full((len(test),), i) for i, test in enumerate(tests)]
    return torch.cat([test.y for test in tests]), torch.cat(home)


def by_class(right: Tensor, y: Tensor, met: Tensor) -> tuple[float | None, ...]:
    """The share of right answers in each class, None for one that was not met or has no images.

    >>> y = torch.tensor([0, 0, 2])
    >>> by_class(torch.tensor([True, False, True]), y, met=torch.tensor([True, True, False]))
    (0.5, None, None)
    """
    hits, asked = (torch.bincount(part, minlength=len(met)).tolist() for part in (y[right], y))
    return tuple(
        hit / n if known and n else None
        for hit, n, known in zip(hits, asked, met.tolist(), strict=True)
    )


def share(right: Tensor) -> float:
    """The share of right answers, NaN of none."""
    return int(right.sum()) / len(right) if len(right) else math.nan


def sample(images: ImageSet, per_class: int, rng: torch.Generator) -> ImageSet:
    """At most so many images of each class that is there, chosen by chance."""
    kept = []
    for k in images.y.unique().tolist():
        rows = (images.y == k).nonzero()[:, 0]
        kept.append(rows[torch.randperm(len(rows), generator=rng)[:per_class]])
    return images.take(torch.cat(kept))
