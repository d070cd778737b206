"""i-Blurry and Si-Blurry: some classes have one task, of the others images pass in all tasks."""

from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.data.images import Dataset
from peerlearn.errors import UserError
from peerlearn.settings import about, settings_of
from peerlearn.stream.dataset import DatasetStream, generator

DRAWS = 100  # of the classes of Si-Blurry, to find some for every task

Disjoint = Annotated[int, about("N: percent of the classes that have one task", ge=0, le=100)]
Blur = Annotated[
    int, about("M: percent of the images of all other classes that are dealt anew", ge=0, le=100)
]


class IBlurryStream(DatasetStream):
    """i-Blurry-N-M: N % of the classes have one task; of the others, M % of the images have none.

    Koh et al., ICLR 2022, https://arxiv.org/abs/2110.10031

    Class order, labels, home tasks and test sets are those of ClassStream. Of C classes in T tasks,
    d = floor(C N / 100) are disjoint and C - d blurry, equally many of each kind in every task: the
    first d / T of a task's classes are disjoint. Both numbers must be multiples of T; an N that
    would lose classes is refused. Then, with one `RandomState([seed, *b"i-blurry"])`:

    1. of the n images of all blurry classes of task 0, in stored order, the first floor(M n / 100)
       of `permutation(n)` are taken out; the same for tasks 1, 2, ...;
    2. these m images, task by task, are put in the order `permutation(m)`;
    3. and cut into T equal parts, one for each task: part t ends before image floor((t + 1) m / T).
       It may hold images of task t itself.

    Each task then shuffles what it holds, as ClassStream does. Every image passes once. The
    boundaries are not told.

    Args:
        dataset: its images stay where they are until a batch is asked for.
        num_tasks: into which the classes are dealt; it must divide their number.
        batch_size: images per batch; the last one of a task may be smaller.
        seed: decides the order of classes and images, and who leaves home.
        epochs: as in ClassStream.
        disjoint: N, in percent.
        blur: M, in percent.

    >>> from peerlearn.data import toy_images
    >>> stream = IBlurryStream(toy_images(num_classes=4), num_tasks=2, blur=20)
    >>> [torch.cat([batch.y for batch in task]).bincount(minlength=4).tolist() for task in stream]
    [[50, 46, 0, 4], [0, 4, 50, 46]]
    """

    name: ClassVar[str] = "i-blurry"
    kind = name
    reveals_tasks = False

    def __init__(
        self,
        dataset: Dataset,
        num_tasks: int,
        batch_size: int = 10,
        seed: int = 0,
        epochs: int = 1,
        *,
        disjoint: Disjoint = 50,
        blur: Blur = 10,
    ) -> None:
        settings_of(type(self))(disjoint=disjoint, blur=blur)
        self.disjoint, self.blur = disjoint, blur
        super().__init__(dataset, num_tasks, batch_size, seed, epochs)

    @override
    def _classes_by_task(self) -> list[int]:
        whole, tasks = len(self._order), self._num_tasks
        fit = [n for n in range(101) if whole * n // 100 % tasks == 0]
        if self.disjoint not in fit:
            near = min(fit, key=lambda n: abs(n - self.disjoint))
            raise UserError(
                f"{self.dataset.name}: with {self.disjoint} % of {whole} classes disjoint, {tasks} "
                f"equal tasks would lose {tasks} classes; the nearest that loses none is {near}, "
                f"with {whole * near // 100} classes disjoint (--disjoint, disjoint)"
            )
        disjoint = whole * self.disjoint // 100
        kinds = self._numbers(disjoint, whole - disjoint)
        blurry = [kind for d, b in kinds for kind in [False] * d + [True] * b]
        self._blurry = torch.tensor(blurry)  # (C,): of each label
        return [d + b for d, b in kinds]

    def _numbers(self, disjoint: int, blurry: int) -> list[tuple[int, int]]:
        """How many classes of each kind are at home in each task."""
        return [(disjoint // self._num_tasks, blurry // self._num_tasks)] * self._num_tasks

    @override
    def _deal(self, y: Tensor) -> Tensor:
        rng, task_of = generator(self.seed, self.name), self._home(y)
        taken = []
        for t in range(self._num_tasks):
            rows = ((task_of == t) & self._blurry[y]).nonzero()[:, 0]
            order = torch.from_numpy(rng.permutation(len(rows)))
            taken.append(rows[order][: len(rows) * self.blur // 100])
        pool = torch.cat(taken)
        pool = pool[torch.from_numpy(rng.permutation(len(pool)))]
        for t, part in enumerate(pool.tensor_split(self._cuts(len(pool), rng))):
            task_of[part] = t
        self._moved = len(pool)
        return task_of

    def _cuts(self, size: int, _rng: np.random.RandomState) -> list[int]:
        """Where so many things are cut into a part for each task."""
        return [t * size // self._num_tasks for t in range(1, self._num_tasks)]

    @override
    def _blur_in_words(self) -> str:
        alone = int((~self._blurry).sum())
        return (
            f"disjoint {self.disjoint}, blur {self.blur}: {alone} of {len(self._order)} classes "
            f"have one task; of the others {self._moved} images are dealt anew to all tasks"
        )


class SiBlurryStream(IBlurryStream):
    """Si-Blurry: i-Blurry in which chance says how many classes and moved images a task gets.

    Moon et al., ICCV 2023, https://arxiv.org/abs/2308.09303

    As IBlurryStream, but tasks differ in size. With one `RandomState([seed, *b"si-blurry sizes"])`,
    T - 1 cuts of the d disjoint classes are drawn, `sort(randint(0, d + 1, T - 1))`, and then as
    many of the blurry ones. Task 0 is home to the first classes of the class order, as many as its
    two numbers say, first the disjoint ones; then comes task 1. If a task has no class at all, both
    are drawn again, up to 100 times; after that the stream is refused. Images are dealt with one
    `RandomState([seed, *b"si-blurry"])`, and the m moved ones cut at `sort(randint(0, m + 1,
    T - 1))`, drawn last from it.

    Args:
        dataset: as in IBlurryStream; so are all others.

    >>> from peerlearn.data import toy_images
    >>> stream = SiBlurryStream(toy_images(num_classes=8), num_tasks=2, blur=20)
    >>> [len(test.y.unique()) for test in stream.test_sets]
    [3, 5]
    """

    name = "si-blurry"
    kind = name

    @override
    def _numbers(self, disjoint: int, blurry: int) -> list[tuple[int, int]]:
        rng = generator(self.seed, "si-blurry sizes")
        for self._draws in range(1, DRAWS + 1):
            edges = [[0, *self._cuts(size, rng), size] for size in (disjoint, blurry)]
            numbers = [(b - a, d - c) for (a, b), (c, d) in zip(*map(pairwise, edges), strict=True)]
            if all(map(any, numbers)):
                return numbers
        raise UserError(
            f"{self.dataset.name}: {DRAWS} draws with seed {self.seed} all left some of the "
            f"{self._num_tasks} tasks of si-blurry without a class; use fewer tasks (--tasks)"
        )

    @override
    def _cuts(self, size: int, rng: np.random.RandomState) -> list[int]:
        return sorted(rng.randint(0, size + 1, self._num_tasks - 1).tolist())

    @override
    def _blur_in_words(self) -> str:
        times = "once" if self._draws == 1 else f"{self._draws} times, until every task had one"
        return f"{super()._blur_in_words()}; classes per task drawn {times}"
