"""Data sets that others add: by a program, or by an installed package."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pictures import draw_classes, own_cache  # noqa: F401
from typing_extensions import override

from peerlearn.data import DATASETS, Archive, Dataset, Source, check, find, get, image_folder, load
from peerlearn.data.places import Progress
from peerlearn.errors import UserError


class Pets(Source):
    """Cats and dogs."""

    name = "pets"
    folders = ("pets-v1",)
    marks = ("pets.txt",)
    train, test = 8, 2

    @override
    def read(self, folder: Path, progress: Progress | None) -> Dataset:
        return image_folder(folder, 4, progress)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make the data set known for the time of a test."""
    monkeypatch.setattr(DATASETS, "_added", {})
    monkeypatch.setattr(DATASETS, "_objects", {})
    monkeypatch.chdir(tmp_path)
    DATASETS.add(Pets)


def write_pets(folder: Path, dogs: int = 5) -> Path:
    draw_classes(folder, {"cat": 5, "dog": dogs})
    (folder / "pets.txt").touch()
    return folder


def test_it_is_found_loaded_and_checked_under_its_name(tmp_path: Path) -> None:
    assert find("pets", tmp_path) is None
    folder = write_pets(tmp_path / "pets-v1")
    assert find("pets", tmp_path) == find("pets", folder) == folder
    dataset = load("pets", tmp_path)
    assert (dataset.name, dataset.train.x.shape) == ("pets", (8, 3, 4, 4))
    assert str(check("pets", tmp_path)).startswith("pets: whole\n")


def test_its_folder_is_recognised_by_its_content(tmp_path: Path) -> None:
    folder = write_pets(tmp_path / "anything")
    assert load(folder).name == check(folder).name == "pets"


def test_its_images_are_counted(tmp_path: Path) -> None:
    write_pets(tmp_path / "pets-v1", dogs=10)
    with pytest.raises(UserError, match="not whole: 12 training images of 8; delete"):
        check("pets", tmp_path)


def test_it_is_offered_where_a_name_is_wrong() -> None:
    with pytest.raises(UserError, match="no folder 'petz'; did you mean pets"):
        load("petz")
    with pytest.raises(UserError, match=r"no folder 'xyz'; choose from mini, .*, pets"):
        load("xyz")


def test_without_an_archive_an_error_says_where_to_put_its_folder(tmp_path: Path) -> None:
    put = rf"there is no download: put its folder \(pets-v1\) into {tmp_path}$"
    with pytest.raises(UserError, match=f"pets: not found in {tmp_path}; {put}"):
        load("pets", tmp_path)
    with pytest.raises(UserError, match=f"pets: {put}"):
        get("pets", tmp_path)


def test_its_archive_is_installed_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pets(tmp_path / "pets-v2")
    root, file = tmp_path / "root", tmp_path / "root" / "pets.zip"
    root.mkdir()
    with zipfile.ZipFile(file, "w") as packed:
        for path in (tmp_path / "pets-v2").rglob("*.png"):
            packed.write(path, path.relative_to(tmp_path))
    md5 = hashlib.md5(file.read_bytes()).hexdigest()
    monkeypatch.setattr(Pets, "archive", Archive("http://127.0.0.1:9/pets.zip", md5, "pets-v2"))
    with pytest.raises(UserError, match=r"run: peerlearn data get pets .*, or put pets-v2 there"):
        load("pets", root)
    assert get("pets", root) == find("pets", root) == root / "pets-v2"
    assert load("pets", root).name == "pets"


def test_a_data_set_of_an_installed_package_works_by_its_name(tmp_path: Path) -> None:
    write_pets(tmp_path / "data" / "beasts-v1")
    (tmp_path / "beasts.py").write_text(
        """
from peerlearn.data import Source

class Beasts(Source):
    name = "beasts"
    folders = ("beasts-v1",)

    def read(self, folder, progress):
        from peerlearn.data import image_folder
        return image_folder(folder, progress=progress)
"""
    )
    info = tmp_path / "beasts-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beasts\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[peerlearn.datasets]\nbeasts = beasts:Beasts\n")
    code = """
from peerlearn.data import DATASETS, check, find, load
assert DATASETS.origin("beasts") == "beasts 1.2"
assert str(find("beasts")) == "data/beasts-v1"
assert load("beasts").name == check("beasts").name == "beasts"
"""
    here = {"PYTHONPATH": str(tmp_path), "PEERLEARN_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=here)
