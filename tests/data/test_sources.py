import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pictures import draw_classes, own_cache, write_tiny  # noqa: F401
from test_cifar import write_cifar10, write_cifar100

from peerlearn.data import DATASETS, check, find, get, load
from peerlearn.data.places import places, target
from peerlearn.errors import UserError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `./data` is not the developer's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_all(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    write_cifar10(root)
    write_cifar100(root)
    write_tiny(root)


def folder_of(name: str) -> str:
    archive = DATASETS[name].archive
    assert archive
    return archive.folder


def test_every_name_loads_what_lies_in_root(tmp_path: Path) -> None:
    write_all(tmp_path / "root")
    for name in ("mini", "cifar10", "cifar100", "tiny"):
        assert load(name, tmp_path / "root").name == name


def test_root_may_be_the_folder_of_the_data_set_itself(tmp_path: Path) -> None:
    write_all(tmp_path)
    for name in ("cifar10", "cifar100", "tiny"):
        assert load(name, tmp_path / folder_of(name)).name == name


def test_data_is_looked_for_in_the_environments_folder_then_here_then_in_the_cache(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLEARN_DATA", str(tmp_path / "env"))
    for place in (cache_dir / "data", Path("data"), tmp_path / "env"):
        place.mkdir(parents=True)
        assert find("cifar100") is None or find("cifar100") != place / "cifar-100-python"
        write_cifar100(place)
        assert find("cifar100") == place / "cifar-100-python"
    assert places() == [tmp_path / "env", Path("data"), cache_dir / "data"]
    assert places("only here") == [Path("only here")]


def test_downloads_go_to_root_or_the_environments_folder_or_the_cache(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert target("data") == Path("data")
    assert target() == cache_dir / "data"
    monkeypatch.setenv("PEERLEARN_DATA", "env")
    assert target() == Path("env")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny"])
def test_missing_data_is_an_error_that_names_the_command_and_the_places(
    cache_dir: Path, name: str
) -> None:
    with pytest.raises(
        UserError, match=f"{name}: not found in data or .*; run: peerlearn data get"
    ):
        load(name)
    with pytest.raises(UserError, match=f"not found in r; run: peerlearn data get {name} --root r"):
        load(name, "r")
    assert not cache_dir.exists()


def test_missing_imagenet_is_an_error_that_says_what_to_put_where(cache_dir: Path) -> None:
    with pytest.raises(UserError, match=r"register at https://image-net\.org.*/imagenet/train/<wn"):
        load("imagenet100")
    assert not cache_dir.exists()


def test_an_unknown_name_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(
        UserError, match=r"no data set and no folder 'cifar1O'; did you mean cifar10"
    ):
        load("cifar1O")
    with pytest.raises(UserError, match="no folder 'xyz'; choose from mini, cifar10, cifar100"):
        load("xyz")


def test_a_path_is_an_image_folder(tmp_path: Path) -> None:
    draw_classes(tmp_path / "pets", {"cat": 5, "dog": 5})
    assert load(tmp_path / "pets").name == load("pets").name == "pets"
    assert load("./pets", size=4).train.x.shape[2:] == (4, 4)


def test_a_path_to_an_official_folder_is_read_as_what_it_is(tmp_path: Path) -> None:
    write_all(tmp_path)
    for name in ("cifar10", "cifar100", "tiny"):
        assert load(tmp_path / folder_of(name)).name == name


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(UserError, match=r"photo\.jpg: not a folder; name one"):
        load("photo.jpg")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 300, "cannot be read (File name too long); make it readable or name another"),
        ("x/" * 3000, "cannot be read (File name too long)"),
        ("~nosuchuser/data", "there is no such user"),
        ("a\0b", "NUL"),
        ("", "the path is empty"),
    ],
)
def test_paths_that_cannot_be_are_errors_in_one_line(path: str, message: str) -> None:
    for act in (load, check, lambda root: find("cifar10", root), lambda root: load("tiny", root)):
        with pytest.raises(UserError) as error:
            act(path)  # type: ignore[operator]
        assert message in str(error.value)
        assert str(error.value).isprintable()
    with pytest.raises(UserError) as error:
        get("cifar10", path)
    assert str(error.value).isprintable()


def test_a_link_to_itself_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for act in (load, check):
        with pytest.raises(UserError, match=r"no data set and no folder '.*loop'"):
            act(tmp_path / "loop")
    assert find("cifar10", tmp_path / "loop") is None
    with pytest.raises(UserError, match=r"loop: .*; make it writable or choose another folder"):
        get("cifar10", tmp_path / "loop")


@pytest.mark.parametrize("variable", ["PEERLEARN_DATA", "PEERLEARN_CACHE"])
def test_so_are_those_of_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "~nosuchuser")
    with pytest.raises(UserError, match="~nosuchuser: there is no such user"):
        find("cifar10")


def test_a_folder_that_may_not_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_classes(tmp_path / "pets", {"cat": 5, "dog": 5})

    def closed(path: str) -> Any:
        if path.endswith("dog"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr("peerlearn.data.folders.os.scandir", closed)
    with pytest.raises(UserError, match=r"pets/dog: cannot be read \(Permission denied\); make"):
        load("pets")


def test_a_folder_of_many_folders_deep_is_read(tmp_path: Path) -> None:
    draw_classes(tmp_path / "pets", {"cat": 5, "dog": 5})
    deep = "pets/cat" + "/d" * 1200  # deeper than Python calls functions
    for end in range(len("pets/cat/d"), len(deep) + 1, 2):
        os.mkdir(deep[:end])
    try:
        assert len(load("pets").train) == 8
    finally:
        os.removedirs(deep)  # which pytest could not


def test_a_named_data_set_keeps_its_size() -> None:
    with pytest.raises(UserError, match="mini: images keep their size; leave out size 16"):
        load("mini", size=16)


def test_a_check_counts_images_per_class(tmp_path: Path) -> None:
    draw_classes(tmp_path / "pets", {"cat": 5, "dog": 10})
    report = check("pets")
    assert (report.train, report.test, report.size) == ((4, 8), (1, 2), (8, 8))
    assert str(report).splitlines()[0] == "pets: whole"
    assert "train    12, 4 to 8 per class" in str(report)
    last = str(report).splitlines()[-1]
    assert last == "note     no test/ folder: every fifth image of a class is for testing (3 of 15)"


def test_a_published_set_with_images_missing_is_not_whole(tmp_path: Path) -> None:
    write_all(tmp_path)
    for what in ("cifar10", tmp_path / "cifar-10-batches-py"):
        with pytest.raises(UserError, match="not whole: 10 training images of 50000; delete"):
            check(what, tmp_path)


def test_every_data_set_has_a_protocol() -> None:
    for name, source in DATASETS.items():
        protocol = source.protocol
        assert protocol.memories, name
        assert protocol.settings["stream.tasks"] > 1
        assert {key.partition(".")[0] for key in protocol.settings} <= {
            "collaboration",
            "net",
            "stream",
        }
        assert protocol.published == (name != "mini")


def test_a_protocol_may_differ_by_method() -> None:
    tiny = DATASETS["tiny"].protocol
    assert tiny.for_method("er") == tiny.settings
    assert tiny.for_method("onpro") == {**tiny.settings, "net.pool": "global"}


def test_data_sets_are_listed_and_found_without_torch_and_numpy() -> None:
    code = """
import sys
from peerlearn.data import DATASETS, find
import peerlearn.data.download
for name, source in DATASETS.items():
    assert DATASETS.summary(name) and source.protocol.memories
    find(name, "nowhere")
assert not {"torch", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
