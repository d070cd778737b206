"""Tables of results files: the same bytes as of the folders, and of both together."""

import json
from pathlib import Path

import pytest
from fabricate import fabricate

from peerlearn.cli import main
from peerlearn.errors import UserError
from peerlearn.records.read import read_runs
from peerlearn.records.results_file import add_runs
from peerlearn.report import render as page
from peerlearn.results.formats import STYLES, render

HOME = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Runs of two methods, one of them with a variant."""
    for seed in (0, 1, 10):
        fabricate(tmp_path / "runs", "er", seed=seed)
        fabricate(tmp_path / "runs", "er", seed=seed, settings={"optim.lr": 0.01})
        fabricate(tmp_path / "runs", "er+ccldc", seed=seed, memory=200 + 300 * (seed == 10))
    return tmp_path / "runs"


@pytest.mark.parametrize("style", STYLES)
def test_a_table_of_a_file_is_that_of_the_folders(style: str, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    add_runs(file, read_runs(root))
    assert render(read_runs(file), style) == render(read_runs(root), style)


@pytest.mark.parametrize("name", ["core", "wrappers", "authors-ours"])
def test_the_measured_runs_of_the_documentation_are_as_they_would_be_written(
    name: str, tmp_path: Path
) -> None:
    file, again = HOME / f"{name}.json", tmp_path / "again.json"
    runs = read_runs(file)
    add_runs(again, runs)
    assert again.read_bytes() == file.read_bytes()
    assert len(file.read_bytes()) < 6000 * len(runs)


def test_folders_and_files_stand_side_by_side(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rest = tmp_path / "others.json", tmp_path / "runs/mini/er+ccldc"
    add_runs(file, read_runs(root / "mini" / "er"))
    assert main(["table", str(root)]) == 0
    whole = capsys.readouterr().out
    assert main(["table", str(rest), str(file)]) == 0
    assert capsys.readouterr().out == whole
    assert main(["report", str(rest), str(file), "--out", str(tmp_path / "page.html")]) == 0


def test_a_run_that_a_folder_and_a_file_have_counts_once(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    add_runs(file, read_runs(root))
    both = read_runs([root, file])
    assert render(both, "json") == render(read_runs(root), "json")
    assert page(both) == page(read_runs(root))  # with the losses, which the folders alone have


def test_a_run_that_a_folder_and_a_file_tell_differently_is_named_with_both(
    root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "all.json"
    add_runs(file, read_runs(root))
    path = root / "mini/er/m200/seed0/summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "AA": 0.5}))
    with pytest.raises(UserError, match="but different numbers") as raised:
        render(read_runs([file, root]), "text")
    assert f"{path.parent} and {file}/mini/er/m200/seed0 have the same" in str(raised.value)
