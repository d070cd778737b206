"""What a stream is: batches of labelled images, in tasks that may or may not be told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import NamedTuple, Protocol

from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.errors import UserError


class Batch(NamedTuple):
    """What a learner sees at once.

    Args:
        x: images, (B, 3, H, W) uint8.
        y: labels, (B,) int64.

    >>> import torch
    >>> x, y = Batch(torch.zeros(10, 3, 32, 32, dtype=torch.uint8), torch.arange(10))
    >>> len(y)
    10
    """

    x: Tensor
    y: Tensor


@dataclass(frozen=True, kw_only=True)
class StreamInfo:
    """What a stream tells its learner before the first batch.

    Args:
        num_classes: how many classes there will be; labels are 0 to num_classes - 1. Left out:
            nobody knows, and the learner grows with each new one.
        boundaries: whether `end_task()` will be called where tasks end.
        classes_per_task: c, where task t holds the labels t * c to (t + 1) * c - 1.
        class_ids: the data set's own class id for each label.
        grows: whether there may be more classes than `num_classes`, which is then how many are
            known so far.

    >>> StreamInfo(num_classes=10, boundaries=True, classes_per_task=2).class_ids is None
    True
    """

    num_classes: int = 0
    boundaries: bool = False
    classes_per_task: int | None = None
    class_ids: tuple[int, ...] | None = None
    grows: bool = False

    def __post_init__(self) -> None:
        n, c, ids = self.num_classes, self.classes_per_task, self.class_ids
        if n == 0:
            object.__setattr__(self, "grows", True)
        if self.grows and not (c is None and ids is None):
            raise UserError(
                "StreamInfo: classes that nobody announced have neither classes_per_task nor "
                "class_ids; leave those out, or give num_classes"
            )
        if n < (0 if self.grows else 1):
            raise UserError(f"StreamInfo: num_classes must be at least 1, not {n}")
        if c is not None and (c < 1 or n % c):
            raise UserError(
                f"StreamInfo: classes_per_task {c} does not divide {n} classes; "
                "leave it out where tasks differ in size"
            )
        if ids is not None and (len(ids) != n or len(set(ids)) != n):
            raise UserError(f"StreamInfo: class_ids must be {n} different ids, not {ids}")


class Task(Protocol):
    """A stretch of a stream; where it ends, the learner is tested."""

    @property
    def index(self) -> int:
        """Its place in the stream, from 0."""

    def __len__(self) -> int:
        """Return the number of batches."""

    def __iter__(self) -> Iterator[Batch]:
        """All its batches."""

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from number `start` on, the same ones every time."""


class Stream(Protocol):
    """What an experiment needs of a stream."""

    @property
    def info(self) -> StreamInfo:
        """All that the learner is told."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks, in order; a stream without boundaries does not tell where they end."""

    @property
    def test_sets(self) -> list[ImageSet]:
        """The test images of every task, labelled as in the stream."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name behind every label of the stream."""

    def card(self) -> str:
        """Return the protocol on a card: what streams by, and what the learner is told."""


def revealed(info: StreamInfo) -> str:
    """What a stream tells its learner, in words."""
    told = [f"{info.num_classes} classes" + (" and their ids" if info.class_ids else "")]
    if info.grows:
        told = ["not how many classes"]
    if info.classes_per_task is not None:
        told += [f"{info.classes_per_task} per task", "labels in order of arrival"]
    if info.boundaries:
        told.append("where tasks end")
    kept = "no task id at test time" if info.boundaries else "no boundaries, no task id"
    return f"{', '.join(told)}; {kept}"


def on_card(**lines: str) -> str:
    """Set the lines of a protocol card."""
    return "\n".join(
        fill(text, 90, initial_indent=f"{title:<10}", subsequent_indent=" " * 10)
        for title, text in lines.items()
    )


def wrong_start(task: int, start: int, length: int) -> UserError:
    """The error for a batch number that a task does not have."""
    return UserError(f"task {task} cannot start at batch {start}; choose from 0 to {length}")
