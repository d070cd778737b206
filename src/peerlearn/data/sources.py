"""Data sets by name: where they are looked for, how they are read, how they are got."""

import difflib
import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from peerlearn.data.cache import Progress, cache_folder
from peerlearn.data.cifar import cifar10, cifar100
from peerlearn.data.embedded import SHEET, mini
from peerlearn.data.folders import (
    TINY,
    image_folder,
    imagenet100,
    imagenet100_classes,
    tiny_imagenet,
)
from peerlearn.data.images import Dataset
from peerlearn.errors import UserError


class Source(NamedTuple):
    """A data set that has a name."""

    summary: str
    read: Callable[[Path, Progress | None], Dataset]
    folders: tuple[str, ...]  # its folder has one of these names ...
    is_at: Callable[[Path], bool]  # ... or is recognised by what is in it
    train: int | None  # images, if published
    test: int | None
    by_hand: str = ""  # what to do where `peerlearn data get` cannot; {root}: where to put it


SOURCES: dict[str, Source] = {
    "mini": Source(
        summary="10 classes of 32 x 32, real CIFAR-10 images; comes with the package",
        read=lambda _folder, _progress: mini(),
        folders=(),
        is_at=lambda _folder: False,
        train=3_000,
        test=1_000,
        by_hand="it comes with the package: use it without getting it",
    ),
    "cifar10": Source(
        summary="10 classes of 32 x 32",
        read=lambda folder, _progress: cifar10(folder),
        folders=("cifar-10-batches-py",),
        is_at=lambda folder: (folder / "batches.meta").is_file(),
        train=50_000,
        test=10_000,
    ),
    "cifar100": Source(
        summary="100 classes of 32 x 32",
        read=lambda folder, _progress: cifar100(folder),
        folders=("cifar-100-python",),
        is_at=lambda folder: (folder / "meta").is_file() and (folder / "train").is_file(),
        train=50_000,
        test=10_000,
    ),
    "tiny": Source(
        summary="Tiny-ImageNet: 200 classes of 64 x 64",
        read=tiny_imagenet,
        folders=(TINY,),
        is_at=lambda folder: (folder / "wnids.txt").is_file(),
        train=100_000,
        test=10_000,
    ),
    "imagenet100": Source(
        summary="100 classes of ImageNet, resized to 224 x 224",
        read=imagenet100,
        folders=("imagenet100", "imagenet"),
        is_at=lambda folder: (folder / "train" / imagenet100_classes()[0]).is_dir(),
        train=None,
        test=5_000,
        by_hand="its licence forbids a download: register at https://image-net.org/download.php, "
        "get ILSVRC2012 and lay it out as {root}/imagenet/train/<wnid>/*.JPEG and "
        "{root}/imagenet/val/<wnid>/*.JPEG (the classes in peerlearn/data/imagenet100.txt do)",
    ),
}


def load(
    data: str | PathLike[str],
    root: str | PathLike[str] | None = None,
    *,
    size: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read a data set by its name, or an image folder by its path.

    Named sets are looked for in `root` if it is given, else in $PEERLEARN_DATA, ./data and the
    cache folder. `size` resizes an image folder (see `image_folder`). `progress(done, all)` is
    called while images are decoded for the first time.

    >>> load("mini").train.num_classes
    10
    """
    source = SOURCES.get(str(data))
    if source is None:
        return _load_folder(Path(data).expanduser(), size, progress)
    if size is not None:
        raise UserError(f"{data}: images keep their size; leave out size {size}")
    return source.read(where(str(data), root), progress)


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


def find(name: str, root: str | PathLike[str] | None = None) -> Path | None:
    """Return the folder (for `mini`, the file) of a named data set, or None if it is not there."""
    source = known(name)
    if name == "mini":
        return SHEET
    for place in places(root):
        for folder in (place / name for name in source.folders):
            if folder.is_dir():
                return folder
        if source.is_at(place):
            return place
    return None


def where(name: str, root: str | PathLike[str] | None = None) -> Path:
    """Return the folder of a named data set; an error says how to get it."""
    found = find(name, root)
    if found is None:
        looked = " or ".join(str(place) for place in places(root))
        option = f" --root {root}" if root else ""
        how = known(name).by_hand.format(root=target(root)) or (
            f"run: peerlearn data get {name}{option}, or put {known(name).folders[0]} there"
        )
        raise UserError(f"{name}: not found in {looked}; {how}")
    return found


def known(name: str) -> Source:
    """Return the source of this name; an error names the nearest one."""
    if name in SOURCES:
        return SOURCES[name]
    near = difflib.get_close_matches(name, SOURCES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(SOURCES)}"
    raise UserError(f"no data set and no folder {name!r}; {hint}")


def _load_folder(path: Path, size: int | None, progress: Progress | None) -> Dataset:
    if not path.is_dir():
        if path.exists():
            raise UserError(f"{path}: not a folder; name one with a folder of images per class")
        known(str(path))
    for name in ("cifar10", "cifar100", "tiny"):  # their folders have a layout of their own
        if SOURCES[name].is_at(path) and size is None:
            return SOURCES[name].read(path, progress)
    return image_folder(path, size, progress)
