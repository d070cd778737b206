"""Decoded images, kept on disk as one memory-mapped array per data set.

An array is named by its content: a digest of every file's bytes, of the wanted size and of the
decoder's version. Reading all bytes at every start would be slow, so a small note leads from what
the file system says of the files (path, length, times, inode) to that digest; a file that was
touched is read again, and decoded again only if its bytes differ.

An array is written beside its place and renamed, so it is whole or not there. One process builds
while the others wait for its lock. Rows are written one by one: memory stays small. What a killed
process left half written is removed by the next one that builds.
"""

import hashlib
import logging
import os
import re
import shutil
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from peerlearn.data.places import cache_folder
from peerlearn.errors import UserError
from peerlearn.files import locked, replace_file

Pixels = npt.NDArray[np.uint8]
Rows = tuple[int, int, Iterator[Pixels]]  # height, width, images (3, height, width)
DEAD = 3600  # seconds after which a half-written file is nobody's


def cached_images(key: str, count: int, rows: Callable[[], Rows]) -> Tensor:
    """Return the array named `key`, (count, 3, H, W) uint8, mapped from disk; make it if missing.

    `rows` is called only to make it. The tensor reads from the file when it is used. Do not write
    to it: the file never changes, but an array larger than memory is mapped read-only, and writing
    there ends the process.
    """
    folder = _made(cache_folder() / "images")
    path = folder / f"{key}.npy"
    if not _is_whole(path, count):
        with _cannot_write(folder), locked(folder / f"{key}.lock", _waiting):
            if not _is_whole(path, count):  # another process may have made it meanwhile
                _remove_leftovers(folder)
                _write(path, count, *rows())
    return _mapped(path)


def cached_text(name: str, make: Callable[[], str], pattern: str = ".*") -> str:
    """Return the line of this name; make it if it is missing or does not match the pattern."""
    folder = _made(cache_folder() / "images")
    path = folder / name
    with suppress(OSError, UnicodeError):
        if re.fullmatch(pattern, known := path.read_text(encoding="utf-8")):
            return known
    text = make()
    with _cannot_write(folder), locked(folder / "texts.lock"):
        replace_file(path, text)
    return text


def as_tensor(array: npt.NDArray[Any]) -> Tensor:
    """Return a tensor on the same memory, which may be read-only; do not write to it then."""
    if min(array.strides, default=0) < 0:  # turned round, which tensors cannot be
        array = array.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return torch.from_numpy(array)


def content_key(root: Path, files: Sequence[Path], settings: str) -> str:
    """Return a digest of the files' bytes and names below `root`, in order, and of `settings`."""
    names = [os.fsencode(path.relative_to(root).as_posix()) for path in files]
    seen = hashlib.sha256(f"{settings}\n".encode() + os.fsencode(root.resolve()) + b"\n")
    for name, path in zip(names, files, strict=True):
        seen.update(name + f"\0{_facts(path)}\n".encode())

    def digest() -> str:
        content = hashlib.sha256(f"{settings}\n".encode())
        for name, path in zip(names, files, strict=True):
            content.update(name + b"\0" + _digest(path))
        return content.hexdigest()[:32]

    return cached_text(f"{seen.hexdigest()[:32]}.key", digest, "[0-9a-f]{32}")


def _facts(path: Path) -> tuple[int, ...]:
    """What the file system says of a file that tells one state of it from another."""
    with _readable(path):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe or a device has no end
        raise UserError(f"{path}: not a file; remove it")
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _digest(path: Path) -> bytes:
    with _readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _remove_leftovers(folder: Path) -> None:
    for part in folder.glob("*.part"):
        with suppress(OSError):  # somebody else was faster
            if time.time() - part.stat().st_mtime > DEAD:
                part.unlink()


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
    """Whether it is such an array, as long as it says: a damaged disk or a copy may cut it."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    return bool(array.dtype == np.uint8) and array.ndim == 4 and array.shape[:2] == (count, 3)


def _mapped(path: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(path, mmap_mode="c"))
    except OSError:  # a writable map counts against memory, and this one exceeds it
        return as_tensor(np.load(path, mmap_mode="r"))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); replace the file or remove it"
        ) from error


def _waiting() -> None:
    logging.getLogger(__name__).warning("another process decodes these images; waiting for it")


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
