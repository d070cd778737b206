"""Accuracy along the stream on the page."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fabricate import opened, record

from peerlearn.metrics.along import ALONG
from peerlearn.metrics.table import METRICS
from peerlearn.records.read import RunRecord, read_runs
from peerlearn.records.results_file import add_runs
from peerlearn.records.schema import Cost
from peerlearn.report import render
from peerlearn.report.along import MEASURES, MOST_POINTS, along, course, task_ends
from peerlearn.report.looks import assign_looks
from peerlearn.report.summary import columns_of
from peerlearn.results.compare import compare
from peerlearn.results.series import Group

Fabricate = Callable[..., Path]
HOW = {"every": 50, "probe": 10, "window": 1000}
POOL, RECENT = MEASURES


def group_of(runs: list[RunRecord]) -> Group:
    (group,) = compare(runs)
    return group


def made(fabricate_run: Fabricate, tmp_path: Path, *methods: str, **given: object) -> Group:
    """Each method on two seeds."""
    for method in methods:
        for seed in (0, 1):
            fabricate_run(method, seed=seed, **{"along": HOW, **given})
    return group_of(read_runs(tmp_path / "runs"))


def section(page: str) -> str:
    return page.split('<section id="along"')[1].split("</section>")[0]


def charts(html: str) -> list[str]:
    return re.findall(r'<svg role="img".*?</svg>', html)


def test_each_series_has_a_line_with_its_band_and_a_auc_beside_its_name(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    group = made(fabricate_run, tmp_path, "er", "er+mkd")
    pool, recent = charts(str(along(group, assign_looks([group]))))
    for chart, metric in ((pool, "A_AUC"), (recent, "prequential")):
        assert (chart.count("<polyline points"), chart.count("<polygon points")) == (4, 2)
        assert f">{metric} in %</text>" in chart
        for one in group.series:
            spread = one.spread(metric)
            assert spread is not None
            assert f">{one.name} {100 * spread.mean:.1f}</text>" in chart
            assert f"{one.name} has {metric} {100 * spread.mean:.1f} % and ends at" in chart


def test_a_line_is_the_mean_of_its_seeds_between_the_worst_and_the_best(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    (one,) = made(fabricate_run, tmp_path, "er").series
    found = course(one, POOL)
    assert found is not None
    assert [step.images for step in found.steps] == [*range(50, 2001, 50)]
    pools = [run.points[7].pool or 0.0 for run in one.runs]
    assert found.steps[7] == pytest.approx(
        (400, 50 * sum(pools), 100 * min(pools), 100 * max(pools))
    )


def test_ends_of_tasks_are_marked_where_all_runs_share_them(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    group = made(fabricate_run, tmp_path, "er")
    assert task_ends(group) == (400, 800, 1200, 1600, 2000)
    page = render(read_runs(tmp_path / "runs"))
    assert section(page).count('class="task" data-tip="task 2 ends at 800"') == 2
    fabricate_run("gsa", status="running", reached=2, along=HOW)
    assert len(task_ends(group_of(read_runs(tmp_path / "runs")))) == 5
    folder = fabricate_run("ocm", along=HOW)
    probes = (folder / "probes.jsonl").read_text().replace('"images": 400,', '"images": 390,')
    (folder / "probes.jsonl").write_text(probes)
    assert task_ends(group_of(read_runs(tmp_path / "runs"))) == ()


def test_a_page_without_points_has_no_such_section(runs_root: Path) -> None:
    page = render(read_runs(runs_root))
    assert 'id="along"' not in page
    assert "A_AUC" not in page


def test_predictions_before_learning_alone_have_their_chart(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    group = made(fabricate_run, tmp_path, "er", along={"window": 500})
    html = str(along(group, assign_looks([group])))
    assert len(charts(html)) == 1
    assert "Prequential accuracy in %, over the last 500 images, mini, memory 200" in html
    assert task_ends(group) == (400, 800, 1200, 1600, 2000)


def test_what_was_not_evaluated_alike_is_not_drawn_and_named(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    made(fabricate_run, tmp_path, "er")
    fabricate_run("er", seed=2, along={**HOW, "probe": 20})
    fabricate_run("gsa", along={"every": 100, "probe": 10})
    group = group_of(read_runs(tmp_path / "runs"))
    pool, recent = str(along(group, assign_looks([group]))).split("<figcaption>")[1:]
    assert "Not drawn: er, without such points" in pool
    assert "Not drawn: gsa, without such points" in recent
    assert "er has prequential" in recent


def test_who_else_could_have_answered_has_no_curve(fabricate_run: Fabricate) -> None:
    (run,) = read_runs(fabricate_run("er", along=HOW))
    assert POOL.of(run)
    other = replace(run, answer="peers")
    assert POOL.of(other) == RECENT.of(other) == {}


def test_a_results_file_has_the_metrics_and_no_curve(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    made(fabricate_run, tmp_path, "er")
    file = tmp_path / "results.json"
    add_runs(file, read_runs(tmp_path / "runs"))
    page = render(read_runs(file))
    assert 'id="along"' not in page
    assert "A_AUC <span" in page


def test_long_curves_are_thinned_and_keep_their_depths(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    group = made(fabricate_run, tmp_path, "er", along={**HOW, "every": 10})
    whole = course(group.series[0], POOL)
    assert whole is not None
    assert len(whole.steps) == 200
    chart, _ = charts(str(along(group, assign_looks([group]))))
    found = re.search(r'<polyline points="([^"]+)" class="curve', chart)
    assert found
    places = [tuple(map(float, place.split(","))) for place in found[1].split(" ")]
    assert len(places) <= MOST_POINTS
    deepest = min(whole.steps, key=lambda step: step.mean).images
    x, _ = max(places, key=lambda place: place[1])
    assert x == pytest.approx(76 + (500 - 76) * deepest / 2000, abs=0.02)


def test_of_many_runs_only_logs_of_what_is_drawn_are_read(
    fabricate_run: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for k in range(31):
        for seed in (0, 1):
            rate = {"optim.lr": 0.001 * (k + 1)}
            fabricate_run(seed=seed, tasks=2, classes=4, settings=rate, along=HOW)
    names = opened(monkeypatch)
    page = render(read_runs(tmp_path / "runs"))
    assert names["probes.jsonl"] == names["steps.jsonl"] == 12 * 2
    assert "Of 31 series these are 12" in section(page)


def test_the_summary_has_the_columns_of_the_table_and_says_how_they_were_had(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    made(fabricate_run, tmp_path, "er", "er+mkd")
    page = render(read_runs(tmp_path / "runs"))
    summary = page.split('id="summary"')[1].split("</section>")[0]
    heads = re.findall(r'<th scope="col">([\w ]+?) ?<span', summary)
    assert heads[:7] == ["AA", "LA", "FM", "RF", "A_AUC", "A_last", "prequential"]
    assert heads[7:] == ["Gain in AA", "k", "Images forward", "Training", "Peak memory", "Kept"]
    assert "Points: every 50 images, 10 test images per class, at ends of tasks all." in summary
    assert "k: computing of a step" in summary
    assert "Worst-case accuracy (WC) %" in summary
    tiles = page.split('<ul class="tiles">')[1].split("</ul>")[0]
    assert re.findall(r"<b>(\w+)</b>", tiles)[4:] == ["A_AUC", "A_last", "prequential", "Cost"]
    assert "Relative cost k" in page.split('id="cost"')[1]


def test_updates_are_a_column_where_methods_differ_in_them() -> None:
    def columns(*rates: float) -> list[str]:
        costs = [Cost(updates_per_image=rate) for rate in rates]
        runs = [record(m, cost=c) for m, c in zip(("er", "gsa"), costs, strict=True)]
        return [price.name for price in columns_of(compare(runs)).prices]

    assert "Updates" not in columns(0.1, 0.1)
    assert columns(0.1, 0.025)[:2] == ["Updates", "Images forward"]


def test_rows_say_what_keeps_them_apart(fabricate_run: Fabricate, tmp_path: Path) -> None:
    made(fabricate_run, tmp_path, "er")
    fabricate_run("er", seed=2)
    made(fabricate_run, tmp_path, "gsa", along={**HOW, "probe": 20})
    page = render(read_runs(tmp_path / "runs"))
    assert 'class="why">A_AUC and A_last and prequential in 2 of 3 seeds</span>' in page
    assert 'class="why">every 50 images, 20 test images per class</span>' in page


def test_the_glossary_explains_the_metrics_that_appear(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    made(fabricate_run, tmp_path, "er", along={"window": 500})
    formulas = render(read_runs(tmp_path / "runs")).split('id="formulas"')[1]
    assert re.findall(r"<dt><b>(\w+)</b>", formulas) == [*METRICS, "prequential"]
    made(fabricate_run, tmp_path, "gsa")
    formulas = render(read_runs(tmp_path / "runs")).split('id="formulas"')[1]
    assert re.findall(r"<dt><b>(\w+)</b>", formulas) == [*METRICS, *ALONG]
