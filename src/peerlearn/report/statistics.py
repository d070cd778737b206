"""The paired t-test, from the standard library alone."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.errors import UserError
from peerlearn.report.reading import mean_std

ROUNDING = 1e-12  # relative; differences closer than this are equal but for their last bits
PRECISION = 1e-15  # relative, of the continued fraction
TINIEST = 1e-300  # stands for a zero in a denominator
MOST_TERMS = 10_000


class PairedTest(NamedTuple):
    """The mean difference of `n` pairs; p is two-sided, None for a single pair."""

    n: int
    difference: float
    p: float | None


def paired_test(a: Sequence[float], b: Sequence[float]) -> PairedTest:
    """Return the paired t-test of a - b, where a[i] belongs to b[i].

    Differences that are all equal leave t undefined: p is 1 if they are 0, else 0.

    >>> n, difference, p = paired_test([0.5, 0.6, 0.8], [0.4, 0.3, 0.3])
    >>> n, round(difference, 6), round(p, 6)
    (3, 0.3, 0.12169)
    """
    if len(a) != len(b) or not a:
        raise UserError(f"a paired test needs as many values on both sides, got {len(a)}, {len(b)}")
    n = len(a)
    difference, std = mean_std([x - y for x, y in zip(a, b, strict=True)])
    if std is None:
        return PairedTest(n, difference, None)
    rounding = ROUNDING * max(map(abs, (*a, *b)))
    if std <= rounding:
        return PairedTest(n, difference, 0.0 if abs(difference) > rounding else 1.0)
    return PairedTest(n, difference, two_sided_p(difference / (std / math.sqrt(n)), n - 1))


def two_sided_p(t: float, freedom: int) -> float:
    """Return the chance of a value beyond -|t| or |t| under Student's t distribution.

    >>> round(two_sided_p(12.706, 1), 4)
    0.05
    """
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for x in [0, 1], a and b > 0."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - incomplete_beta(1 - x, b, a)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    return front / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Return 1 + d1 / (1 + d2 / (1 + ...)), DLMF 8.17.22, by the modified Lentz method."""
    value = upper = 1.0
    lower = 0.0
    for k in range(1, MOST_TERMS):
        m = k // 2
        if k % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / (1 + d * lower or TINIEST)
        upper = 1 + d / upper or TINIEST
        value *= upper * lower
        if abs(upper * lower - 1) < PRECISION:
            return value
    raise ArithmeticError(f"the incomplete beta function of {x=}, {a=}, {b=} did not converge")
