"""Means over seeds with their spread, and differences between runs on the same seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.errors import UserError

CONFIDENCE = 0.95
ROUNDING = 1e-12  # relative; differences closer than this are equal but for their last bits


class Spread(NamedTuple):
    """A mean over n values, their sample standard deviation, and the mean's 95 % interval.

    The interval is Student's; one value has neither deviation nor interval.
    """

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None


class Paired(NamedTuple):
    """The mean difference of n pairs, as `Spread`, and p of the two-sided paired t-test."""

    n: int
    difference: float
    std: float | None
    low: float | None
    high: float | None
    p: float | None

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies above or below zero; 0 if it holds zero or is unknown."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


def spread(values: Sequence[float]) -> Spread:
    """The mean of at least one value, with its spread.

    >>> n, mean, std, low, high = spread([1.0, 2.0, 3.0])
    >>> n, mean, std, round(low, 3), round(high, 3)
    (3, 2.0, 1.0, -0.484, 4.484)
    """
    n, mean = len(values), statistics.fmean(values)
    if n == 1:
        return Spread(1, mean, None, None, None)
    std = statistics.stdev(values)
    half = _student(n - 1) * std / math.sqrt(n)
    return Spread(n, mean, std, mean - half, mean + half)


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """The paired comparison a - b, where a[i] belongs to b[i].

    Differences that are all equal leave t undefined: p is 1 if they are 0, else 0, and the
    interval is the point.

    >>> round(paired([0.5, 0.6, 0.8], [0.4, 0.3, 0.3]).p, 5)
    0.12169
    """
    if len(a) != len(b) or not a:
        raise UserError(
            f"a paired comparison needs as many values on both sides, got {len(a)}, {len(b)}"
        )
    n, mean, std, low, high = spread([x - y for x, y in zip(a, b, strict=True)])
    if std is None:
        return Paired(n, mean, None, None, None, None)
    rounding = ROUNDING * max(map(abs, (*a, *b)))
    if std <= rounding:
        mean = mean if abs(mean) > rounding else 0.0
        return Paired(n, mean, 0.0, mean, mean, 0.0 if mean else 1.0)
    from scipy.special import stdtr  # a quarter of a second, when it is first needed

    p = 2 * float(stdtr(n - 1, -abs(mean) / (std / math.sqrt(n))))
    return Paired(n, mean, std, low, high, p)


def _student(freedom: int) -> float:
    """How many standard errors the interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
