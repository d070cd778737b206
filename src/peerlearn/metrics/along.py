"""Accuracy along the stream: what evaluations inside tasks say, each measure a pure function."""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.metrics.metric import Metric


class Point(NamedTuple):
    """A moment of the stream at which test images were predicted, or all that had passed counted.

    Args:
        images: of the stream that have passed.
        grid: whether it is one of the points at equal distances; ends of tasks may lie between.
        pool: accuracy on test images of all classes met so far, in one pool; None: not asked.
        tasks: accuracy on each task so far, the present one included.
        classes: accuracy by label, None for those not met yet, at the end of a task; None inside.
        prequential: the share of stream images so far that were right before they were learnt.
        recent: the same in the window before this moment.

    >>> Point(100, pool=0.5, tasks=(0.5,)).classes is None
    True
    """

    images: int
    grid: bool = True
    pool: float | None = None
    tasks: tuple[float, ...] = ()
    classes: tuple[float | None, ...] | None = None
    prequential: float | None = None
    recent: float | None = None


def a_auc(points: Sequence[Point]) -> float:
    """A_AUC: the mean of the pool's accuracy over points at equal distances of the stream.

    Koh et al., ICLR 2022, https://arxiv.org/abs/2110.10031

    >>> a_auc([Point(100, pool=0.5), Point(150, grid=False, pool=1.0), Point(200, pool=0.25)])
    0.375
    """
    return _mean([point.pool for point in points if point.grid and point.pool is not None])


def a_last(points: Sequence[Point]) -> float:
    """A_last: the accuracy of the pool at the last point."""
    pools = _pools(points)
    return pools[-1] if pools else math.nan


def a_avg(points: Sequence[Point]) -> float:
    """A_avg: the mean of the pool's accuracy over the ends of tasks."""
    return _mean(_pools([point for point in points if point.classes is not None]))


def aaa(points: Sequence[Point]) -> float:
    """AAA: as A_AUC, but at each point the mean over the tasks so far."""
    return _mean([_mean(point.tasks) for point in points if point.grid and point.tasks])


def f_last(points: Sequence[Point]) -> float:
    """F_last: what classes have lost at the end since their best earlier end of a task.

    Mean over the classes that were ever right; 0 if none was, NaN before a second end.

    >>> ends = [Point(10, classes=(0.75, None)), Point(20, classes=(0.5, 1.0))]
    >>> f_last(ends)
    0.25
    """
    ends = [point.classes for point in points if point.classes is not None]
    if len(ends) < 2:
        return math.nan
    *earlier, last = ends
    best = [max(a or 0.0 for a in accuracies) for accuracies in zip(*earlier, strict=True)]
    lost = [top - (now or 0.0) for top, now in zip(best, last, strict=True) if top > 0]
    return _mean(lost) if lost else 0.0


def worst_case(points: Sequence[Point]) -> float:
    """WC_acc: the current task now, and of each old one the worst that it has had since it ended.

    After k tasks: 1 / k of the accuracy on the current task and (k - 1) / k of the mean over old
    tasks of the minimum of their accuracy since the end of their task.

    De Lange et al., ICLR 2023, https://arxiv.org/abs/2205.13452

    >>> inside = [Point(10, tasks=(0.9,), classes=()), Point(15, tasks=(0.2, 0.5))]
    >>> round(worst_case([*inside, Point(20, tasks=(0.6, 0.8), classes=())]), 3)
    0.5
    """
    lowest: list[float] = []  # of the tasks that have ended
    for point in points:
        if point.tasks:
            lowest = [min(pair) for pair in zip(lowest, point.tasks, strict=False)]
        if point.classes is not None:
            lowest += point.tasks[len(lowest) :]
    asked = [point.tasks for point in points if point.tasks]
    if not asked:
        return math.nan
    *old, _ = asked[-1]
    return _mean([*lowest[: len(old)], asked[-1][-1]])


class Prequential:
    """Accuracy on each batch before it is learnt, in all and over a window of the last images.

    Args:
        window: images.

    >>> seen = Prequential(window=4)
    >>> for right in ([True, True], [False, False], [True, False]):
    ...     seen.add(right)
    >>> seen.total, seen.recent
    (0.5, 0.25)
    """

    def __init__(self, window: int) -> None:
        self.right, self.count = 0, 0
        self.last: deque[bool] = deque(maxlen=window)

    def add(self, right: Sequence[bool]) -> None:
        """Count the answers to a batch."""
        self.right += sum(right)
        self.count += len(right)
        self.last.extend(right)

    @property
    def total(self) -> float:
        """The share of right answers so far, NaN before the first."""
        return self.right / self.count if self.count else math.nan

    @property
    def recent(self) -> float:
        """The share of right answers in the window."""
        return sum(self.last) / len(self.last) if self.last else math.nan


def _prequential(points: Sequence[Point]) -> float:
    found = [point.prequential for point in points if point.prequential is not None]
    return found[-1] if found else math.nan


ALONG: dict[str, Metric[Sequence[Point]]] = {
    metric.name: metric
    for metric in (
        Metric(
            "A_AUC",
            "area under the accuracy curve",
            "mean over points at equal distances of the accuracy on all classes met so far",
            "How well the classes so far are known at any time of the stream.",
            True,
            a_auc,
            main=True,
        ),
        Metric(
            "A_last",
            "last accuracy",
            "the accuracy on all classes met, at the last point",
            "How well all classes are known at the end; each image counts the same.",
            True,
            a_last,
            main=True,
        ),
        Metric(
            "A_avg",
            "accuracy at ends of tasks",
            "mean over ends of tasks of the accuracy on all classes met so far",
            "As A_AUC, but at ends of tasks alone.",
            True,
            a_avg,
        ),
        Metric(
            "AAA",
            "average anytime accuracy",
            "mean over points at equal distances of the mean accuracy over tasks so far",
            "As A_AUC, but each task counts the same.",
            True,
            aaa,
        ),
        Metric(
            "F_last",
            "forgetting of classes",
            "mean over classes of the best accuracy at an earlier end of a task minus the last",
            "What is lost of the classes that were ever known.",
            False,
            f_last,
        ),
        Metric(
            "WC",
            "worst-case accuracy",
            "mean of the last task's accuracy and of the worst that each old task had since it "
            "ended",
            "What could be relied on at any time.",
            True,
            worst_case,
        ),
        Metric(
            "prequential",
            "prequential accuracy",
            "share of all stream images that were right before they were learnt",
            "How good the predictions on the stream itself were; needs no test images.",
            True,
            _prequential,
            main=True,
        ),
    )
}


def summarise_points(points: Sequence[Point]) -> dict[str, float]:
    """Every metric that these points tell, by name; NaN for what is not defined yet.

    >>> summarise_points([Point(10, prequential=0.25), Point(20, prequential=0.5)])
    {'prequential': 0.5}
    """
    asked = any(point.pool is not None for point in points)
    counted = any(point.prequential is not None for point in points)
    names = [name for name in ALONG if (counted if name == "prequential" else asked)]
    return {name: ALONG[name].of(points) for name in names}


def _pools(points: Sequence[Point]) -> list[float]:
    return [point.pool for point in points if point.pool is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
