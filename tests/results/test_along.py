"""Metrics along the stream in tables: what is averaged, what is compared, what is said of it."""

import csv
import io
import json
from pathlib import Path

import pytest
from fabricate import fabricate, record

from peerlearn.errors import UserError
from peerlearn.records.read import RunRecord, read_runs
from peerlearn.records.schema import Cost
from peerlearn.results.compare import compare
from peerlearn.results.formats import render
from peerlearn.results.series import Group, Series

OFTEN = {"every": 100.0, "probe": 10.0, "window": 1000.0}
SELDOM = {"every": 1000.0, "probe": 10.0, "window": 500.0}
ALL = {"every": 100.0, "probe": 1000.0}


def runs_of(method: str, *areas: float, along: dict[str, float] = OFTEN) -> list[RunRecord]:
    """A run for each A_AUC."""
    return [
        record(method, seed=k, along=along, A_AUC=area, A_last=area / 2, prequential=area / 4)
        for k, area in enumerate(areas)
    ]


def pair(rival: dict[str, float] = OFTEN) -> list[RunRecord]:
    own = runs_of("er+mkd", 0.50, 0.53, 0.53, along=rival)
    return runs_of("er", 0.40, 0.41, 0.42) + own


def group_of(runs: list[RunRecord]) -> Group:
    (group,) = compare(runs)
    return group


def heads(runs: list[RunRecord]) -> list[str]:
    first, *_ = render(runs, "markdown").splitlines()
    return [head.strip() for head in first.strip("| ").split("|")]


def row(one: Series) -> list[float | None]:
    spreads = [one.spread(name) for name in ("AA", "A_AUC", "A_last", "prequential")]
    return [spread and round(spread.mean, 6) for spread in spreads]


def test_they_have_columns_with_gains_and_marks_like_the_others() -> None:
    (alone, wrapped), best = group_of(pair()).series, group_of(pair()).best
    assert heads(pair())[4:11] == ["AA", "LA", "FM", "RF", "A_AUC", "A_last", "prequential"]
    assert row(alone) == [0.5, 0.41, 0.205, 0.1025]
    assert wrapped.gain is not None
    gain = wrapped.gain.metrics["A_AUC"]
    assert (gain.n, gain.difference, gain.sign) == (3, pytest.approx(0.11), 1)
    assert best["A_AUC"] == best["prequential"] == {"er+mkd"}
    assert "52.00 ± 1.73*" in render(pair(), "text")


def test_programs_get_them_with_how_they_were_had() -> None:
    lost = [record(along=OFTEN, A_AUC=0.4, F_last=0.25, WC=0.125, AIA=0.5)]
    (one,) = json.loads(render(lost, "json"))
    assert (one["F_last"], one["WC"], one["AIA"], one["AAA"]) == (0.25, 0.125, 0.5, None)
    alone, wrapped = json.loads(render(pair(), "json"))
    assert (alone["A_AUC"], alone["along"]) == (pytest.approx(0.41), OFTEN)
    assert wrapped["gains"]["A_last"]["difference"] == pytest.approx(0.055)
    _, line = csv.DictReader(io.StringIO(render(pair(), "csv")))
    assert float(line["prequential"]) == wrapped["prequential"]
    assert float(line["gain_A_AUC"]) == pytest.approx(0.11)
    assert (line["along_every"], line["along_probe"], line["along_window"]) == (
        "100.0",
        "10.0",
        "1000.0",
    )


def test_runs_without_them_have_neither_columns_nor_words_for_them() -> None:
    text = render([record(), record("er+mkd")], "text")
    for word in ("A_AUC", "prequential", "Points", "Window", "k:", "updates"):
        assert word not in text
    only = [record(along={"window": 500.0}, prequential=0.2)]
    assert heads(only)[8:10] == ["prequential", "forward"]
    assert "Window of the prequential curve: 500 images." in render(only, "text")
    assert "Points" not in render(only, "text")


@pytest.mark.parametrize("style", ["text", "markdown", "latex"])
def test_the_words_below_say_how_they_were_had(style: str) -> None:
    text = render(pair(), style)
    assert "Points: every 100 images, 10 test images per class, at ends of tasks all." in text
    assert "Window of the prequential curve: 1,000 images." in text
    assert "A_AUC: mean over points at equal distances" in text


