"""Whoever watches must see what happens."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import harness
from fuzz.harness import run_cases, watch


def case(seed: int, folder: Path) -> str:
    """Reads, refuses, and leaves a file behind."""
    assert not list(folder.iterdir())
    (folder / "left").write_text("")
    return "read" if seed % 3 else "refused"


def bad_at(seed: int, deed: Callable[[], object]) -> harness.Case:
    """Like `case`, but for one seed."""

    def bad(other: int, folder: Path) -> str:
        if other == seed:
            deed()
        return case(other, folder)

    return bad


def test_it_counts_what_was_read_and_refused(tmp_path: Path) -> None:
    assert run_cases(case, range(10), tmp_path) == {"read": 6, "refused": 4}


def test_several_at_a_time_do_each_case_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "CASES_PER_PROCESS", 4)
    seeds = [report.seed for report in watch(case, range(10), tmp_path, jobs=2)]
    assert sorted(seeds) == [*range(10)]


DEEDS: dict[str, Callable[[], object]] = {
    "signal": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "traceback": lambda: 1 // 0,
    "slow": lambda: time.sleep(60),
}


@pytest.mark.parametrize("outcome", DEEDS)
def test_a_bad_case_is_named_and_the_others_go_on(
    outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "PATIENCE", 2.0)
    bad = bad_at(3, DEEDS[outcome])
    reports = {report.seed: report for report in watch(bad, range(6), tmp_path)}
    assert {seed for seed, report in reports.items() if report.failed} == {3}
    assert reports[3].outcome == outcome
    assert len(reports) == 6
    with pytest.raises(AssertionError, match=f"seed 3: {outcome}"):
        run_cases(bad, [3], tmp_path)


def test_a_case_that_says_nothing_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a case says one of"):
        run_cases(lambda _seed, _folder: "", range(2), tmp_path)
