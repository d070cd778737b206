"""What was measured on blurred streams: records in the repository, a page made of them."""

import sys
from itertools import product
from pathlib import Path

import pytest

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.studies.grid_file import from_file

HOME = Path(__file__).parents[2]
PLACE = HOME / "docs" / "results"
sys.path.insert(0, str(HOME / "scripts"))

import streams_page  # noqa: E402


@pytest.fixture(scope="module")
def runs() -> list[RunRecord]:
    return read_runs(PLACE / "streams.json")


def test_the_page_has_the_tables_of_the_records(runs: list[RunRecord]) -> None:
    page = (PLACE / "streams.md").read_text(encoding="utf-8")
    assert streams_page.tables(runs) in page


def test_the_records_are_those_of_the_sweep_and_all_of_them(runs: list[RunRecord]) -> None:
    def key(run: object) -> tuple[str, ...]:
        return tuple(str(getattr(run, name)) for name in ("method", "seed", "variant"))

    wanted = [key(wish.run) for wish in from_file(HOME / "sweeps" / "streams.yaml").runs()]
    assert all(run.done for run in runs)
    assert sorted(key(run.config) for run in runs) == sorted(wanted)


def test_a_clock_changes_nothing_for_the_method_that_sets_it(runs: list[RunRecord]) -> None:
    plain = [run for run in runs if run.method == "er" and "updates" not in run.config.variant]
    er = {(run.seed, *streams_page.settings(run)): run for run in plain}
    for seed, stream in product(range(3), streams_page.STREAMS):
        assert er[seed, stream, True].matrix == er[seed, stream, False].matrix
