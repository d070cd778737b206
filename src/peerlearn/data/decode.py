"""Image files to pixels, with Pillow."""

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others may run programs
MAX_PIXELS = 1 << 26  # of one image; more are a mistake or an attack
MAX_SIZE = 4096  # pixels that may be asked for
MIXED = 64  # pixels: the size of images that differ in size, if none is asked for
CHUNK = 256  # images in memory at once ...
CHUNK_BYTES = 1 << 27  # ... if they are small

Size = tuple[int, int]  # height, width


def check_size(where: str, size: int | None) -> None:
    """Refuse a size that cannot be meant."""
    if size is not None and not 1 <= size <= MAX_SIZE:
        raise UserError(
            f"{where}: size must be from 1 to {MAX_SIZE}, not {size}; leave it out to keep theirs"
        )


def decode(files: Sequence[Path], size: int | None, progress: Progress | None = None) -> Rows:
    """Return height, width and the decoded files, each (3, height, width), in order."""
    height, width = (size, size) if size else common_size(image_sizes(files))
    return height, width, _decoded(files, height, width, progress)


def image_sizes(files: Sequence[Path]) -> list[Size]:
    """Return the size of each file from its head."""
    with _quiet():
        return [_size(path) for path in files]


def common_size(sizes: Sequence[Size]) -> Size:
    """Return the size if all agree, else 64 by 64."""
    return sizes[0] if len(set(sizes)) == 1 else (MIXED, MIXED)


def size_note(names: Sequence[str], sizes: Sequence[Size]) -> str:
    """Say that images differ in size, and what became of them; "" if all agree.

    >>> size_note(["a.png", "b.png", "c.png"], [(32, 32), (30, 40), (32, 32)])  # doctest: +ELLIPSIS
    'b.png is 40 x 30, most are 32 x 32: all became 64 x 64; another size: ...'
    """
    (most, count), *others = Counter(sizes).most_common()
    if not others:
        return ""
    odd = [(name, size) for name, size in zip(names, sizes, strict=True) if size != most]
    if count > len(odd):
        more = f" and {len(odd) - 1} more differ too" if len(odd) > 1 else ""
        found = f"{odd[0][0]} is {_form(odd[0][1])}{more}, most are {_form(most)}"
    else:
        found = f"images differ in size, such as {_form(most)} and {_form(others[0][0])}"
    return f"{found}: all became {MIXED} x {MIXED}; another size: --image-size N, size=N in Python"


def read_image(path: Path, height: int, width: int) -> Pixels:
    """Return the pixels of one file, (3, height, width)."""
    with opened(path) as image:
        return pixels_of(image, height, width)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open a file of a known format; whatever goes wrong with it within is said with its name."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            yield image
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except Image.DecompressionBombError as error:
        raise UserError(
            f"{path}: over {MAX_PIXELS / 1e6:.0f} million pixels; make it smaller or remove it"
        ) from error
    except Exception as error:  # a damaged file may raise anything
        why = " ".join(str(error).replace(f" {str(path)!r}", "").split()) or type(error).__name__
        raise UserError(
            f"{path}: not a readable image ({why}); replace the file or remove it"
        ) from error


def pixels_of(image: Image.Image, height: int, width: int) -> Pixels:
    """Return (3, height, width): three channels, resized whole, without cropping or turning."""
    if image.mode.startswith("I;16"):  # Pillow would cut 16 bits off at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise UserError("pixels of 32 bits have no known range; save the image with 8 bits")
    rgb = image.convert("RGB")
    if rgb.size != (width, height):
        rgb = rgb.resize((width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def _decoded(
    files: Sequence[Path], height: int, width: int, progress: Progress | None
) -> Iterator[Pixels]:
    at_once = min(CHUNK, max(1, CHUNK_BYTES // (3 * height * width)))
    with _quiet(), ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes without the GIL
        for start in range(0, len(files), at_once):
            chunk = files[start : start + at_once]
            yield from pool.map(lambda path: read_image(path, height, width), chunk)
            if progress:
                progress(start + len(chunk), len(files))


def _size(path: Path) -> Size:
    with opened(path) as image:
        return image.height, image.width


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Pillow's warnings of large or odd files from the user: an error or nothing will do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _form(size: Size) -> str:
    height, width = size
    return f"{width} x {height}"
