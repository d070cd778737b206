"""Where data lies: the cache, the folders that are looked through, the files of the package.

Imports neither torch nor numpy.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from peerlearn.errors import UserError
from peerlearn.files import user_path

Progress = Callable[[int, int], None]  # done, all; images or bytes
SHEET = Path(__file__).parent / "mini.webp"


def cache_folder() -> Path:
    """Return where files are kept for later: $PEERLEARN_CACHE, else ~/.cache/peerlearn."""
    return user_path(os.environ.get("PEERLEARN_CACHE") or "~/.cache/peerlearn")


def places(root: str | PathLike[str] | None = None) -> list[Path]:
    """Return the folders in which named data sets are looked for, in order."""
    if root is not None:
        return [user_path(root)]
    chosen = os.environ.get("PEERLEARN_DATA")
    first = [user_path(chosen)] if chosen else []
    return [*first, Path("data"), cache_folder() / "data"]


def target(root: str | PathLike[str] | None = None) -> Path:
    """Return the folder into which data sets are downloaded."""
    usual = places(root)
    return usual[0] if usual[0] != Path("data") else usual[-1]


@contextmanager
def legible() -> Iterator[None]:
    """Say in one line what cannot be read: a name too long, a folder of somebody else's."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename}: cannot be read ({error.strerror}); "
            "make it readable or name another folder"
        ) from error


def imagenet100_classes() -> list[str]:
    """Return the ids of the 100 classes, sorted."""
    return sorted((Path(__file__).parent / "imagenet100.txt").read_text().split())
