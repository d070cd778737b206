"""Files that are replaced as a whole, and locks between processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


def replace_text(path: Path, text: str) -> None:
    """Give a file a new content; a crash leaves the old one whole."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Busy(Exception):  # noqa: N818
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Let one process at a time through; freed by the system when its holder ends, however it does.

    Without `wait`, raises `Busy` while another process holds it.
    """
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        raise Busy(path) from None
    try:
        yield
    finally:
        lock.release()
