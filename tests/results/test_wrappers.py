"""The measured results of slow copies: records in the repository, a page that `table` renders."""

from pathlib import Path

import pytest

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.results.compare import against, compare
from peerlearn.results.formats import render
from peerlearn.studies.grid_file import from_file

HOME = Path(__file__).parents[2]
PLACE = HOME / "docs" / "results"
# CCL-DC with slow copies that only answer, where its peers do
CCLDC = "er+ccldc-ema, stages=3, shadow_weight=0, alpha=0.1, answer=peers"


@pytest.fixture(scope="module")
def runs() -> list[RunRecord]:
    return read_runs(PLACE / "wrappers")


def test_the_page_has_the_tables_that_the_command_prints(runs: list[RunRecord]) -> None:
    page = (PLACE / "wrappers.md").read_text()
    groups = compare([one for run in runs for one in run.answered()])
    for table in (render(groups, "markdown"), render(against(groups, CCLDC), "markdown")):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len(lines) == 2 + 2 + 3 * 6  # two without slow copies, six of whom three answer
        assert not [line for line in lines if line not in page]


def test_the_records_are_of_the_sweep(runs: list[RunRecord]) -> None:
    wanted = {(w.run.method, w.run.seed, tuple(w.run.variant.items())) for w in
              from_file(HOME / "sweeps" / "wrappers.yaml").runs()}  # fmt: skip
    assert all(run.done for run in runs)
    assert {(r.method, r.seed, tuple(r.config.variant.items())) for r in runs} <= wanted


def test_slow_copies_that_only_answer_change_nothing_that_ccldc_or_er_learns(
    runs: list[RunRecord],
) -> None:
    core = {(run.method, run.seed): run for run in read_runs(PLACE / "core")}
    ways = {"er+ccldc": ("er+ccldc-ema", {"shadow_weight": 0, "stages": 3}), "er": ("er+ema", {})}
    for name, (method, settings) in ways.items():
        own = [run for run in runs if run.method == method]
        own = [run for run in own if settings.items() <= run.config.variant.items()]
        both = [(run, core[name, run.seed]) for run in own if (name, run.seed) in core]
        assert len(both) == 3
        for run, alone in both:
            assert run.accuracy.answers["peers"] == alone.matrix
