"""Streams without tasks of their own: one sequence of images, cut into stretches."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.data.images import Dataset
from peerlearn.settings import about, settings_of
from peerlearn.stream.dataset import DatasetStream, generator, shuffled

REDRAWS = 10  # of a place beyond the last image
BLOCK = 4096  # draws made at once

BlurScale = Annotated[
    float, about("s: deviation of the place from which the next image comes", gt=0, le=1e9)
]
Sigma = Annotated[
    float, about("deviation of a class's times, as a share of the stream", gt=0, le=1)
]


class ScheduledStream(DatasetStream):
    """A sequence of images whose tasks are equal stretches of it: what the schedules share.

    A task is only where the learner is tested: stretch t of T ends where t + 1 of T equal parts of
    the images have passed, and the first parts are one image longer if there is a rest. The home
    task of a class, and with it the test sets, is that of ClassStream; around this stretch most of
    its images pass.
    """

    reveals_tasks = False

    @abstractmethod
    def _sequence(self, y: Tensor, by_task: Tensor) -> Tensor:
        """The rows of all images as they pass, (N,); y: (N,) labels; by_task: as in ClassStream."""

    @override
    def _orders(self, y: Tensor) -> list[list[Tensor]]:
        by_task = torch.cat([passes[0] for passes in super()._orders(y)])
        stretches = self._sequence(y, by_task).tensor_split(self._num_tasks)
        return [
            [rows, *shuffled(rows, self.seed, t, self.epochs)[1:]]
            for t, rows in enumerate(stretches)
        ]


class HalfNormalStream(ScheduledStream):
    """The stream of ClassStream, in which every image is drawn from near the front of the rest.

    Michel et al., ICML 2024, https://arxiv.org/abs/2309.02870

    All images stand in the order in which ClassStream passes them. Until none is left, with one
    `RandomState([seed, *b"half-normal"])`: i = floor(|normal(0, s)|); where i is beyond the last
    image left, it is drawn again, up to ten times, and then is 0; the image with i others before it
    passes. Tasks are T equal stretches of this; a class is at home in the task that it has in
    ClassStream. The boundaries are not told.

    Args:
        dataset: its images stay where they are until a batch is asked for.
        num_tasks: of the order that is blurred, and stretches after which one tests.
        batch_size: images per batch; the last one of a stretch may be smaller.
        seed: decides the order of classes and images.
        epochs: passes over each stretch, the later ones shuffled.
        blur_scale: s, in images.

    >>> from peerlearn.data import toy_images
    >>> stream = HalfNormalStream(toy_images(num_classes=4), num_tasks=2, blur_scale=20)
    >>> [torch.cat([batch.y for batch in task]).bincount(minlength=4).tolist() for task in stream]
    [[43, 44, 6, 7], [7, 6, 44, 43]]
    """

    name: ClassVar[str] = "half-normal"
    kind = name

    def __init__(
        self,
        dataset: Dataset,
        num_tasks: int,
        batch_size: int = 10,
        seed: int = 0,
        epochs: int = 1,
        *,
        blur_scale: BlurScale = 500.0,
    ) -> None:
        settings_of(type(self))(blur_scale=blur_scale)
        self.blur_scale = blur_scale
        super().__init__(dataset, num_tasks, batch_size, seed, epochs)

    @override
    def _sequence(self, y: Tensor, by_task: Tensor) -> Tensor:
        places = self._places()
        left = by_task.tolist()[::-1]  # from the back: taking one out moves only those before it
        passed = []
        for count in range(len(left), 0, -1):
            for _ in range(1 + REDRAWS):
                place = next(places)
                if place < count:
                    break
            else:
                place = 0
            passed.append(left.pop(count - 1 - place))
        return torch.tensor(passed)

    def _places(self) -> Iterator[int]:
        rng = generator(self.seed, self.name)
        while True:
            yield from np.abs(rng.normal(0, self.blur_scale, BLOCK)).astype(np.int64).tolist()

    @override
    def _blur_in_words(self) -> str:
        return (
            f"blur_scale {self.blur_scale:g}: the next image comes from floor(|N(0, s^2)|) places "
            "behind the front; tasks are equal stretches"
        )


class GaussianStream(ScheduledStream):
    """A stream in which every class has its time, with a Gaussian around it.

    The schedule of Koh et al., ICLR 2023, https://openreview.net/forum?id=qco4ekz2Epm, also used by
    Seo et al., ICLR 2025, https://arxiv.org/abs/2410.15143

    The time of label k of C is k / C, in a stream that lasts from 0 to 1. With one
    `RandomState([seed, *b"gaussian"])`, in rounds: every image that has no time yet, in stored
    order, draws `normal(k / C, sigma)`, and keeps it if it is from 0 to 1. Images pass in the order
    of their times; of equal ones, in stored order. Tasks are T equal stretches of this; a class is
    at home in the task that it has in ClassStream, the one whose share of the time k / C is in. The
    boundaries are not told.

    Args:
        dataset: its images stay where they are until a batch is asked for.
        num_tasks: stretches after which one tests; it must divide the number of classes.
        batch_size: images per batch; the last one of a stretch may be smaller.
        seed: decides the order of classes and images.
        epochs: passes over each stretch, the later ones shuffled.
        sigma: the deviation, as a share of the stream.

    >>> from peerlearn.data import toy_images
    >>> stream = GaussianStream(toy_images(num_classes=4), num_tasks=2, sigma=0.2)
    >>> [torch.cat([batch.y for batch in task]).bincount(minlength=4).tolist() for task in stream]
    [[47, 34, 16, 3], [3, 16, 34, 47]]
    """

    name: ClassVar[str] = "gaussian"
    kind = name

    def __init__(
        self,
        dataset: Dataset,
        num_tasks: int,
        batch_size: int = 10,
        seed: int = 0,
        epochs: int = 1,
        *,
        sigma: Sigma = 0.1,
    ) -> None:
        settings_of(type(self))(sigma=sigma)
        self.sigma = sigma
        super().__init__(dataset, num_tasks, batch_size, seed, epochs)

    @override
    def _sequence(self, y: Tensor, by_task: Tensor) -> Tensor:
        rng = generator(self.seed, self.name)
        means = y.numpy() / len(self._order)  # (N,)
        times = np.full(len(means), -1.0)
        while len(waiting := np.flatnonzero((times < 0) | (times > 1))):
            times[waiting] = rng.normal(means[waiting], self.sigma)
        return torch.from_numpy(times.argsort(kind="stable"))

    @override
    def _blur_in_words(self) -> str:
        return (
            f"sigma {self.sigma:g}: the images of a class come around its time, with this "
            "deviation in shares of the stream; tasks are equal stretches"
        )
