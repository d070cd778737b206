"""ClassStream: seed -> class order -> tasks -> batches; every training image passes once."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError


class Batch(NamedTuple):
    """What a learner sees at once. x: (B, 3, H, W) uint8; y: (B,) int64."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, kw_only=True)
class StreamInfo:
    """What a stream tells its learner before the first batch."""

    num_classes: int
    boundaries: bool = False  # end_task() will be called where tasks end
    classes_per_task: int | None = None  # c: task t holds the labels t * c to (t + 1) * c - 1
    class_ids: tuple[int, ...] | None = None  # label -> the data set's own class id

    def __post_init__(self) -> None:
        n, c, ids = self.num_classes, self.classes_per_task, self.class_ids
        if n < 1:
            raise UserError(f"StreamInfo: num_classes must be at least 1, not {n}")
        if c is not None and (c < 1 or n % c):
            raise UserError(
                f"StreamInfo: classes_per_task {c} does not divide {n} classes; "
                "leave it out where tasks differ in size"
            )
        if ids is not None and (len(ids) != n or len(set(ids)) != n):
            raise UserError(f"StreamInfo: class_ids must be {n} different ids, not {ids}")


def class_order(num_classes: int, seed: int) -> tuple[int, ...]:
    """Return the class ids in the order in which the run of this seed meets them.

    >>> class_order(10, seed=0)
    (2, 8, 4, 9, 1, 6, 7, 3, 0, 5)
    """
    if not 0 <= seed < 2**32:
        raise UserError(f"seed must be from 0 to 2**32 - 1, not {seed}")
    order = np.arange(num_classes)
    np.random.RandomState(seed).shuffle(order)
    return tuple(order.tolist())


class Task:
    """Some classes of the stream: all their training images, shuffled, in batches."""

    def __init__(self, index: int, images: ImageSet, y: Tensor, rows: Tensor, size: int) -> None:
        """Images come from `images`, labels from y (N,), both at `rows` (n,), `size` at a time."""
        self.index = index
        self._images, self._y, self._rows, self._size = images, y, rows, size

    def __len__(self) -> int:
        """Return the number of batches."""
        return -(-len(self._rows) // self._size)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    @property
    def num_images(self) -> int:
        """How many images pass in this task."""
        return len(self._rows)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from number `start` on, the same ones every time."""
        if not 0 <= start <= len(self):
            raise UserError(
                f"task {self.index} cannot start at batch {start}; choose from 0 to {len(self)}"
            )
        for rows in self._rows[start * self._size :].split(self._size):
            if len(rows):  # split gives one empty piece when nothing is left
                yield Batch(self._images.x[rows], self._y[rows])


class ClassStream:
    """A data set as a class-incremental stream of equal tasks with disjoint classes.

    Labels are slots, positions in the class order: task t holds the labels t * c to
    (t + 1) * c - 1. The order of classes and of images follows from `seed` alone.

    >>> from peerlearn.data import toy_images
    >>> stream = ClassStream(toy_images(num_classes=4), num_tasks=2)
    >>> [sorted(set(torch.cat([batch.y for batch in task]).tolist())) for task in stream]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self, dataset: Dataset, num_tasks: int, batch_size: int = 10, seed: int = 0
    ) -> None:
        """Split `dataset`; its images stay where they are until a batch is asked for."""
        _check(dataset, num_tasks, batch_size)
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        num_classes = dataset.train.num_classes
        self._per_task = num_classes // num_tasks
        self._order = class_order(num_classes, seed)
        self._slot = torch.tensor(self._order).argsort()  # (C,): class id -> label in the stream
        self.info = StreamInfo(
            num_classes=num_classes,
            boundaries=True,
            classes_per_task=self._per_task,
            class_ids=self._order,
        )
        y = self._slot[dataset.train.y]
        self.tasks = tuple(
            Task(t, dataset.train, y, _shuffled(rows, seed, t), batch_size)
            for t, rows in enumerate(self._rows_by_task(dataset.train.y, "training"))
        )
        self._test_rows = self._rows_by_task(dataset.test.y, "test")

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @cached_property
    def test_sets(self) -> list[ImageSet]:
        """The test images of every task, labelled as in the stream; copied at first use."""
        test = self.dataset.test
        return [
            ImageSet(test.x[rows], self._slot[test.y[rows]], self.class_names)
            for rows in self._test_rows
        ]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name behind every label of the stream."""
        return tuple(self.dataset.train.class_names[k] for k in self._order)

    def card(self) -> str:
        """Return the protocol on a card: what streams by, and what the learner is told."""
        train, test, name = self.dataset
        n, c = len(self._order), self._per_task
        groups = [self._order[i : i + c] for i in range(0, n, c)]
        height, width = train.x.shape[2:]
        lines = {
            "stream": f"{name}, class-incremental, every image once, seed {self.seed}",
            "classes": f"{n}, in {len(self)} tasks of {c}",
            "images": f"{len(train)} to train, {len(test)} to test, {height} x {width} pixels",
            "batches": f"{sum(map(len, self))} of {self.batch_size}; {_span(self)} per task",
            "order": " | ".join(" ".join(map(str, group)) for group in groups),
            "revealed": f"{n} classes, {c} per task, labels in order of arrival, "
            "where tasks end; no task id at test time",
        }
        return "\n".join(
            fill(text, 90, initial_indent=f"{title:<10}", subsequent_indent=" " * 10)
            for title, text in lines.items()
        )

    def _rows_by_task(self, y: Tensor, part: str) -> list[Tensor]:
        task_of = self._slot[y] // self._per_task  # (N,)
        num_tasks = len(self._order) // self._per_task
        rows = [(task_of == t).nonzero()[:, 0] for t in range(num_tasks)]
        empty = [t for t, found in enumerate(rows) if not len(found)]
        if empty:
            raise UserError(
                f"{self.dataset.name}: task {empty[0]} has no {part} images; "
                "use fewer tasks or add images"
            )
        return rows


def _check(dataset: Dataset, num_tasks: int, batch_size: int) -> None:
    train, test, name = dataset
    if train.class_names != test.class_names or train.x.shape[1:] != test.x.shape[1:]:
        raise UserError(f"{name}: training and test set differ in classes or size; make them agree")
    if num_tasks < 1 or train.num_classes % num_tasks:
        good = [t for t in range(1, train.num_classes + 1) if train.num_classes % t == 0]
        raise UserError(
            f"{name}: {train.num_classes} classes do not make {num_tasks} equal tasks; "
            f"choose num_tasks from {', '.join(map(str, good))}"
        )
    if batch_size < 1:
        raise UserError(f"{name}: batch_size must be at least 1, not {batch_size}")


def _shuffled(rows: Tensor, seed: int, task: int) -> Tensor:
    # RandomState is frozen: unlike newer generators, it gives these numbers in every version
    return rows[torch.from_numpy(np.random.RandomState([seed, task]).permutation(len(rows)))]


def _span(tasks: ClassStream) -> str:
    lengths = sorted(map(len, tasks))
    return f"{lengths[0]}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]}"
