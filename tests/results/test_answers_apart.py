"""Who could have answered, as rows of their own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fabricate import record

from peerlearn.cli import main
from peerlearn.errors import UserError
from peerlearn.records.read import RunRecord, read_finished, read_run, read_runs
from peerlearn.report import render as page
from peerlearn.results.compare import compare

TINY = (
    *("--data", "mini", "--memory", "20", "--net", "small", "--width", "1"),
    *("--train-per-class", "4", "--test-per-class", "2", "--threads", "1"),
)


def run_with_copies(seed: int, peers: float, shadow: float, average: float) -> RunRecord:
    run = record("er+mkd", average, seed=seed)
    settings = {**run.config.settings, "predict_with": "average"}
    answers = {"peers": {"AA": peers}, "ema": {"AA": shadow}, "average": {"AA": average}}
    return replace(
        run,
        config=run.config.model_copy(update={"settings": settings}),
        summary=run.summary.model_copy(update={"answers": answers}),
    )


def test_each_answer_is_a_row_of_its_own_with_its_own_gain() -> None:
    runs = [run_with_copies(seed, 0.5 + seed / 100, 0.4, 0.6) for seed in (0, 1)]
    baselines = [record("er", 0.3, seed=seed) for seed in (0, 1)]
    (group,) = compare([*baselines, *(one for run in runs for one in run.answered())])
    gains = {series.label: gain.metrics["AA"].difference for series, gain in group.gains}
    assert gains == {
        "er+mkd": pytest.approx(0.3),
        "er+mkd, predict_with=peers": pytest.approx(0.205),
        "er+mkd, predict_with=ema": pytest.approx(0.1),
    }


def test_a_run_without_ema_copies_is_one_row() -> None:
    run = record("er+ccldc")
    assert run.answered() == [run]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    assert main(["run", "er", "er+mkd", *TINY, "--out", str(out)]) == 0
    return out


def test_table_and_page_show_what_was_recorded(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = runs.glob("mini/er+mkd/*/*/seed0")
    run = read_run(folder)
    assert {*run.summary.answers} == {*run.accuracy.answers} == {"peers", "ema", "average"}
    assert run.accuracy.answers["average"] == run.matrix
    assert main(["table", str(runs), "--answers", "--json"]) == 0
    rows = {row["label"]: row["AA"] for row in json.loads(capsys.readouterr().out)}
    found = {label.rpartition("=")[2]: aa for label, aa in rows.items() if "predict_with=" in label}
    assert found == {who: run.summary.answers[who]["AA"] for who in ("peers", "ema")}
    assert len(rows) == 4
    assert main(["table", str(runs), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    html = page(run.answered())
    assert "predict_with=ema" in html
    assert "AA, EMA copies predict %" in html


def test_a_record_whose_answers_are_not_those_of_its_matrices_is_damaged(runs: Path) -> None:
    (folder,) = runs.glob("mini/er+mkd/*/*/seed0")
    path = folder / "summary.json"
    whole = path.read_text()
    content = json.loads(whole)
    content["answers"]["shadow"]["AA"] += 0.1
    path.write_text(json.dumps(content))

    try:
        with pytest.raises(UserError, match=r"are not those of summary\.json"):
            read_finished(folder, 5)
    finally:
        path.write_text(whole)


def rows_of(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The rows of a table, by their labels."""
    capsys.readouterr()
    assert main(["table", str(folder), "--json", *words]) == 0
    return {row["label"]: row for row in json.loads(capsys.readouterr().out)}


def test_two_runs_of_one_learner_lose_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ("er", "er+ema", "er+ema-chain")
    for chosen in ((), ("--predict-with", "ncm"), ("--predict-with", "peers")):
        assert main(["run", *methods, *TINY, *chosen, "--out", str(tmp_path)]) == 0
    alone, rows = rows_of(tmp_path, capsys), rows_of(tmp_path, capsys, "--answers")
    assert len(alone) == 8  # by its preset, er predicts with peers
    assert [row["AA_ncm"] for row in alone.values()].count(None) == 0
    for label, row in alone.items():
        figures = ("AA", "AA_ncm", "LA", "RF")
        assert [rows[label][name] for name in figures] == [row[name] for name in figures]


def test_the_peers_of_a_run_by_class_means_keep_these(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "er", *TINY, "--predict-with", "ncm", "--out", str(tmp_path)]) == 0
    rows = [*rows_of(tmp_path, capsys, "--answers").values()]
    assert len(rows) == 2
    assert rows[0]["AA_ncm"] == rows[1]["AA_ncm"] is not None
    (run,) = read_runs(tmp_path)
    assert run.answered()[1].accuracy.ncm == run.matrix
