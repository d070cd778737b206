"""The measured results of slow copies: records in the repository, a page made of them."""

import sys
from pathlib import Path

import pytest

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.studies.grid_file import from_file

HOME = Path(__file__).parents[2]
PLACE = HOME / "docs" / "results"
sys.path.insert(0, str(HOME / "scripts"))

import authors_page  # noqa: E402
import wrappers_page  # noqa: E402


@pytest.fixture(scope="module")
def runs() -> list[RunRecord]:
    return read_runs(PLACE / "wrappers.json")


def test_the_page_has_the_tables_and_the_picture_of_the_records(runs: list[RunRecord]) -> None:
    page = (PLACE / "wrappers.md").read_text(encoding="utf-8")
    assert wrappers_page.tables(runs) in page
    assert wrappers_page.like_for_like(runs) in page
    assert (PLACE / "wrappers.svg").read_text(encoding="utf-8") == wrappers_page.picture(runs)


def test_the_readme_has_the_table_of_the_records(runs: list[RunRecord]) -> None:
    page = (HOME / "README.md").read_text(encoding="utf-8")
    assert wrappers_page.in_short(runs) in page


def test_the_records_are_of_the_sweeps(runs: list[RunRecord]) -> None:
    def key(run: object) -> tuple[object, ...]:
        names = ("data", "memory", "method", "seed", "variant")
        return tuple(str(getattr(run, name)) for name in names)

    sweeps = [from_file(HOME / "sweeps" / f"{name}.yaml") for name in
              ("wrappers", "wrappers-further")]  # fmt: skip
    wanted = {key(wish.run) for sweep in sweeps for wish in sweep.runs()}
    assert all(run.done for run in runs)
    assert {key(run.config) for run in runs} <= wanted


def test_ema_copies_that_only_answer_change_nothing_that_ccldc_or_er_learns(
    runs: list[RunRecord],
) -> None:
    core = {(run.method, run.seed): run for run in read_runs(PLACE / "core.json")}
    ways = {"er+ccldc": ("er+ccldc-ema", {"shadow_weight": 0, "stages": 3}), "er": ("er+ema", {})}
    for name, (method, settings) in ways.items():
        own = [run for run in runs if (run.method, run.data) == (method, "cifar10")]
        own = [run for run in own if run.memory == 200]
        own = [run for run in own if settings.items() <= run.config.variant.items()]
        both = [(run, core[name, run.seed]) for run in own if (name, run.seed) in core]
        assert len(both) == 3
        for run, alone in both:
            assert run.accuracy.answers["peers"] == alone.matrix


def test_the_page_of_the_authors_has_the_table_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    page = (PLACE / "authors.md").read_text(encoding="utf-8")
    assert authors_page.table(read_runs(PLACE / "authors-ours.json")) in page
    assert not capsys.readouterr().out
