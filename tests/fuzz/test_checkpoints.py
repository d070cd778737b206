"""No checkpoint ends the process, raises but in words, or is taken by half."""

from pathlib import Path

from fuzz.checkpoints import case
from fuzz.harness import run_cases


def test_mutated_checkpoints_are_taken_whole_or_refused(tmp_path: Path) -> None:
    counts = run_cases(case, range(300), tmp_path)
    assert min(counts["read"], counts["refused"]) > 15
