"""The measured results of the core: records in the repository, a page that `table` renders."""

from pathlib import Path

import pytest

from peerlearn.cli import main
from peerlearn.records.read import read_runs
from peerlearn.results.formats import render
from peerlearn.studies.grid_file import from_file

HOME = Path(__file__).parents[2]
RECORDS = HOME / "docs" / "results" / "core.json"


@pytest.fixture(scope="module")
def page() -> str:
    return (HOME / "docs" / "results" / "core.md").read_text()


def test_the_page_has_the_table_that_the_command_prints(page: str) -> None:
    table = render(read_runs(RECORDS), "markdown")
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 12  # every method, alone and with CCL-DC
    missing = [line for line in lines if line not in page]
    assert not missing


def test_the_records_are_those_of_the_sweep_and_all_of_them() -> None:
    wanted = {(w.run.method, w.run.seed, tuple(w.run.variant.items())) for w in
              from_file(HOME / "sweeps" / "core.yaml").runs()}  # fmt: skip
    found = read_runs(RECORDS)
    assert all(run.done for run in found)
    assert {(r.method, r.seed, tuple(r.config.variant.items())) for r in found} == wanted


def test_the_page_of_the_paper_has_the_orders_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = (HOME / "docs" / "results" / "paper.md").read_text()
    words = ["--scale", "lite", "--data", "cifar10", "--memory", "500", "--format", "markdown"]
    assert main(["reproduce", "aa", "la", *words, "--show", "--runs", str(RECORDS)]) == 0
    printed = capsys.readouterr().out
    orders = [line for line in printed.splitlines() if "+ccldc | " in line and " order" in line]
    orders += [line for line in printed.splitlines() if "undecided" in line and "| cifar" in line]
    assert len(orders) == 12
    assert not [line for line in orders if line not in shown]
    assert "holds in 13 of 28" in printed
