"""The measured results of the core: records in the repository, a page that `table` renders."""

import sys
from pathlib import Path

import pytest

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.results.formats import render
from peerlearn.studies.grid_file import from_file

HOME = Path(__file__).parents[2]
sys.path.insert(0, str(HOME / "scripts"))

import core_page  # noqa: E402
import paper_page  # noqa: E402

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
    assert core_page.table(read_runs(RECORDS)) in page


def test_the_records_are_those_of_the_sweep_and_all_of_them() -> None:
    wanted = {(w.run.method, w.run.seed, tuple(w.run.variant.items())) for w in
              from_file(HOME / "sweeps" / "core.yaml").runs()}  # fmt: skip
    found = read_runs(RECORDS)
    assert all(run.done for run in found)
    assert {(r.method, r.seed, tuple(r.config.variant.items())) for r in found} == wanted


class TestThePageOfThePaper:
    def test_has_the_tables_that_the_command_prints(self) -> None:
        page = (HOME / "docs" / "results" / "paper.md").read_text(encoding="utf-8")
        tables = paper_page.tables()
        assert len(tables) == 10
        for name, table in tables.items():
            start, end = paper_page.marks(name)
            assert f"{start}\n\n{table}\n\n{end}" in page

    def test_has_records_of_its_own_that_no_other_page_has(self) -> None:
        own, *others = (read_runs(path) for path in reversed(paper_page.FILES))
        assert all(run.done for run in own)
        known = {_key(run) for runs in others for run in runs}
        assert not [_key(run) for run in own if _key(run) in known]


def _key(run: RunRecord) -> tuple[object, ...]:
    return (run.data, run.memory, run.method, run.seed, str(run.config.variant))
