import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from peerlearn.errors import UserError
from peerlearn.results.statistics import Known, holm, paired, spread, welch

SCORES = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=2, max_size=9, unique=True)


def test_students_sleep_data_give_the_published_result() -> None:
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired(second, first)
    assert found.n == 10
    assert found.difference == pytest.approx(1.58)
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    assert (found.low, found.high) == (
        pytest.approx(0.7001, abs=5e-5),
        pytest.approx(2.4599, abs=5e-5),
    )


@pytest.mark.parametrize(("n", "t"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262)])
def test_the_interval_of_a_mean_reaches_as_far_as_published_t_tables_say(n: int, t: float) -> None:
    values = [float(i) for i in range(n)]
    found = spread(values)
    assert found.std is not None
    assert found.high is not None
    assert found.high - found.mean == pytest.approx(t * found.std / math.sqrt(n), rel=1e-3)


@given(SCORES)
def test_the_spread_agrees_with_scipy(values: list[float]) -> None:
    found = spread(values)
    assert found.std == pytest.approx(stats.tstd(values), abs=1e-12)
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@given(SCORES, st.integers(0, 999))
def test_the_paired_test_agrees_with_scipy(a: list[float], seed: int) -> None:
    rng = random.Random(seed)
    b = [x + rng.gauss(0, 0.1) for x in a]
    found, theirs = paired(a, b), stats.ttest_rel(a, b)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-9)
    interval = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.p is not None
    assert (found.sign != 0) == (found.p < 0.05)


def test_swapping_the_sides_turns_only_the_sign() -> None:
    a, b = [0.51, 0.48, 0.55], [0.40, 0.41, 0.39]
    ahead, behind = paired(a, b), paired(b, a)
    assert ahead.difference == pytest.approx(-behind.difference)
    assert ahead.p == pytest.approx(behind.p)
    assert (ahead.sign, behind.sign) == (1, -1)


def test_one_value_has_a_mean_but_no_spread_and_one_pair_no_p() -> None:
    assert spread([0.25]) == (1, 0.25, None, None, None)
    assert paired([0.75], [0.5]) == (1, 0.25, None, None, None, None)
    assert paired([0.75], [0.5]).sign == 0


def test_equal_differences_leave_t_undefined_so_there_is_no_p_and_no_interval() -> None:
    assert paired([0.5, 0.75], [0.25, 0.5]) == (2, 0.25, 0.0, None, None, None)
    assert paired([0.5, 0.75], [0.5, 0.75]) == (2, 0.0, 0.0, None, None, None)
    assert paired([0.5, 0.75], [0.25, 0.5]).sign == 0
    assert welch(Known(0.5, 0.0, 3), Known(0.4, 0.0, 3))[1:] == (None, None, None)


def test_rounding_is_not_taken_for_a_difference() -> None:
    assert paired([0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2])[1:] == (0.0, 0.0, None, None, None)
    assert paired([0.1 + 0.2, 0.1 + 0.2], [0.3, 0.3]).difference == 0.0
    assert paired([0.7, 0.4], [0.6, 0.3]).p is None


def test_holm_gives_the_textbook_example() -> None:
    # four hypotheses at 0.05: 0.005 and 0.01 are rejected, 0.03 stops, 0.04 goes with it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@given(st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=1, max_size=8))
def test_holm_agrees_with_the_definition(p_values: list[float]) -> None:
    m = len(p_values)
    ranked = sorted(p_values)
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        until = ranked[: ranked.index(p) + 1]  # of equal p values the first has the largest factor
        plain = max(min(1.0, (m - j) * q) for j, q in enumerate(until))
        assert corrected == pytest.approx(plain)


@given(st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=1, max_size=6))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float]) -> None:
    rejected: set[int] = set()
    left = sorted(range(len(p_values)), key=p_values.__getitem__)
    while left and p_values[left[0]] * len(left) <= 0.05:
        rejected.add(left.pop(0))
    assert {k for k, p in enumerate(holm(p_values)) if p <= 0.05} == rejected


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_p(p: float) -> None:
    with pytest.raises(UserError, match="from 0 to 1"):
        holm([0.5, p])


@pytest.mark.parametrize(("a", "b"), [([], []), ([0.5], [0.5, 0.6])])
def test_sides_without_partners_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(UserError, match="as many values on both sides"):
        paired(a, b)
