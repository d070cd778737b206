"""Streams without sharp tasks: BlurryStream, and BatchStream for batches of your own."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError
from peerlearn.stream import Batch, DatasetStream, StreamInfo, on_card, revealed, wrong_start

Array = Tensor | npt.NDArray[Any]
Pairs = Iterable[Sequence[Array]]  # (x, y), (x, y), ...


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
    ) -> None:
        """Split `dataset`; blur, in [0, 1), is the share of each class that leaves home."""
        if not 0 <= blur < 1:
            raise UserError(f"blur must be at least 0 and below 1, not {blur}")
        if num_tasks == 1 and blur:
            raise UserError(
                f"blur {blur} needs another task to deal images to; use 2 tasks or more, or blur 0"
            )
        self.blur = float(blur)
        super().__init__(dataset, num_tasks, batch_size, seed)

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


class BatchStream:
    """Any batches (x, y) as a stream of one task, passed on as they come.

    Pass an iterable, or a function without arguments that opens a new one. A list, a loader or a
    function can be read again and resumed in the middle; that it gives the same batches each time
    is for you to see to. A generator passes once, and a second reading is an error. x and y are
    what `OnlineLearner.learn` takes, and checked there.

    `len(task)` is that of the iterable if it has one; otherwise the batches are counted in a pass
    of their own, at the first call; a generator has no length. The stream has the test sets that it
    was given: none, one, or several, all labelled as the stream is.

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
        """Stream `batches`; `boundaries` promises the learner an end_task() where they end.

        Without `class_names`, they are those of the test sets, or numbers.
        """
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
