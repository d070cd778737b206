"""What a person meets at the command line: one line that helps, and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest
from command import SMALL, command


def refuse(capsys: pytest.CaptureFixture[str], says: str, *words: str) -> None:
    assert command(*words) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert says in said.err
    assert not said.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run err", "there is no method 'err'; did you mean er?"),
        ("run er+ccdlc", "there is no collaboration 'ccdlc'; did you mean ccldc?"),
        ("run er --data cifer10", "cifar10"),
        ("run er --memry 5", "run: there is no --memry; did you mean --memory?"),
        ("run er --memory many", "--memory: memory must be a whole number, got 'many'"),
        ("run er --memory -3", "capacity must be 0"),
        ("run er --lr 0", "lr must be a number above 0"),
        ("run er --tasks 3", "3"),
        ("run er --seeds x", "--seeds: 'x' is not a list such as 0-2"),
        ("run er --stages 2", "--stages: er cannot use it"),
        ("run er --config nowhere.yaml", "nowhere.yaml: cannot be read"),
        ("run er --alpha 0.5", "--alpha: er cannot use it"),
        ("run derpp --alpha -1", "alpha and beta must be 0 or more"),
        ("run er --device warp", "device 'warp' cannot be used"),
        ("run er --threads -1", "--threads: must be 0 (all) or more"),
        ("run er --precision bf16", "needs device='cuda'"),
        ("run", "see peerlearn run --help"),
        ("table nowhere", "nowhere: no such folder"),
        ("report nowhere", "nowhere: no such folder"),
        ("data get", "name a data set"),
        ("data check cifer10", "cifar10"),
        ("dance", "invalid choice: 'dance'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing(
    words: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuse(capsys, says, *words.split())
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_cannot_be_written_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    refuse(capsys, "choose another --out", "run", "er", *SMALL, "--out", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_folder_without_images_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "runs"
    refuse(capsys, "empty", "run", "er", "--data", str(tmp_path / "empty"), "--out", str(out))
    assert not out.exists()


def test_help_and_tables_come_without_torch() -> None:
    code = "import sys, peerlearn.cli, peerlearn.report.formats; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_everything_there_is_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("er_ace", "ccldc-easy-to-hard", "imagenet100", "108"))
    assert command("list", "presets") == 0
    assert len(capsys.readouterr().out.splitlines()) == 108
    assert command("data", "list") == 0
    assert "mini" in capsys.readouterr().out
