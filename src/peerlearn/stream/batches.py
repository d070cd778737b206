"""Batches of your own as a stream."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.errors import UserError
from peerlearn.stream.base import Batch, StreamInfo, on_card, revealed, wrong_start

Array = Tensor | npt.NDArray[Any]
Pairs = Iterable[Sequence[Array]]  # (x, y), (x, y), ...


class BatchStream:
    """Any batches (x, y) as a stream of one task, passed on as they come.

    Pass an iterable, or a function without arguments that opens a new one. A list, a loader or a
    function can be read again and resumed in the middle; that it gives the same batches each time
    is for you to see to. A generator passes once, and a second reading is an error. x and y are
    what `OnlineLearner.learn` takes, and checked there.

    `len(task)` is that of the iterable if it has one; otherwise the batches are counted in a pass
    of their own, at the first call; a generator has no length. The stream has the test sets that it
    was given: none, one, or several, all labelled as the stream is.

    Args:
        batches: the pairs (x, y), or a function that opens them.
        num_classes: how many classes there are.
        tests: the test sets.
        class_names: of every label; without them, those of the test sets, or numbers.
        boundaries: promises the learner an `end_task()` where the batches end.

    >>> from peerlearn.data import toy_images
    >>> x, y = toy_images().train.x, toy_images().train.y
    >>> stream = BatchStream(lambda: zip(x.split(50), y.split(50)), num_classes=4)
    >>> [len(task) for task in stream]
    [4]
    """

    def __init__(
        self,
        batches: Pairs | Callable[[], Pairs],
        num_classes: int,
        tests: Sequence[ImageSet] = (),
        class_names: Sequence[str] | None = None,
        boundaries: bool = False,
    ) -> None:
        self.info = StreamInfo(num_classes=num_classes, boundaries=boundaries)
        if class_names is None:
            class_names = tests[0].class_names if tests else [str(k) for k in range(num_classes)]
        self.class_names = tuple(class_names)
        if len(self.class_names) != num_classes:
            raise UserError(
                f"BatchStream: {num_classes} classes but {len(self.class_names)} class names; "
                "name each class once"
            )
        for i, test in enumerate(tests):
            if test.class_names != self.class_names:
                raise UserError(
                    f"BatchStream: test set {i} has other class names than the stream; "
                    "give it the names, and the labels, of the stream"
                )
        self.test_sets = list(tests)
        self.tasks = (BatchTask(batches),)

    def __len__(self) -> int:
        """Return the number of tasks, 1."""
        return len(self.tasks)

    def __iter__(self) -> Iterator["BatchTask"]:
        return iter(self.tasks)

    def card(self) -> str:
        """Return the protocol on a card; nothing is read for it."""
        length = self.tasks[0].stated_length
        return on_card(
            stream="batches of your own, as they come",
            classes=f"{self.info.num_classes}, in 1 task",
            images=f"not counted to train, {sum(map(len, self.test_sets))} to test",
            batches="not counted" if length is None else f"{length}",
            blur="not known",
            revealed=revealed(self.info),
        )


class UnknownLengthError(UserError, TypeError):
    """No length. A TypeError as well, which list() and its like expect from len()."""


class BatchTask:
    """All batches of a BatchStream."""

    index = 0

    def __init__(self, batches: Pairs | Callable[[], Pairs]) -> None:
        """Nothing is read before the first batch is asked for."""
        if not (isinstance(batches, Iterable) or callable(batches)):
            raise UserError(
                "BatchStream: batches must be an iterable of (x, y), or a function that opens one; "
                f"got {type(batches).__name__}"
            )
        self._source = batches
        self._opened: Iterator[Sequence[Array]] | None = None
        self._counted: int | None = None

    @property
    def stated_length(self) -> int | None:
        """The number of batches as far as the iterable itself knows it."""
        if isinstance(self._source, Sized):
            try:
                return len(self._source)
            except TypeError:  # a DataLoader has a length only if its data have
                pass
        return None

    def __len__(self) -> int:
        """Return the number of batches; this may take a pass over them, once."""
        if (length := self.stated_length) is not None:
            return length
        if isinstance(self._source, Iterator):
            raise UnknownLengthError(
                "BatchStream: a generator has no length; pass a list, or a function that makes "
                "the generator"
            )
        if self._counted is None:
            self._counted = sum(1 for _ in self._open())
        return self._counted

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the batches from number `start` on; those before it are read and dropped."""
        if start < 0:
            raise UserError(f"task 0 cannot start at batch {start}; count from 0")
        pairs = self._open()
        dropped = sum(1 for _ in islice(pairs, start))
        if dropped < start:
            raise wrong_start(self.index, start, dropped)
        for i, pair in enumerate(pairs, start):
            yield _batch(pair, i)

    def _open(self) -> Iterator[Sequence[Array]]:
        source = self._source
        pairs = iter(source if isinstance(source, Iterable) else source())
        if pairs is self._opened:
            raise UserError(
                "BatchStream: these batches were read before and cannot be read again; pass a "
                "list, or a function that makes a new iterator at each call"
            )
        self._opened = pairs
        return pairs


def _batch(pair: Sequence[Array], number: int) -> Batch:
    try:
        x, y = pair
        return Batch(torch.as_tensor(x), torch.as_tensor(y))
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"BatchStream: batch {number} is not a pair of images and labels ({error}); "
            "give (x, y), each a tensor or an array"
        ) from error
