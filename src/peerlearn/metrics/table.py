"""Every metric with its name, its formula and which direction is better: the one such list."""

from collections.abc import Mapping
from typing import Any

from peerlearn.metrics.along import ALONG
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.metric import Metric

_OF_A_MATRIX: tuple[Metric[AccuracyMatrix], ...] = (
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
        "AIA",
        "average incremental accuracy",
        "mean over i ≤ k of AA after task i",
        "How well all tasks so far are known, at ends of tasks.",
        True,
        lambda matrix: matrix.incremental_accuracy,
        every_row=True,
    ),
)
METRICS = {metric.name: metric for metric in _OF_A_MATRIX}
MAIN = tuple(name for name, metric in METRICS.items() if metric.main)
EVERY: Mapping[str, Metric[Any]] = {**METRICS, **ALONG}  # whatever they sum up
SHOWN = tuple(name for name, metric in EVERY.items() if metric.main)  # MAIN, and along a stream


def summarise(matrix: AccuracyMatrix) -> dict[str, float]:
    """Every metric by name; NaN for what is not defined, nothing for a matrix without rows.

    >>> list(summarise(AccuracyMatrix([[0.8], [0.6, 0.7]])))
    ['AA', 'LA', 'FM', 'RF', 'BWT', 'AIA']
    """
    return {name: metric.of(matrix) for name, metric in METRICS.items()} if len(matrix) else {}
