import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from peerlearn.data.toy import toy_images
from peerlearn.errors import UserError
from peerlearn.metrics import AccuracyMatrix, accuracy

# Made with the authors' formulas; theirs is the forgetting that never falls below 0.
AUTHORS = [
    [0.9],
    [0.6, 0.85],
    [0.65, 0.4, 0.8],
    [0.5, 0.45, 0.3, 0.95],
    [0.4, 0.5, 0.2, 0.35, 0.7],
]


def paper_example(scale: float) -> AccuracyMatrix:
    """The learner of the paper whose accuracy on all tasks falls from step to step."""
    falling = (0.30, 0.25, 0.20, 0.15, 0.10)
    return AccuracyMatrix([[scale * a] * (i + 1) for i, a in enumerate(falling)])


@pytest.mark.parametrize("fm_floor_zero", [False, True])
def test_the_metrics_of_the_authors_are_met(fm_floor_zero: bool) -> None:
    summary = AccuracyMatrix(AUTHORS, fm_floor_zero=fm_floor_zero).summary()
    expected = {"AA": 0.43, "LA": 0.84, "FM": 0.5125, "RF": 0.4697798, "BWT": -0.435}
    assert summary == pytest.approx(expected, abs=1e-7)


def test_the_forgetting_of_the_authors_is_met_after_every_task() -> None:
    scores = AccuracyMatrix(AUTHORS, fm_floor_zero=True)
    measured = [scores.at(k).forgetting for k in range(5)]
    assert math.isnan(measured[0])
    assert measured[1:] == pytest.approx([0.3, 0.35, 0.4333333, 0.5125], abs=1e-7)


def test_the_worked_example_of_the_paper_is_met_at_every_step() -> None:
    for scale in (1.0, 0.5):
        scores = paper_example(scale)
        steps = [scores.at(k).summary() for k in range(1, 5)]
        forgetting = [scale * fm for fm in (0.05, 0.075, 0.10, 0.125)]
        assert [step["FM"] for step in steps] == pytest.approx(forgetting)
        assert [step["RF"] for step in steps] == pytest.approx(
            [0.0833, 0.1778, 0.2875, 0.42], abs=5e-5
        )
        assert scores.average_accuracy == pytest.approx(0.10 * scale)
        assert scores.learning_accuracy == pytest.approx(0.20 * scale)


def test_after_one_task_nothing_can_be_forgotten() -> None:
    for a in (0.0, 0.7):
        summary = AccuracyMatrix([[a]]).summary()
        assert (summary["AA"], summary["LA"], summary["RF"]) == (a, a, 0)
        assert math.isnan(summary["FM"])
        assert math.isnan(summary["BWT"])


def test_a_task_better_than_ever_lowers_forgetting_unless_it_is_floored() -> None:
    rows = [[0.5], [0.75, 0.5]]
    assert AccuracyMatrix(rows).forgetting == -0.25
    assert AccuracyMatrix(rows, fm_floor_zero=True).forgetting == 0
    assert AccuracyMatrix(rows).relative_forgetting == 0


def test_an_old_task_never_known_counts_as_forgotten_and_the_last_task_does_not() -> None:
    assert AccuracyMatrix([[0.0], [0.0, 0.0]]).relative_forgetting == 0.5
    assert AccuracyMatrix([[0.0], [0.0, 0.3]]).relative_forgetting == 0.5
    assert AccuracyMatrix([[0.5], [0.5, 0.0]]).relative_forgetting == 0


def plain_twin(a: list[list[float]], floor: bool) -> dict[str, float]:
    """The same metrics with loops over a square matrix, as the paper writes them."""
    k = len(a) - 1
    aa = la = fm = rf = bwt = pairs = 0.0
    for j in range(k + 1):
        aa += a[k][j] / (k + 1)
        la += a[j][j] / (k + 1)
        if j < k:
            drops = [a[i][j] - a[k][j] for i in range(j, k + 1 if floor else k)]
            fm += max(drops) / k
            ratios = [1 - a[k][j] / a[i][j] for i in range(j, k + 1) if a[i][j] > 0]
            rf += max(ratios, default=1.0) / (k + 1)
        for i in range(j + 1, k + 1):
            bwt += a[i][j] - a[j][j]
            pairs += 1
    nan = float("nan")
    return {"AA": aa, "LA": la, "FM": fm if k else nan, "RF": rf, "BWT": bwt / pairs if k else nan}


