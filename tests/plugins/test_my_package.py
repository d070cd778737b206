"""An installed package whose entry points name parts of every kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from outside import FILES, TINY, write_from_page

ENTRY_POINTS = """
[peerlearn.methods]
my_pcr = my_pcr:MyPCR
[peerlearn.networks]
one_layer = my_parts:one_layer
[peerlearn.optimizers]
rmsprop = my_parts:RMSprop
[peerlearn.memories]
newest = my_parts:Newest
[peerlearn.wrappers]
trio = my_parts:Trio
[peerlearn.teachers]
everyone = my_parts:Everyone
[peerlearn.datasets]
blobs = my_parts:Blobs
"""


class Installed:
    """A place for packages that only a process of its own sees."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in FILES:
            write_from_page(name, place)
        (place / "mine.dist-info").mkdir()
        (place / "mine.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
        self.release("1.2")

    def release(self, version: str) -> None:
        text = f"Metadata-Version: 2.1\nName: mine\nVersion: {version}\n"
        (self.place / "mine.dist-info" / "METADATA").write_text(text)

    def peerlearn(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "peerlearn", *words],
            cwd=self.place,
            env={**os.environ, "PYTHONPATH": str(self.place)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_its_names_work_in_every_command_without_a_flag(installed: Installed) -> None:
    listed = installed.peerlearn("list")
    assert listed.returncode == 0
    for name in ("my_pcr", "one_layer", "rmsprop", "newest", "trio", "blobs"):
        (line,) = [x for x in listed.stdout.splitlines() if x.split()[:1] == [name]]
        assert line.endswith("[mine 1.2]")
    words = "my_pcr my_pcr+trio --data blobs --net one_layer --channels 3 --method.temperature 0.2"
    more = "--optimizer rmsprop --memory-policy newest --every 2 --threads 1 --out runs"
    done = installed.peerlearn("run", *words.split(), *more.split())
    assert done.returncode == 0, done.stderr
    for config in (installed.place / "runs").rglob("config.yaml"):
        assert config.read_text().count("mine 1.2") >= 4


def test_a_run_of_an_older_release_is_not_passed_off_as_one_of_the_newer(
    installed: Installed,
) -> None:
    words = ("run", "my_pcr", *TINY, "--out", "runs")
    assert installed.peerlearn(*words).returncode == 0
    installed.release("1.3")
    again = installed.peerlearn(*words)
    assert again.returncode == 2
    assert "method my_pcr mine 1.2 there, mine 1.3 here" in again.stderr
