"""Every metric with its name, its formula and which direction is better: the one such list."""

from collections.abc import Callable
from dataclasses import dataclass

from peerlearn.metrics.matrix import AccuracyMatrix


@dataclass(frozen=True)
class Metric:
    """A number that sums up an accuracy matrix.

    Args:
        name: in tables, such as AA.
        title: in words.
        formula: with `a[i][j]` the accuracy on task j after task i, and k the last task.
        meaning: a sentence for the reader of a table.
        higher_is_better: which direction is good.
        of: computes it.
        main: whether it is shown in every table.
        every_row: whether it looks at all rows, where the others ask the last one.

    >>> METRICS["LA"].of(AccuracyMatrix([[0.75], [0.5, 0.25]]))
    0.5
    """

    name: str
    title: str
    formula: str
    meaning: str
    higher_is_better: bool
    of: Callable[[AccuracyMatrix], float]
    main: bool = False
    every_row: bool = False

    @property
    def direction(self) -> str:
        """Which values are good, in words."""
        return "higher is better" if self.higher_is_better else "lower is better"


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "AA",
            "average accuracy",
            "mean over j ≤ k of a[k][j]",
            "How well all tasks are known at the end.",
            True,
            lambda matrix: matrix.average_accuracy,
            main=True,
        ),
        Metric(
            "LA",
            "learning accuracy",
            "mean over j ≤ k of a[j][j]",
            "How well each task was known when it had just been trained: plasticity.",
            True,
            lambda matrix: matrix.learning_accuracy,
            main=True,
        ),
        Metric(
            "FM",
            "forgetting measure",
            "mean over j < k of (max over j ≤ i < k of a[i][j]) - a[k][j]",
            "Accuracy lost since the best moment of each old task; negative when a task is better "
            "than ever. Undefined for one task. With fm_floor_zero, i runs to k.",
            False,
            lambda matrix: matrix.forgetting,
            main=True,
        ),
        Metric(
            "RF",
            "relative forgetting",
            "mean over j ≤ k of 1 - a[k][j] / (max over j ≤ i ≤ k of a[i][j])",
            "The share of its best accuracy that each task has lost: stability. An old task that "
            "was never known counts 1, the last task 0.",
            False,
            lambda matrix: matrix.relative_forgetting,
            main=True,
        ),
        Metric(
            "BWT",
            "backward transfer",
            "mean over j < i ≤ k of a[i][j] - a[j][j]",
            "What later tasks changed, over all pairs of an old and a later task. Undefined for "
            "one task.",
            True,
            lambda matrix: matrix.backward_transfer,
        ),
        Metric(
            "anytime",
            "anytime accuracy",
            "mean over i ≤ k of AA after task i",
            "How well all tasks so far are known, at any time of the stream.",
            True,
            lambda matrix: matrix.anytime_accuracy,
            every_row=True,
        ),
    )
}
MAIN = tuple(name for name, metric in METRICS.items() if metric.main)


def summarise(matrix: AccuracyMatrix) -> dict[str, float]:
    """Every metric by name; NaN for what is not defined, nothing for a matrix without rows.

    >>> list(summarise(AccuracyMatrix([[0.8], [0.6, 0.7]])))
    ['AA', 'LA', 'FM', 'RF', 'BWT', 'anytime']
    """
    return {name: metric.of(matrix) for name, metric in METRICS.items()} if len(matrix) else {}
