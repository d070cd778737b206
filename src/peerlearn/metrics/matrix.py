"""What a matrix of accuracies says about learning and forgetting."""

import math
from collections.abc import Iterable, Sequence
from typing import Self

from peerlearn.errors import UserError


class AccuracyMatrix:
    """Accuracies `a[i][j]` in [0, 1] on task j after training task i, for j <= i.

    With k the last row, or any row through `at(k)`:

        AA  = mean over j <= k of a[k][j]
        LA  = mean over j <= k of a[j][j]
        FM  = mean over j < k of (max over j <= i < k of a[i][j]) - a[k][j]; NaN for k = 0
        RF  = mean over j <= k of 1 - a[k][j] / (max over j <= i <= k of a[i][j])
        BWT = mean over j < i <= k of a[i][j] - a[j][j]; NaN for k = 0

    A term of FM is negative when a task is better than ever at the end; `fm_floor_zero` lets i
    run to k, so that no term is, as the authors of CCL-DC compute it. A term of RF whose
    maximum is 0 counts 1, or 0 for the last task.

    Args:
        rows: to begin with, each as `add_row` takes it.
        fm_floor_zero: whether no term of FM is negative.

    >>> scores = AccuracyMatrix()
    >>> scores.add_row([0.8])
    >>> scores.add_row([0.6, 0.7])
    >>> {name: round(value, 3) for name, value in scores.summary().items()}
    {'AA': 0.65, 'LA': 0.75, 'FM': 0.2, 'RF': 0.125, 'BWT': -0.2}
    """

    def __init__(
        self, rows: Iterable[Sequence[float]] = (), *, fm_floor_zero: bool = False
    ) -> None:
        self.fm_floor_zero = fm_floor_zero
        self._a: list[list[float]] = []
        for row in rows:
            self.add_row(row)

    def add_row(self, accuracies: Sequence[float]) -> None:
        """Add the accuracies on tasks 0 to i, measured after training task i."""
        i = len(self._a)
        if len(accuracies) != i + 1:
            raise UserError(
                f"row {i} of an accuracy matrix has {i + 1} entries, one per task so far, "
                f"not {len(accuracies)}"
            )
        wrong = [a for a in accuracies if not 0 <= a <= 1]
        if wrong:
            raise UserError(f"row {i}: accuracies are from 0 to 1, not {wrong[0]}; divide percents")
        self._a.append([float(a) for a in accuracies])

    def __len__(self) -> int:
        """The number of tasks trained so far."""
        return len(self._a)

    def at(self, k: int) -> Self:
        """The matrix as it stood after task k."""
        if not 0 <= k < len(self):
            raise UserError(f"no row {k} in an accuracy matrix of {len(self)} rows")
        return type(self)(self._a[: k + 1], fm_floor_zero=self.fm_floor_zero)

    @property
    def average_accuracy(self) -> float:
        """AA: how well all tasks are known at the end."""
        return _mean(self._last)

    @property
    def learning_accuracy(self) -> float:
        """LA: how well each task was known when it had just been trained."""
        return _mean([self._a[j][j] for j in range(len(self._last))])

    @property
    def forgetting(self) -> float:
        """FM: accuracy lost since the best moment of each old task."""
        last = self._last
        until = len(last) if self.fm_floor_zero else len(last) - 1
        return _mean([self._best(j, until) - a for j, a in enumerate(last[:-1])])

    @property
    def relative_forgetting(self) -> float:
        """RF: the share of its best accuracy that each task has lost."""
        last = self._last
        bests = [self._best(j, len(last)) for j in range(len(last))]
        lost = [1 - a / best if best else 1.0 for a, best in zip(last, bests, strict=True)]
        return _mean([*lost[:-1], 0.0])  # the last task had no time to be forgotten

    @property
    def backward_transfer(self) -> float:
        """BWT: what later tasks changed, mean over all pairs of an old and a later task."""
        a = self._a[: len(self._last)]
        return _mean([row[j] - a[j][j] for i, row in enumerate(a) for j in range(i)])

    @property
    def incremental_accuracy(self) -> float:
        """AIA: the mean of AA after each task."""
        return _mean([_mean(row) for row in self._a])

    def summary(self) -> dict[str, float]:
        """AA, LA, FM, RF and BWT after the last row."""
        from peerlearn.metrics.table import METRICS  # which needs this class

        return {m.name: m.of(self) for m in METRICS.values() if not m.every_row}

    def to_lists(self) -> list[list[float | None]]:
        """A square of rows, None above the diagonal, as it is written to JSON."""
        return [[*row, *[None] * (len(self) - len(row))] for row in self._a]

    @classmethod
    def from_lists(
        cls, rows: Sequence[Sequence[float | None]], *, fm_floor_zero: bool = False
    ) -> Self:
        """The matrix that `to_lists` wrote."""
        matrix = cls(fm_floor_zero=fm_floor_zero)
        for i, row in enumerate(rows):
            known = [a for a in row[: i + 1] if a is not None]
            if (
                len(row) != len(rows)
                or len(known) != i + 1
                or any(a is not None for a in row[i + 1 :])
            ):
                raise UserError(
                    f"row {i} of a stored accuracy matrix must have {i + 1} numbers and "
                    f"{len(rows) - i - 1} nulls; write it with to_lists"
                )
            matrix.add_row(known)
        return matrix

    @property
    def _last(self) -> list[float]:
        if not self._a:
            raise UserError("an accuracy matrix without rows has no metrics; call add_row first")
        return self._a[-1]

    def _best(self, task: int, until: int) -> float:
        return max(self._a[i][task] for i in range(task, until))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
