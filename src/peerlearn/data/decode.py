"""Image files to pixels, with Pillow."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from peerlearn.data.cache import Pixels, Rows
from peerlearn.data.places import Progress
from peerlearn.errors import UserError

DECODER = "pillow, bilinear, 1"  # part of every cache key: change it when pixels change
SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
MIXED = 64  # pixels: the size of images that differ in size, if none is asked for
CHUNK = 256  # images in memory at once


def decode(files: Sequence[Path], size: int | None, progress: Progress | None = None) -> Rows:
    """Return height, width and the decoded files, each (3, height, width), in order."""
    height, width = (size, size) if size else common_size(files)
    return height, width, _decoded(files, height, width, progress)


def common_size(files: Sequence[Path]) -> tuple[int, int]:
    """Return the (height, width) of the files if all agree, else 64 by 64."""
    first = image_size(files[0])
    return first if all(image_size(path) == first for path in files[1:]) else (MIXED, MIXED)


def image_size(path: Path) -> tuple[int, int]:
    """Return (height, width) from the head of the file."""
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except Exception as error:  # a damaged file may raise anything
        raise _unreadable(path, error) from error


def read_image(path: Path, height: int, width: int) -> Pixels:
    """Return the pixels of one file, (3, height, width)."""
    try:
        with Image.open(path) as image:
            return pixels_of(image, height, width)
    except Exception as error:  # a damaged file may raise anything
        raise _unreadable(path, error) from error


def pixels_of(image: Image.Image, height: int, width: int) -> Pixels:
    """Return (3, height, width): three channels, resized whole, without cropping or turning."""
    if image.mode.startswith("I;16"):  # Pillow would cut 16 bits off at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    rgb = image.convert("RGB")
    if rgb.size != (width, height):
        rgb = rgb.resize((width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def _decoded(
    files: Sequence[Path], height: int, width: int, progress: Progress | None
) -> Iterator[Pixels]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes without the GIL
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            yield from pool.map(lambda path: read_image(path, height, width), chunk)
            if progress:
                progress(start + len(chunk), len(files))


def _unreadable(path: Path, error: Exception) -> UserError:
    why = " ".join(str(error).replace(f" {str(path)!r}", "").split()) or type(error).__name__
    return UserError(f"{path}: not a readable image ({why}); replace the file or remove it")