@pytest.mark.parametrize("other", [SELDOM, ALL])
def test_seeds_that_were_not_evaluated_alike_are_not_averaged(other: dict[str, float]) -> None:
    runs = runs_of("er", 0.4, along=OFTEN) + runs_of("er", 0.0, 0.6, along=other)[1:]
    (one,) = group_of(runs).series
    assert row(one) == [0.5, None, 0.25, 0.125]  # the last two rest on no probe
    assert one.note == "A_AUC not evaluated alike"
    assert "A_AUC" not in heads(runs)


def test_rows_that_were_not_evaluated_alike_are_not_compared_and_say_where_they_were() -> None:
    group = group_of(pair(rival=ALL))
    ((_, gain),) = group.gains
    assert "A_AUC" not in {*gain.metrics} | {*group.best}
    assert gain.metrics["A_last"].difference == pytest.approx(0.055)
    assert gain.metrics["prequential"].difference == pytest.approx(0.0275)
    assert [row(one)[1] for one in group.series] == [0.41, 0.52]
    text = render([group], "text")
    assert "every 100 images, 1,000 test images per class" in text
    assert "Rows evaluated at other points are not compared" in text
    assert "points" not in heads(pair())


def test_a_row_of_which_some_seeds_were_not_evaluated_says_of_how_many_it_is() -> None:
    (one,) = group_of([*runs_of("er", 0.4, 0.5), record(seed=2)]).series
    assert row(one)[:2] == [0.5, 0.45]
    assert one.note == "A_AUC and A_last and prequential in 2 of 3 seeds"


def test_nothing_is_best_among_rows_that_were_not_evaluated_alike() -> None:
    runs = [*pair(), *runs_of("gsa", 0.1, 0.2, along=ALL)]
    assert {"AA", "prequential"} <= {*group_of(runs).best}
    assert "A_AUC" not in group_of(runs).best


def test_one_seed_that_was_evaluated_elsewhere_hides_no_best() -> None:
    runs = [*pair(), *runs_of("gsa", 0.9, along=ALL)]
    assert group_of(runs).best["A_AUC"] == {"er+mkd"}


def test_a_seed_found_twice_may_have_been_evaluated_differently() -> None:
    plain, often = record(root="a"), runs_of("er", 0.4)[0]
    for twins in ([plain, often], [often, plain]):
        (one,) = group_of(twins).series
        assert one.values("A_AUC") == {0: 0.4}
    (one,) = group_of([often, runs_of("er", 0.7, along=SELDOM)[0]]).series
    assert one.values("A_AUC") == {0: 0.4}
    with pytest.raises(UserError, match="different numbers"):
        compare([plain, record(root="b", LA=0.9)])


def priced(method: str, k: float | None, updates: float | None) -> RunRecord:
    return record(method, cost=Cost(relative=k, updates_per_image=updates))


def test_k_is_shown_and_updates_only_where_rows_differ_in_them() -> None:
    same = [priced("er", 1.0, 0.1), priced("er+ccldc", 10.0, 0.1), priced("gsa", None, None)]
    assert heads(same)[-1] == "k"
    assert "10.0x" in render(same, "text")
    assert "k: computing of a step" in render(same, "text")
    slow = [priced("er", 1.0, 0.1), priced("er+ccldc", 10.0, 0.01)]
    assert heads(slow)[-2:] == ["k", "updates"]
    assert "updates: steps per stream image." in render(slow, "text")
    assert "updates" not in render(same, "text")


def test_they_come_from_run_folders(tmp_path: Path) -> None:
    fabricate(tmp_path, "er", along={"every": 100, "probe": 10, "window": 1000})
    (run,) = read_runs(tmp_path)
    (found,) = json.loads(render([run], "json"))
    pools = [point.pool or 0.0 for point in run.points]
    assert len(pools) == 20
    assert found["A_AUC"] == pytest.approx(sum(pools) / 20)
    assert found["cost"]["relative"] == 1.0
