"""No run folder and no configuration ends the process, raises but in words, or is changed."""

from pathlib import Path

from fuzz.folders import case, template
from fuzz.harness import run_cases
from peerlearn.records.read import read_runs
from peerlearn.report import render as page


def test_mutated_folders_and_configurations_are_read_or_refused(tmp_path: Path) -> None:
    counts = run_cases(case, range(300), tmp_path)
    assert min(counts["read"], counts["refused"]) > 50


def test_what_is_mutated_is_whole_at_first(tmp_path: Path) -> None:
    for name, content in template().files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert "</html>" in page(read_runs(tmp_path))
