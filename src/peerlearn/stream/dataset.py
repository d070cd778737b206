"""A data set as a stream: seed -> class order -> tasks -> batches, every image once."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError
from peerlearn.stream.base import Batch, StreamInfo, on_card, revealed, wrong_start


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


class ImageTask:
    """Training images of a data set, in a given order, in batches."""

    def __init__(
        self, index: int, images: ImageSet, y: Tensor, rows: Sequence[Tensor], size: int
    ) -> None:
        """Images come from `images`, labels from y (N,), both at rows[e] (n,) in pass e."""
        self.index = index
        self._images, self._y, self._rows, self._size = images, y, rows, size

    def __len__(self) -> int:
        """Return the number of batches, of all passes."""
        return self._per_pass * len(self._rows)

    @property
    def _per_pass(self) -> int:
        return -(-self.num_images // self._size)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    @property
    def num_images(self) -> int:
        """How many images pass in this task."""
        return len(self._rows[0])

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from number `start` on, the same ones every time."""
        if not 0 <= start <= len(self):
            raise wrong_start(self.index, start, len(self))
        for batch in range(start, len(self)):
            which, place = divmod(batch, self._per_pass)
            rows = self._rows[which][place * self._size : (place + 1) * self._size]
            yield Batch(self._images.x[rows], self._y[rows])


class DatasetStream:
    """A data set in tasks: what all streams of data sets share.

    Labels are slots, positions in the class order. Classes are at home in the tasks in this order,
    c of them in each: labels t * c to (t + 1) * c - 1 in task t. A kind of stream says in which
    task each image passes and whether tasks are revealed; it may also say how many classes are at
    home in each task, and in which order images pass.
    """

    kind: ClassVar[str]
    reveals_tasks: ClassVar[bool]

    def __init__(
        self,
        dataset: Dataset,
        num_tasks: int,
        batch_size: int = 10,
        seed: int = 0,
        epochs: int = 1,
    ) -> None:
        _check(dataset, num_tasks, batch_size, epochs)
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        self.epochs = epochs
        num_classes = dataset.train.num_classes
        self._num_tasks, self._per_task = num_tasks, num_classes // num_tasks
        self._order = class_order(num_classes, seed)
        self._slot = torch.tensor(self._order).argsort()  # (C,): class id -> label in the stream
        self.task_sizes = self._classes_by_task()
        homes = [t for t, size in enumerate(self.task_sizes) for _ in range(size)]
        self._homes = torch.tensor(homes)  # (C,): label -> task
        self.info = StreamInfo(
            num_classes=num_classes,
            boundaries=self.reveals_tasks,
            classes_per_task=self._per_task if self.reveals_tasks else None,
            class_ids=self._order,
        )
        y = self._slot[dataset.train.y]
        self.tasks = tuple(
            ImageTask(t, dataset.train, y, rows, batch_size)
            for t, rows in enumerate(self._orders(y))
        )
        self._test_rows = self._rows_by_task(self._home(self._slot[dataset.test.y]), "test")

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def __iter__(self) -> Iterator[ImageTask]:
        return iter(self.tasks)

    @cached_property
    def test_sets(self) -> list[ImageSet]:
        """The test images of every task's own classes, labelled as in the stream.

        They are copied at first use.
        """
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
        groups = torch.tensor(self._order).split(self.task_sizes)
        height, width = train.x.shape[2:]
        return on_card(
            stream=f"{name}, {self.kind}, every image {self._times}, seed {self.seed}",
            classes=f"{len(self._order)}, in {len(self)} tasks of {_span(self.task_sizes)}",
            images=f"{len(train)} to train, {len(test)} to test, {height} x {width} pixels",
            batches=f"{sum(map(len, self))} of {self.batch_size}; {_span(map(len, self))} per task",
            blur=self._blur_in_words(),
            order=" | ".join(" ".join(map(str, group.tolist())) for group in groups),
            revealed=revealed(self.info),
        )

    @property
    def _times(self) -> str:
        return "once" if self.epochs == 1 else f"{self.epochs} times in its task"

    def _classes_by_task(self) -> list[int]:
        """How many classes are at home in each task."""
        return [self._per_task] * self._num_tasks

    def _home(self, y: Tensor) -> Tensor:
        return self._homes[y]  # labels (N,) -> the tasks they are at home in (N,)

    def _deal(self, y: Tensor) -> Tensor:
        """The task in which each training image passes, (N,); y: (N,) its label."""
        return self._home(y)

    def _orders(self, y: Tensor) -> list[list[Tensor]]:
        """The rows of each task, in the order of each pass; y: (N,) labels."""
        dealt = self._rows_by_task(self._deal(y), "training")
        return [shuffled(rows, self.seed, t, self.epochs) for t, rows in enumerate(dealt)]

    def _blur_in_words(self) -> str:
        return "none; every class has one task"

    def _rows_by_task(self, task_of: Tensor, part: str) -> list[Tensor]:
        rows = [(task_of == t).nonzero()[:, 0] for t in range(self._num_tasks)]
        empty = [t for t, found in enumerate(rows) if not len(found)]
        if empty:
            raise UserError(
                f"{self.dataset.name}: task {empty[0]} has no {part} images; "
                "use fewer tasks or add images"
            )
        return rows


