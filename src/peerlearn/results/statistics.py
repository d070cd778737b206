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
    """The mean difference of n pairs, as `Spread`, and p of the two-sided paired t-test.

    Differences without any spread have neither interval nor p: see `paired`.
    """

    n: int
    difference: float
    std: float | None
    low: float | None
    high: float | None
    p: float | None

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies above or below zero; 0 if it holds zero or is unknown."""
        return _side(self.low, self.high)


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

    Differences that are all equal leave t undefined: there is no p and no interval.

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
        return Paired(n, mean, 0.0, None, None, None)
    from scipy.special import stdtr  # a quarter of a second, when it is first needed

    p = 2 * float(stdtr(n - 1, -abs(mean) / (std / math.sqrt(n))))
    return Paired(n, mean, std, low, high, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values corrected for several claims at once, in the same order (Holm 1979).

    With p(1) <= ... <= p(m), the corrected p(i) is the largest of min(1, (m - j + 1) p(j)) over
    j <= i. Claims where it is at most 0.05 include a false one in at most 5 % of cases.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise UserError(f"p values lie from 0 to 1, got {[p for p in p_values if not 0 <= p <= 1]}")
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = so_far
    return corrected


def _side(low: float | None, high: float | None) -> int:
    """On which side of zero an interval lies."""
    return 0 if low is None or high is None else (low > 0) - (high < 0)


def _student(freedom: float) -> float:
    """How many standard errors the interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


class Known(NamedTuple):
    """What is known of some values: their mean, sample standard deviation and number."""

    mean: float
    std: float
    n: int


class Difference(NamedTuple):
    """A difference of two means, its 95 % interval, and p of Welch's two-sided test."""

    difference: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies above or below zero; 0 if it holds zero or is unknown."""
        return _side(self.low, self.high)


def welch(a: Known, b: Known) -> Difference:
    """The difference a - b of two means over values that are not paired, each of at least two.

    Values without any spread leave t undefined: there is no p and no interval.

    >>> found = welch(Known(0.5, 0.1, 10), Known(0.4, 0.1, 10))
    >>> round(found.difference, 3), round(found.low, 3), round(found.high, 3), round(found.p, 3)
    (0.1, 0.006, 0.194, 0.038)
    """
    if min(a.n, b.n) < 2:
        raise UserError(f"Welch's test needs two values or more on both sides, got {a.n}, {b.n}")
    from scipy.special import stdtr

    parts = [one.std**2 / one.n for one in (a, b)]
    error, difference = math.sqrt(sum(parts)), a.mean - b.mean
    if not error:
        return Difference(difference, None, None, None)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (one.n - 1) for part, one in zip(parts, (a, b), strict=True)
    )
    half = _student(freedom) * error
    p = 2 * float(stdtr(freedom, -abs(difference) / error))
    return Difference(difference, difference - half, difference + half, p)
