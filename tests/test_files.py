"""Files that are replaced whole, logs, locks and paths."""

import errno
import fcntl
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from peerlearn.errors import UserError
from peerlearn.files import Log, locked, replace_file, user_path, write_file

PROCESSES = multiprocessing.get_context("fork")


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    replace_file(tmp_path / "a", "one")
    replace_file(tmp_path / "a", b"two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "two")]


def test_what_stands_where_a_draft_is_written_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("old")
    (tmp_path / ".a.new").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / ".b.new")
    for name in ("a", "b"):
        replace_file(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new"
        assert not (tmp_path / name).is_symlink()
    assert (tmp_path / "precious").read_text() == "old"


def test_writes_that_the_system_cuts_short_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:3]))
    write_file(tmp_path / "a", "a longer text")
    assert (tmp_path / "a").read_text() == "a longer text"


def test_a_log_grows_and_knows_its_size(tmp_path: Path) -> None:
    for line in ("one", "two"):
        with Log(tmp_path / "log") as log:
            log.add(line)
            size = log.flush()
    assert (tmp_path / "log").read_text() == "one\ntwo\n"
    assert size == 8


def write_often(path: Path, content: str) -> None:
    for _ in range(200):
        replace_file(path, content, shared=True)


def test_several_processes_may_replace_a_file_that_they_share(tmp_path: Path) -> None:
    path, contents = tmp_path / "a", ["a" * 5000, "b" * 5000]
    many = [PROCESSES.Process(target=write_often, args=(path, text)) for text in contents]
    for process in many:
        process.start()
    for process in many:
        process.join()
    assert [process.exitcode for process in many] == [0, 0]
    assert path.read_text() in contents
    assert [found.name for found in tmp_path.iterdir()] == ["a"]


def hold(path: Path, seconds: float) -> None:
    with locked(path):
        path.with_suffix(".held").touch()
        time.sleep(seconds)
        path.with_suffix(".freed").touch()


def test_who_waits_is_told_once(tmp_path: Path) -> None:
    path, told = tmp_path / "lock", []
    process = PROCESSES.Process(target=hold, args=(path, 0.5))
    process.start()
    while not path.with_suffix(".held").exists():
        time.sleep(0.01)
    with locked(path, lambda: told.append(1)):
        assert path.with_suffix(".freed").exists()
    assert told == [1]
    with locked(path, lambda: told.append(2)):
        assert told == [1]
    process.join()


def test_a_lock_whose_holder_was_killed_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = PROCESSES.Process(target=hold, args=(path, 60))
    process.start()
    while not path.with_suffix(".held").exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    with locked(path, lambda: pytest.fail("it is held")):
        pass


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK])
def test_a_lock_that_fails_is_not_one_that_is_held(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with (
        pytest.raises(OSError, match=os.strerror(number)),
        locked(tmp_path / "lock", lambda: pytest.fail("it is held")),
    ):
        pass


@pytest.mark.parametrize(
    ("typed", "says"),
    [("", "is empty"), ("a\0b", r"a\\x00b: .*NUL"), ("~nosuchuser/a", "no such user")],
)
def test_paths_that_cannot_be(typed: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        user_path(typed)


def test_a_home_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert user_path("~/a") == Path("/somewhere/a")
    assert user_path(Path("a/b")) == Path("a/b")