class ClassStream(DatasetStream):
    """A data set as a class-incremental stream of equal tasks with disjoint classes.

    Labels are slots, positions in the class order: task t holds the labels t * c to
    (t + 1) * c - 1. The order of classes and of images follows from `seed` alone.

    Args:
        dataset: its images stay where they are until a batch is asked for.
        num_tasks: into which the classes are dealt; it must divide their number.
        batch_size: images per batch; the last one of a task may be smaller.
        seed: decides the order of classes and images.
        epochs: passes over each task before the next one begins, each in an order of its own. Above
            1 it is no online stream any more; whoever compares with one should `learn` the later
            passes with remember=False.

    >>> from peerlearn.data import toy_images
    >>> stream = ClassStream(toy_images(num_classes=4), num_tasks=2)
    >>> [sorted(set(torch.cat([batch.y for batch in task]).tolist())) for task in stream]
    [[0, 1], [2, 3]]
    """

    kind = "class-incremental"
    reveals_tasks = True


class BlurryStream(DatasetStream):
    """A class-incremental stream whose tasks overlap and whose boundaries are not told.

    Class order, labels and the home task of every class are those of ClassStream. Then, for the
    labels k = 0, 1, ... in turn, with one `RandomState([seed, num_tasks])` for all of them:

    1. of the n training images of class k, in stored order, the first m = floor(blur * n) of
       `permutation(n)` leave home; blur counts as the decimal number it prints as;
    2. the other tasks, in ascending order, are put in the order `permutation(num_tasks - 1)`;
    3. the leaving images go to them in turn, like cards, one each until none is left. So every
       other task gets m / (num_tasks - 1) images of the class, rounded up or down.

    Each task then shuffles what it holds, from stored order, as ClassStream does. Every image
    passes once, and a class never leaves its home task altogether. With blur 0 the batches are
    those of ClassStream. Test sets hold the classes at home in each task.

    Args:
        dataset: its images stay where they are until a batch is asked for.
        num_tasks: into which the classes are dealt; it must divide their number.
        batch_size: images per batch; the last one of a task may be smaller.
        seed: decides the order of classes and images, and who leaves home.
        epochs: as in ClassStream.
        blur: the share of each class that leaves home, from 0 to below 1.

    >>> from peerlearn.data import toy_images
    >>> stream = BlurryStream(toy_images(num_classes=4), num_tasks=2, blur=0.2)
    >>> [torch.cat([batch.y for batch in task]).bincount().tolist() for task in stream]
    [[40, 40, 10, 10], [10, 10, 40, 40]]
    """

    kind = "blurry class-incremental"
    reveals_tasks = False

    def __init__(
        self,
        dataset: Dataset,
        num_tasks: int,
        batch_size: int = 10,
        seed: int = 0,
        blur: float = 0.1,
        epochs: int = 1,
    ) -> None:
        if not 0 <= blur < 1:
            raise UserError(f"blur must be at least 0 and below 1, not {blur}")
        if num_tasks == 1 and blur:
            raise UserError(
                f"blur {blur} needs another task to deal images to; use 2 tasks or more, or blur 0"
            )
        self.blur = float(blur)
        super().__init__(dataset, num_tasks, batch_size, seed, epochs)

    def _deal(self, y: Tensor) -> Tensor:
        task_of = self._home(y)
        if not self.blur:
            return task_of
        rng = np.random.RandomState([self.seed, self._num_tasks])  # tasks shuffle with [seed, t]
        for k in range(self.info.num_classes):
            rows = (y == k).nonzero()[:, 0]
            leaving = rows[torch.from_numpy(rng.permutation(len(rows)))][: self._share(len(rows))]
            others = np.delete(np.arange(self._num_tasks), k // self._per_task)
            hosts = torch.from_numpy(others[rng.permutation(len(others))])
            task_of[leaving] = hosts[torch.arange(len(leaving)) % len(hosts)]
        return task_of

    def _share(self, n: int) -> int:
        return int(Fraction(str(self.blur)) * n)  # in floats, 0.29 of 100 would be 28

    def _blur_in_words(self) -> str:
        moved = sum(map(self._share, self.dataset.train.y.bincount().tolist()))
        return f"{100 * self.blur:g} % of each class to other tasks, {moved} images in all"


def _check(dataset: Dataset, num_tasks: int, batch_size: int, epochs: int) -> None:
    train, test, name = dataset
    if train.class_names != test.class_names or train.x.shape[1:] != test.x.shape[1:]:
        raise UserError(f"{name}: training and test set differ in classes or size; make them agree")
    if num_tasks < 1 or train.num_classes % num_tasks:
        good = [t for t in range(1, train.num_classes + 1) if train.num_classes % t == 0]
        raise UserError(
            f"{name}: {train.num_classes} classes do not make {num_tasks} equal tasks; "
            f"choose from {', '.join(map(str, good))} (--tasks, num_tasks)"
        )
    if batch_size < 1:
        raise UserError(f"{name}: batch_size must be at least 1, not {batch_size}")
    if epochs < 1:
        raise UserError(f"{name}: epochs must be at least 1, not {epochs}")


def shuffled(rows: Tensor, seed: int, task: int, epochs: int) -> list[Tensor]:
    """An order of the rows for each pass; the first is that of a stream with a single one."""
    # RandomState is frozen: unlike newer generators, it gives these numbers in every version
    seeds = [[seed, task], *([seed, task, epoch] for epoch in range(1, epochs))]
    orders = [np.random.RandomState(one).permutation(len(rows)) for one in seeds]
    return [rows[torch.from_numpy(order)] for order in orders]


def generator(seed: int, purpose: str) -> np.random.RandomState:
    """What draws for one purpose, apart from all others; frozen as well."""
    return np.random.RandomState([seed, *purpose.encode()])


def _span(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"
