"""Pages of many runs: bounded in what they read and draw, and open about what they leave out."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fabricate import opened, record

from peerlearn.records.read import read_runs
from peerlearn.report import detail, render
from peerlearn.report.detail import LIMITS, Limit, choose_detail, leading
from peerlearn.results.compare import compare
from peerlearn.results.series import Group

Fabricate = Callable[..., Path]
RATES = [round(0.001 * k, 3) for k in range(1, 21)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: hundreds of runs are written."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def section(page: str, key: str) -> str:
    return page.split(f'id="{key}"')[1].split("</section>")[0]


def flat(aa: float) -> list[list[float]]:
    return [[aa], [aa, aa]]


def forty_series(fabricate_run: Fabricate) -> None:
    """Two methods with twenty rates and three seeds each: 120 runs, the last rates the best."""
    for k, rate in enumerate(RATES):
        for method, lift in (("er", 0.0), ("er+ccldc", 0.3)):
            for seed in range(3):
                fabricate_run(
                    method, seed=seed, tasks=2, classes=4, settings={"optim.lr": rate},
                    matrix=flat(0.3 + lift + 0.01 * k + 0.001 * seed),
                )  # fmt: skip


def test_sixty_runs_are_all_shown_and_read(
    fabricate_run: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rate in RATES:
        for seed in range(3):
            fabricate_run(seed=seed, tasks=2, classes=4, settings={"optim.lr": rate})
    names = opened(monkeypatch)
    page = render(read_runs(tmp_path / "runs"))
    assert {names[name] for name in ("accuracy.json", "environment.json", "steps.jsonl")} == {60}
    assert 'class="rest"' not in page
    assert section(page, "matrices").count(">Seed 2</label>") == 20


def test_many_seeds_are_shown_by_their_mean_and_the_page_says_so(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    for method in ("er", "er+ccldc", "gsa"):
        for seed in range(25):
            fabricate_run(method, seed=seed, tasks=2, classes=4)
    page = render(read_runs(tmp_path / "runs"))
    assert "75 runs on mini, memory 200, tasks=2. They are too many to show each" in page
    matrices = section(page, "matrices")
    assert matrices.count("<h4>") == 3
    assert "Seed 2" not in matrices
    assert "Choose a seed" not in matrices
    assert "Of each only the mean over its seeds." in matrices
    folder = tmp_path / "runs" / "mini" / "er" / "m200" / "tasks=2"
    assert f"All of er: <code>peerlearn report {folder}/seed*</code>" in matrices
    plasticity = section(page, "plasticity")
    assert "mean of 25" in plasticity
    assert "one per seed" not in plasticity
    assert ", seed 3" not in page
    for key in ("stream", "memory", "losses", "cost", "summary"):
        assert 'class="rest"' not in section(page, key)  # these show means anyway


def test_files_of_what_is_not_drawn_are_not_read(
    fabricate_run: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forty_series(fabricate_run)
    names = opened(monkeypatch)
    page = render(read_runs(tmp_path / "runs"))
    shown = 12 * 3
    assert names["accuracy.json"] == names["steps.jsonl"] == shown
    assert names["environment.json"] == 40  # one of each series
    assert names["summary.json"] == 120 + shown  # once more for the memories that are drawn
    assert section(page, "summary").split("Further measures")[0].count('scope="row"') == 40
    for key in ("gains", "stream", "plasticity", "matrices", "memory", "losses", "cost"):
        assert "Of 40 series these are 12: of each group" in section(page, key)


def test_those_that_lead_are_drawn_with_their_baselines(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    forty_series(fabricate_run)
    groups = compare(read_runs(tmp_path / "runs"))
    first = [f"er{plus}, tasks=2, lr={rate}" for rate in RATES[:-4:-1] for plus in ("+ccldc", "")]
    assert [sorted(one.label.split(", ")) for one in leading(groups[0])[:6]] == [
        sorted(label.split(", ")) for label in first
    ]
    (group,) = choose_detail(groups).shown["curves"]
    rates = [one.facts["optim.lr"] for one in group.series]
    assert sorted(set(rates)) == RATES[-6:]
    assert len(rates) == 12
    assert len(group.gains) == 6


def test_a_command_of_the_page_shows_what_it_left_out(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    forty_series(fabricate_run)
    page = render(read_runs(tmp_path / "runs"))
    found = re.search(r"To see another: <code>peerlearn report (.+?)/seed\*</code>", page)
    assert found
    more = render(read_runs(list(Path(found[1]).glob("seed*"))))
    assert section(more, "matrices").count("<h4>") == 1
    assert 'class="rest"' not in more


def test_damage_in_what_is_not_drawn_stops_no_page(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    forty_series(fabricate_run)
    worst = tmp_path / "runs" / "mini" / "er" / "m200"
    (folder,) = worst.glob("*lr=0.001*/seed0")
    (folder / "accuracy.json").write_text("{")
    (folder / "steps.jsonl").write_text("{\n{\n")
    assert "</html>" in render(read_runs(tmp_path / "runs"))


def made_up(groups: int, series: int, seeds: int, tasks: int = 5) -> list[Group]:
    """Groups of series without files; the later a series, the better."""
    settings = [{"optim.lr": 0.001 * (k + 1), "stream.tasks": tasks} for k in range(series)]
    return compare([
        record(aa=0.1 + 0.001 * k, seed=seed, memory=memory + 1, settings=own)
        for memory in range(groups) for k, own in enumerate(settings) for seed in range(seeds)
    ])  # fmt: skip


def counts(groups: list[Group], kind: str) -> list[int]:
    return [len(group.series) for group in choose_detail(groups).shown[kind]]


def test_each_group_has_its_share() -> None:
    groups = made_up(groups=4, series=10, seeds=10)
    assert counts(groups, "rows") == counts(groups, "curves") == [10] * 4
    assert counts(groups, "single") == [7, 7, 8, 8]  # 300 runs whose logs are read


def test_long_streams_have_fewer_charts_of_their_own() -> None:
    groups = made_up(groups=3, series=4, seeds=10, tasks=100)
    assert counts(groups, "curves") == [4] * 3
    assert counts(groups, "single") == [1, 1, 2]  # 40,000 numbers, 10,000 each


@pytest.mark.parametrize("kind", ["curves", "single"])
@pytest.mark.parametrize(
    ("groups", "series", "seeds", "tasks"),
    [(60, 4, 3, 10), (1, 70, 1, 200), (2, 2, 200, 5), (9, 20, 2, 100)],
)
def test_what_a_page_reads_and_draws_is_bounded(
    kind: str, groups: int, series: int, seeds: int, tasks: int
) -> None:
    limit = LIMITS[kind]
    shown = choose_detail(made_up(groups, series, seeds, tasks)).shown[kind]
    drawn = [one for group in shown for one in group.series]
    assert drawn
    assert len(drawn) <= limit.series
    assert sum(len(one.runs) for one in drawn) <= limit.runs
    assert len(drawn) * tasks**limit.power <= limit.numbers
    assert max(len(group.series) for group in shown) <= limit.per_group


def test_the_first_series_is_there_whatever_it_takes() -> None:
    assert counts(made_up(groups=2, series=40, seeds=1, tasks=300), "single") == [1, 0]


def test_groups_for_which_there_is_no_room_are_counted_as_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(detail.LIMITS, "curves", Limit(12, 5, 100, 100, 1))
    chosen = choose_detail(made_up(groups=10, series=2, seeds=4))
    assert [len(group.series) for group in chosen.shown["curves"]] == [1] * 5 + [0] * 5
    assert "Of 20 series these are 5" in (chosen.left_out("curves") or "")


def test_settings_commands_and_unfinished_runs_do_not_grow_without_end(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    for k in range(130):
        status = "done" if k % 2 else "running"
        fabricate_run(seed=k, tasks=2, classes=4, settings={"optim.lr": 0.001 * (k + 1)},
                      status=status)  # fmt: skip
    page = render(read_runs(tmp_path / "runs"))
    assert "10 more are in the config.yaml of each run." in page
    assert "The first 60 of 65." in section(page, "summary")
    assert ", 70 more</code>" in section(page, "settings")  # of 130 seeds and rates


def test_runs_of_one_environment_are_asked_once_per_series(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    for seed in range(70):
        fabricate_run(seed=seed, tasks=2, classes=4)
    assert "Of 1 of the 70 runs, one of a series." in render(read_runs(tmp_path / "runs"))


def test_a_series_without_a_result_comes_last() -> None:
    (group,) = made_up(groups=1, series=3, seeds=2)
    first, *_ = group.series
    begun = tuple(
        replace(run, summary=run.summary.model_copy(update={"status": "running"}))
        for run in first.runs
    )
    group = replace(group, series=(replace(first, runs=begun), *group.series[1:]))
    assert leading(group)[-1].label == first.label
