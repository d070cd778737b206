"""Files: written whole or not at all, appended to, locked; read within bounds; paths as typed.

Others may have written what is read: JSON is bounded before it is believed. Every byte of a
checkpoint and of a run's folder is written by the functions of this module, one call of the system
after the other, so that a test can stop at any of them.
"""

import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from peerlearn.errors import UserError

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would turn line ends around
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | _BINARY  # opening a pipe would wait for a writer
MOST_BYTES = 1 << 26  # of a file of JSON
DEEPEST = 32  # levels of nesting
LARGEST = 10**300  # whole numbers beyond it have no float
_SIMPLE = {str, float, bool, type(None)}  # kinds of values in which nothing can go wrong


class Unreadable(ValueError):  # noqa: N818
    """A document cannot be taken; says why in a few words."""


def replace_file(path: Path, content: bytes | str, *, shared: bool = False) -> None:
    """Give a file a new content; a crash at any moment leaves the old one whole.

    shared: whether several processes may do so at once; the last one wins.
    """
    own = f"{secrets.token_hex(4)}." if shared else ""  # else a crash leaves one draft at most
    draft = path.with_name(f".{path.name}.{own}new")
    write_file(draft, content)
    os.replace(draft, path)
    flush_folder(path.parent)


def write_file(path: Path, content: bytes | str) -> None:
    """Write a new file and wait until it is on the disk; others may read it as the umask says.

    Whatever has its name, also a pipe or a link, is removed and not written to.
    """
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    try:
        _write_all(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk; Windows cannot be asked."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Log:
    """A file to which lines are added; use it in a `with`.

    Args:
        path: of the file, made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def add(self, line: str) -> None:
        """Add a line."""
        try:
            _write_all(self._handle, f"{line}\n")
        except OSError as error:  # which does not know the file
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def flush(self) -> int:
        """Wait until all lines are on the disk; how many bytes they are."""
        os.fsync(self._handle)
        return os.fstat(self._handle).st_size


def _write_all(handle: int, content: bytes | str) -> None:
    rest = memoryview(content.encode() if isinstance(content, str) else content)
    while rest:
        rest = rest[os.write(handle, rest) :]


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Let one process at a time through; freed by the system when its holder ends, however it does.

    waiting: called once if another process holds it, before waiting for that one; it may raise.
    """
    lock = FileLock(path, fallback_to_soft=False)  # a soft one would outlive its holder
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def user_path(typed: str | PathLike[str]) -> Path:
    """A path as a person gives it; `~` is a home folder.

    >>> user_path("")
    Traceback (most recent call last):
    peerlearn.errors.UserError: the path is empty; name a file or a folder
    """
    text = os.fspath(typed)
    if not text:
        raise UserError("the path is empty; name a file or a folder")
    if "\0" in text:
        raise UserError(f"{text}: a path cannot hold the character NUL; leave it out")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: there is no such user; write the folder out") from None


# ---- reading


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a plain file of at most so many bytes."""
    return read_bytes(path, most).decode()


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The content of a plain file; a pipe or a device could be without end."""
    handle = os.open(path, os.O_RDONLY | _AT_ONCE)
    with open(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise Unreadable("is not a plain file")
        if most is not None and facts.st_size > most:
            raise Unreadable(f"is over {most} bytes long")
        return file.read(most)


def bytes_if_readable(path: Path) -> bytes:
    """Return the content of a plain file, or no bytes; the caller compares a digest anyway."""
    try:
        return read_bytes(path)
    except (OSError, Unreadable, MemoryError):
        return b""


def from_json(text: str) -> Any:
    """The value of a JSON text."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"is not JSON ({error})") from None
    check_bounds(content)
    return content


def check_bounds(content: Any) -> None:
    """Refuse what later code would stumble over: deep nesting, numbers without end."""
    level = [content]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value, *value.values()]
            elif isinstance(value, list | tuple | set):
                # rows of a matrix, of which there are many, are not looked at number by number
                kinds = set(map(type, value))
                if kinds == {int}:
                    _refuse_large(max(value), min(value))
                elif not kinds <= _SIMPLE:
                    inner += value
            elif isinstance(value, int):
                _refuse_large(value)
        if not inner:
            return
        level = inner
    raise Unreadable("is nested too deeply")


def _refuse_large(*values: int) -> None:
    if max(map(abs, values)) >= LARGEST:
        raise Unreadable("holds a number of over 300 digits")
