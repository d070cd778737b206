"""Where `peerlearn report --out` writes: to what was named, whatever it is."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from peerlearn.cli import main


def page_of(runs: Path, out: Path | str) -> int:
    return main(["report", str(runs), "--out", str(out)])


def test_a_file_is_replaced_and_nothing_is_left_beside_it(runs_root: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    assert page_of(runs_root, page) == 0
    assert page.read_text().endswith("</html>\n")
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "runs"}


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_it_leads_to_is_written(
    there: bool, runs_root: Path, tmp_path: Path
) -> None:
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    if there:
        target.write_text("old")
    link.symlink_to("target.html")
    assert page_of(runs_root, link) == 0
    assert link.is_symlink()
    assert target.read_text().endswith("</html>\n")
    assert not target.is_symlink()


def test_a_link_to_a_device_leaves_both_as_they_are(runs_root: Path, tmp_path: Path) -> None:
    link = tmp_path / "nothing.html"
    link.symlink_to("/dev/null")
    assert page_of(runs_root, link) == 0
    assert os.readlink(link) == "/dev/null"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_is_written_to(runs_root: Path, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    assert page_of(runs_root, pipe) == 0
    reader.join(10)
    assert got[0].endswith("</html>\n")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1"])
def test_standard_output_gets_the_page_and_nothing_else(
    name: str, runs_root: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "peerlearn", "report", str(runs_root), "--out", name]
    with (tmp_path / "page.html").open("w") as file:
        done = subprocess.run(words, check=False, stdout=file, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    assert "opens in any browser" in done.stderr


@pytest.mark.parametrize("name", ["", "a" * 300, "loop", "folder", "nowhere/page.html", "a\0b"])
def test_what_cannot_be_written_is_refused_in_one_line(
    name: str,
    runs_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    assert page_of(runs_root, name) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert os.readlink("loop") == "loop"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "loop", "runs"]