@st.composite
def matrices(draw: st.DrawFn) -> list[list[float]]:
    some = st.one_of(
        st.integers(0, 4).map(lambda n: n / 4), st.integers(0, 999).map(lambda n: n / 999)
    )
    return [
        draw(st.lists(some, min_size=i, max_size=i)) for i in range(1, draw(st.integers(1, 6)) + 1)
    ]


@given(matrices(), st.booleans())
def test_a_plain_twin_agrees(rows: list[list[float]], floor: bool) -> None:
    summary = AccuracyMatrix(rows, fm_floor_zero=floor).summary()
    assert summary == pytest.approx(plain_twin(rows, floor), nan_ok=True, abs=1e-12)


@given(matrices())
def test_relative_forgetting_is_a_share_and_the_floor_never_lowers_forgetting(
    rows: list[list[float]],
) -> None:
    summary = AccuracyMatrix(rows).summary()
    assert 0 <= summary["RF"] <= 1
    if len(rows) > 1:
        floored = AccuracyMatrix(rows, fm_floor_zero=True).forgetting
        assert floored >= max(0, summary["FM"])


@given(matrices())
def test_a_matrix_comes_back_from_json_as_it_was(rows: list[list[float]]) -> None:
    scores = AccuracyMatrix(rows)
    stored = json.loads(json.dumps(scores.to_lists(), allow_nan=False))
    assert [len(row) for row in stored] == [len(rows)] * len(rows)
    assert AccuracyMatrix.from_lists(stored).to_lists() == scores.to_lists()


def test_what_lies_above_the_diagonal_is_null() -> None:
    assert AccuracyMatrix([[0.5], [0.25, 1]]).to_lists() == [[0.5, None], [0.25, 1.0]]


@pytest.mark.parametrize(
    "stored",
    [
        [[0.5, 0.0], [0.5, 0.5]],
        [[0.5, None], [None, 0.5]],
        [[0.5], [0.5, 0.5]],
        [[0.5, None]],
    ],
)
def test_a_stored_matrix_of_another_form_is_refused(stored: list[list[float | None]]) -> None:
    with pytest.raises(UserError, match=r"row \d of a stored accuracy matrix"):
        AccuracyMatrix.from_lists(stored)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "row 1 .* has 2 entries, .* not 0"),
        ([0.5], "row 1 .* has 2 entries, .* not 1"),
        ([0.5, 0.5, 0.5], "row 1 .* has 2 entries, .* not 3"),
        ([0.5, 55.0], r"row 1: .* not 55\.0; divide percents"),
        ([-0.1, 0.5], r"row 1: .* not -0\.1"),
        ([math.nan, 0.5], "row 1: .* not nan"),
    ],
)
def test_a_wrong_row_is_refused_and_not_kept(row: list[float], message: str) -> None:
    scores = AccuracyMatrix([[0.5]])
    with pytest.raises(UserError, match=message):
        scores.add_row(row)
    assert len(scores) == 1


def test_metrics_of_nothing_are_an_error() -> None:
    for ask in (AccuracyMatrix().summary, lambda: AccuracyMatrix().backward_transfer):
        with pytest.raises(UserError, match="call add_row first"):
            ask()
    with pytest.raises(UserError, match="no row 1 in an accuracy matrix of 1 rows"):
        AccuracyMatrix([[0.5]]).at(1)


@pytest.mark.parametrize("batch_size", [1, 7, 80, 500])
def test_accuracy_is_the_share_of_right_answers_whatever_the_batch(batch_size: int) -> None:
    images = toy_images().test
    answers = iter(torch.where(torch.arange(80) < 20, images.y, -1).split(batch_size))
    assert accuracy(lambda _: next(answers), images, batch_size) == 0.25


def test_accuracy_of_no_images_is_an_error() -> None:
    empty = toy_images().test.take(torch.arange(0))
    with pytest.raises(UserError, match="empty image set"):
        accuracy(lambda x: x, empty)


def test_logits_in_place_of_labels_are_an_error() -> None:
    with pytest.raises(UserError, match=r"labels \(80,\), not \(80, 4\); take the argmax"):
        accuracy(lambda x: torch.zeros(len(x), 4), toy_images().test)


def test_a_batch_of_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match="batch_size must be at least 1, not 0"):
        accuracy(lambda x: x, toy_images().test, batch_size=0)
