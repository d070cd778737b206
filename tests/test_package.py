"""What is shipped: the wheel and the source archive, their metadata, and imports elsewhere."""

import email
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
import yaml

import peerlearn

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]


def build(kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    text = wheel.read(f"peerlearn-{VERSION}.dist-info/METADATA").decode()
    return email.message_from_string(text)


def test_a_wheel_carries_its_licence(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    for name in ("LICENSE", "NOTICE"):
        shipped = wheel.read(f"peerlearn-{VERSION}.dist-info/licenses/{name}")
        assert shipped == (ROOT / name).read_bytes()


def test_a_wheel_holds_the_whole_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = (path for path in (ROOT / "src/peerlearn").rglob("*") if path.is_file())
    here = {path.relative_to(ROOT / "src").as_posix() for path in source}
    assert shipped == {name for name in here if "__pycache__" not in name}
    assert {f"peerlearn/{name}" for name in (
        "py.typed", "data/mini.webp", "data/imagenet100.txt", "report/page.css", "report/page.js",
    )} <= shipped  # fmt: skip


def test_a_wheel_brings_the_command(wheel: zipfile.ZipFile) -> None:
    points = wheel.read(f"peerlearn-{VERSION}.dist-info/entry_points.txt").decode()
    assert "peerlearn = peerlearn.__main__:main" in points.splitlines()


def test_a_wheel_says_what_it_is(metadata: Message) -> None:
    for field in ("Summary", "Author", "Keywords", "Requires-Python", "Description-Content-Type"):
        assert metadata[field]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert not [c for c in metadata.get_all("Classifier", []) if c.startswith("License ::")]
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_source_archive_can_be_tested_and_built_again(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE", "NOTICE", "CITATION.cff", "CONTRIBUTING.md", "CHANGELOG.md", "README.md",
        "Makefile", "constraints.txt", "pyproject.toml", "mkdocs.yml", "docs/install.md",
        "examples/01_first_program.py", "scripts/make_mini.py",
        "src/peerlearn/data/mini.webp", "tests/test_package.py", "tests/conftest.py",
    } <= names  # fmt: skip
    assert not [n for n in names if "__pycache__" in n or n.startswith(("runs", ".venv"))]


def test_every_file_states_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert peerlearn.__version__ == VERSION == str(citation["version"])
    assert citation["license"] == PROJECT["license"]
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


ELSEWHERE = """
import sys, warnings

class Absent:  # what Unix has and Windows has not
    NAMES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline", "curses"}

    def find_spec(self, name, path=None, target=None):
        if name in self.NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in Absent.NAMES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
warnings.simplefilter("ignore")  # filelock says that it falls back

import importlib, pkgutil
from pathlib import Path
from unittest import mock

import peerlearn
for module in pkgutil.walk_packages(peerlearn.__path__, "peerlearn."):
    importlib.import_module(module.name)

import torch
from peerlearn import StreamInfo, build_learner, runtime
from peerlearn.cli import main
from peerlearn.files import locked

learner = build_learner("er+ccldc", StreamInfo(num_classes=2), "small", memory=4, width=2)
for _ in range(2):
    losses = learner.learn(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
assert losses
learner.save("checkpoint")
learner.load("checkpoint")
with locked(Path("lock")):
    pass
with mock.patch.object(runtime, "os", mock.Mock()):
    runtime.os.name = "nt"
    with mock.patch.object(runtime.ctypes, "CDLL", side_effect=TypeError):  # as Windows does
        assert runtime.keep_freed_memory() is False
        runtime.reset_peak_memory()
with mock.patch.object(runtime.Path, "read_text", side_effect=OSError):
    assert runtime.peak_memory() == 0
sys.exit(main(["list", "methods"]))
"""


def test_everything_can_be_imported_and_learns_without_what_only_unix_has(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "er_ace" in done.stdout


def test_the_peak_of_memory_is_known_here() -> None:
    from peerlearn.runtime import peak_memory

    assert peak_memory() > 10_000_000
