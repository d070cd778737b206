import math

import pytest

from peerlearn.errors import UserError
from peerlearn.report.statistics import incomplete_beta, paired_test, two_sided_p

TABLE = [  # two-sided critical values as printed in textbooks: freedom, p, t
    (1, 0.05, 12.706), (2, 0.05, 4.303), (4, 0.05, 2.776), (9, 0.05, 2.262), (29, 0.05, 2.045),
    (1, 0.01, 63.657), (4, 0.01, 4.604), (9, 0.01, 3.250), (9, 0.001, 4.781), (120, 0.05, 1.980),
    (3, 0.5, 0.765), (10, 0.5, 0.700),
]  # fmt: skip


def tail_by_integration(t: float, freedom: int, steps: int = 4000) -> float:
    """Return 1 minus twice the area under the density from 0 to t, by Simpson's rule."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)
    heights = [
        scale * math.pow(1 + (t * i / steps) ** 2 / freedom, -(freedom + 1) / 2)
        for i in range(steps + 1)
    ]
    inner = 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
    return 1 - 2 * (t / steps) * (heights[0] + inner + heights[-1]) / 3


@pytest.mark.parametrize(("freedom", "p", "t"), TABLE)
def test_the_tail_agrees_with_published_t_tables(freedom: int, p: float, t: float) -> None:
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=2e-3)


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("t", [0.01, 0.3, 1.0, 2.5, 6.0])
def test_the_tail_agrees_with_numeric_integration(freedom: int, t: float) -> None:
    assert two_sided_p(t, freedom) == pytest.approx(tail_by_integration(t, freedom), abs=1e-10)


@pytest.mark.parametrize("t", [1e-6, 0.1, 1.0, 40.0, 1e5])
def test_the_tail_agrees_with_its_closed_forms(t: float) -> None:
    assert two_sided_p(t, 1) == pytest.approx(2 / math.pi * math.atan2(1, t), rel=1e-9)
    root = math.sqrt(2 + t * t)
    assert two_sided_p(t, 2) == pytest.approx(2 / (root * (root + t)), rel=1e-9)


def test_the_tail_is_whole_at_zero_and_the_same_for_both_signs() -> None:
    assert two_sided_p(0.0, 5) == 1.0
    assert two_sided_p(-2.5, 5) == two_sided_p(2.5, 5)


def test_the_tail_stays_a_chance_for_extreme_values() -> None:
    for freedom in (1, 9, 999, 100_000):
        tails = [two_sided_p(t, freedom) for t in (0.0, 1e-9, 0.5, 3.0, 50.0, 1e12, 1e200)]
        assert tails == sorted(tails, reverse=True)
        assert all(0 <= p <= 1 for p in tails)


def test_the_incomplete_beta_function_has_its_known_values() -> None:
    assert incomplete_beta(0.0, 2.0, 3.0) == 0.0
    assert incomplete_beta(1.0, 2.0, 3.0) == 1.0
    assert incomplete_beta(0.3, 1.0, 1.0) == pytest.approx(0.3)
    assert incomplete_beta(0.4, 2.0, 3.0) == pytest.approx(0.5248)  # 6x² - 8x³ + 3x⁴
    assert incomplete_beta(0.5, 7.5, 7.5) == pytest.approx(0.5)


def test_students_sleep_data_give_the_published_result() -> None:
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    n, difference, p = paired_test(second, first)
    assert n == 10
    assert difference == pytest.approx(1.58)
    assert p == pytest.approx(0.002833, abs=5e-7)


def test_swapping_the_sides_turns_only_the_sign() -> None:
    a, b = [0.51, 0.48, 0.55], [0.40, 0.41, 0.39]
    ahead, behind = paired_test(a, b), paired_test(b, a)
    assert ahead.difference == pytest.approx(-behind.difference)
    assert ahead.p == pytest.approx(behind.p)


def test_a_single_pair_has_a_difference_but_no_p() -> None:
    assert paired_test([0.75], [0.5]) == (1, 0.25, None)


def test_equal_differences_are_certain_and_no_difference_is_none() -> None:
    assert paired_test([0.5, 0.75], [0.25, 0.5]) == (2, 0.25, 0.0)
    assert paired_test([0.5, 0.75], [0.5, 0.75]) == (2, 0.0, 1.0)


def test_rounding_is_not_taken_for_a_difference() -> None:
    assert paired_test([0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2]).p == 1.0
    assert paired_test([0.1 + 0.2, 0.1 + 0.2], [0.3, 0.3]).p == 1.0
    assert paired_test([0.7, 0.4], [0.6, 0.3]).p == 0.0


@pytest.mark.parametrize(("a", "b"), [([], []), ([0.5], [0.5, 0.6])])
def test_sides_without_partners_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(UserError, match="as many values on both sides"):
        paired_test(a, b)
