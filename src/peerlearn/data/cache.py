"""Decoded images, kept on disk as one memory-mapped array per data set.

An array is named by its content: a digest of every file's bytes, of the wanted size and of the
decoder's version. Reading all bytes at every start would be slow, so a small note leads from what
the file system says of the files (path, length, times, inode) to that digest; a file that was
touched is read again, and decoded again only if its bytes differ.

An array is written beside its place and renamed, so it is whole or not there. One process builds
while the others wait for its lock. Rows are written one by one: memory stays small.
"""

import hashlib
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from peerlearn.data.places import cache_folder
from peerlearn.errors import UserError
from peerlearn.storage import locked

T = TypeVar("T")
Pixels = npt.NDArray[np.uint8]
Rows = tuple[int, int, Iterator[Pixels]]  # height, width, images (3, height, width)


def cached_images(key: str, count: int, rows: Callable[[], Rows]) -> Tensor:
    """Return the array named `key`, (count, 3, H, W) uint8, mapped from disk; make it if missing.

    `rows` is called only to make it. The tensor reads from the file when it is used. Do not write
    to it: the file never changes, but an array larger than memory is mapped read-only, and writing
    there ends the process.
    """
    folder = _made(cache_folder() / "images")
    path = folder / f"{key}.npy"
    if not _is_whole(path, count):
        with _cannot_write(folder), locked(folder / f"{key}.lock"):
            if not _is_whole(path, count):  # another process may have made it meanwhile
                _write(path, count, *rows())
    return _mapped(path)


def content_key(root: Path, files: Sequence[Path], settings: str) -> str:
    """Return a digest of the files' bytes and names below `root`, in order, and of `settings`."""
    folder = _made(cache_folder() / "images")
    names = [path.relative_to(root).as_posix() for path in files]
    seen = hashlib.sha256(f"{settings}\n{root.resolve()}\n".encode())
    for name, path in zip(names, files, strict=True):
        stat = _readable(path, Path.stat)
        facts = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        seen.update(f"{name}\0{facts}\n".encode(errors="surrogateescape"))
    note = folder / f"{seen.hexdigest()[:32]}.key"
    if note.is_file() and len(known := note.read_text()) == 32:
        return known
    content = hashlib.sha256(f"{settings}\n".encode())
    for name, path in zip(names, files, strict=True):
        content.update(f"{name}\0".encode(errors="surrogateescape"))
        content.update(hashlib.sha256(_readable(path, Path.read_bytes)).digest())
    key = content.hexdigest()[:32]
    with _cannot_write(folder):
        beside = note.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
        beside.write_text(key)
        beside.replace(note)
    return key


def _write(path: Path, count: int, height: int, width: int, images: Iterator[Pixels]) -> None:
    shape = (count, 3, height, width)
    needed, free = int(np.prod(shape)), shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"{path.parent}: decoded images need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB "
            "are free; make room or set PEERLEARN_CACHE to another folder"
        )
    beside = path.with_suffix(".part")
    try:
        with beside.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for image in images:  # written, not mapped: a full disk is then an error, not a signal
                file.write(image.tobytes())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _is_whole(path: Path, count: int) -> bool:
    """Whether the file is as long as its header says: a damaged disk or a copy may cut it."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    return len(array) == count


def _mapped(path: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(path, mmap_mode="c"))
    except OSError:  # a writable map counts against memory, and this one exceeds it
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
            return torch.from_numpy(np.load(path, mmap_mode="r"))


def _readable(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); replace the file or remove it"
        ) from error


def _made(folder: Path) -> Path:
    with _cannot_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _cannot_write(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written ({error.strerror}); "
            "make it writable or set PEERLEARN_CACHE to another folder"
        ) from error
