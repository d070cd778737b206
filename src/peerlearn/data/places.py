"""Where data lies: the cache, the folders that are looked through, the files of the package.

Imports neither torch nor numpy.
"""

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path

Progress = Callable[[int, int], None]  # done, all; images or bytes
SHEET = Path(__file__).parent / "mini.webp"


def cache_folder() -> Path:
    """Return where files are kept for later: $PEERLEARN_CACHE, else ~/.cache/peerlearn."""
    chosen = os.environ.get("PEERLEARN_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "peerlearn"


def places(root: str | PathLike[str] | None = None) -> list[Path]:
    """Return the folders in which named data sets are looked for, in order."""
    if root is not None:
        return [Path(root).expanduser()]
    chosen = os.environ.get("PEERLEARN_DATA")
    first = [Path(chosen).expanduser()] if chosen else []
    return [*first, Path("data"), cache_folder() / "data"]


def target(root: str | PathLike[str] | None = None) -> Path:
    """Return the folder into which data sets are downloaded."""
    usual = places(root)
    return usual[0] if usual[0] != Path("data") else usual[-1]


def imagenet100_classes() -> list[str]:
    """Return the ids of the 100 classes, sorted."""
    return sorted((Path(__file__).parent / "imagenet100.txt").read_text().split())
