"""Images as people have them, made what a learner takes."""

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from peerlearn.data.decode import (
    MAX_PIXELS,
    Size,
    check_size,
    common_size,
    image_sizes,
    opened,
    pixels_of,
)
from peerlearn.data.levels import levels
from peerlearn.errors import UserError

CHANNELS = (1, 3, 4)  # grey, colours, colours with alpha
NARROW = 4  # pixels: a last size up to this one is taken for channels, not for a width
_DEEP = re.compile(";16[BLN]")  # in what Pillow says of a file that it has not read yet
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Array = Tensor | npt.NDArray[Any]
Picture = Array | Image.Image | str | Path
Pictures = Picture | Sequence[Picture]  # a sequence is a list or a tuple
Source = Tensor | Image.Image | Path  # what is left of an item: a tensor is (B, 3, H, W) uint8


def pictures(images: Pictures, size: Size | None) -> Tensor:
    """Images as (B, 3, H, W) uint8, whatever they come as.

    images: a tensor or array, a PIL image, the path of a file, or a list or tuple of those, mixed
        at will.
    size: height and width of the result. None: theirs if all agree, else 64 by 64.

    - Shapes: a batch is (B, C, H, W), (B, H, W, C) or grey (B, H, W); an image is (H, W, C) or
      (H, W). C is 1, 3 or 4. An item of a list is one image, which may be (C, H, W) too, or a
      batch with channels.
    - Channels: (B, 3, H, W) always means itself, as (3, H, W) does in a list. Otherwise a last
      size up to 4 is channels, not a width. What can still be read in two ways is refused, such
      as (B, 1, H, 3), and outside of lists (3, H, W) and (4, H, W): one image, or grey ones?
    - Colours: grey is repeated three times; alpha is left out, the colours below it stay.
    - Values: uint8; floats in [0, 1], rounded to 256 levels; bool, where True is white; 16 bits,
      also of PIL images and files, of which the upper 8 stay. Where no value exceeds 255 it may be
      8 bits that are meant: refused, unless all is black. Of colours with 16 bits Pillow shows the
      upper 8 alone: files are refused where these are black.
    - Sizes: an image of another size is resized whole, bilinear, by Pillow: nothing is cut off or
      turned, height and width may scale differently.
    - Files: the formats and the most pixels that `image_folder` takes; links are followed. Of
      several frames the first is taken, of a PIL image the present one.

    A (B, 3, H, W) uint8 tensor of the right size is returned as it is; such an array shares its
    memory. One tensor that needs no resizing stays on its device; all else comes to the CPU.

    >>> grey = np.zeros((28, 28), np.uint8)
    >>> pictures(grey, None).shape
    torch.Size([1, 3, 28, 28])
    >>> pictures([grey, torch.rand(3, 40, 30), Image.new("RGBA", (50, 50))], size=(32, 32)).shape
    torch.Size([3, 3, 32, 32])
    >>> pictures(torch.rand(3, 32, 32), None)
    Traceback (most recent call last):
    peerlearn.errors.UserError: images: shape (3, 32, 32) may be one image or 3 grey ones; \
give x[None] for one image, x[:, None] for grey ones
    """
    if isinstance(images, Tensor) and _is_ready(images, size):
        return images
    in_list = isinstance(images, list | tuple)
    items: Sequence[Any] = images if isinstance(images, list | tuple) else [images]
    if not items:
        raise UserError("images: the list is empty; leave out batches without images")
    names = [f"images[{i}]" if in_list else "images" for i in range(len(items))]
    sources, sizes = [], []
    for name, item in zip(names, items, strict=True):
        with _named(name):
            sources.append(_source(item, in_list))
            sizes.append(_size(sources[-1]))
    height, width = common_size(sizes) if size is None else _checked(size)
    parts = []
    for name, source in zip(names, sources, strict=True):
        with _named(name):
            parts.append(_pixels(source, height, width))
    return parts[0] if len(parts) == 1 else torch.cat([part.cpu() for part in parts])


def _is_ready(x: Tensor, size: Size | None) -> bool:
    ready = _is_plain(x) and x.dtype == torch.uint8 and x.ndim == 4 and x.shape[1] == 3
    return ready and x.numel() > 0 and size in (None, tuple(x.shape[2:]))


def _is_plain(x: Tensor) -> bool:
    return not x.is_nested and x.layout == torch.strided and x.device.type != "meta"


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _checked(size: Size) -> Size:
    match size:
        case int(height), int(width):
            check_size("images", height)
            check_size("images", width)
            return height, width
    raise UserError(f"images: size must be (height, width) in pixels, not {size!r:.60}")


def _source(item: Any, in_list: bool) -> Source:
    """The item, refused if it is certain already that it gives no image."""
    match item:
        case Tensor() | np.ndarray():
            return _rgb(_tensor(item), in_list)
        case Image.Image():
            if item.width * item.height > MAX_PIXELS:
                raise UserError(f"over {MAX_PIXELS / 1e6:.0f} million pixels; make it smaller")
            return item
        case str() | Path():
            path = Path(item)
            if not os.path.isfile(path):  # a pipe or a device has no end
                why = "not a file" if os.path.exists(path) else "no such file"
                raise UserError(f"{path}: {why}; name an image file")
            return path
    hint = "; take numpy.asarray(...)" if isinstance(item, list | tuple) else ""
    raise UserError(
        "need a torch tensor, a numpy array, a PIL image or the path of a file, "
        f"got {type(item).__name__}{hint}"
    )


def _size(source: Source) -> Size:
    if isinstance(source, Path):
        (size,) = image_sizes([source])
    elif isinstance(source, Tensor):
        size = (source.shape[2], source.shape[3])
    else:
        size = (source.height, source.width)
    if 0 in size:
        raise UserError(f"{size[1]} x {size[0]} has no pixels; leave this image out")
    return size


def _pixels(source: Source, height: int, width: int) -> Tensor:
    """(B, 3, height, width); B is 1 but of tensors."""
    if isinstance(source, Tensor):
        if source.shape[2:] == (height, width):
            return source
        rows = source.cpu().permute(0, 2, 3, 1).contiguous().numpy()
        resized = [pixels_of(Image.fromarray(row), height, width) for row in rows]
        return torch.from_numpy(np.stack(resized))
    with warnings.catch_warnings(action="ignore"):  # of odd files: an error or nothing will do
        if isinstance(source, Path):
            with opened(source) as image:
                return _pixels_of_image(image, height, width)
        try:
            return _pixels_of_image(source, height, width)
        except UserError:
            raise
        except Exception as error:  # it may read a damaged file only now
            why = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"not a readable image ({why}); replace it or leave it out") from error


def _pixels_of_image(image: Image.Image, height: int, width: int) -> Tensor:
    deep = _DEEP.search(str(getattr(image, "tile", "")))
    if image.mode.startswith("I;16"):
        _check_depth(int(np.asarray(image).max()))
    elif deep and image.convert("RGB").getbbox() is None:  # nothing but zeros
        raise UserError(
            "pixels of 16 bits are 0 in the upper 8, and may mean 8 bits or 16; save the image "
            "with 8 bits"
        )
    return torch.from_numpy(pixels_of(image, height, width))[None]


def _tensor(x: Array) -> Tensor:
    if isinstance(x, Tensor):
        if not _is_plain(x):
            raise UserError("need a plain tensor with values in it; try x.to_dense()")
        return x.detach()
    try:
        native = x.dtype.newbyteorder("=")
        return torch.from_numpy(np.require(x, native, ["C", "A", "W"]))  # as tensors must be
    except (TypeError, ValueError) as error:
        hint = "; paths go in a list, x.tolist()" if x.dtype.kind in "UO" else ""
        raise UserError(
            f"dtype {x.dtype} cannot be pixels; give uint8, or float in [0, 1]{hint}"
        ) from error


def _rgb(x: Tensor, in_list: bool) -> Tensor:
    if 0 in x.shape:
        raise UserError(f"shape {tuple(x.shape)} has no pixels; leave out what is empty")
    x = _channels_first(x, in_list)
    return _levels(x[:, :3]).expand(-1, 3, -1, -1).contiguous()


def _channels_first(x: Tensor, in_list: bool) -> Tensor:
    """(B, C, H, W) of what has a shape that can be read in one way only."""
    shape = tuple(x.shape)
    if x.ndim == 2:
        return x[None, None]
    if x.ndim == 3:
        x = x[None] if in_list else _batch(x)
    if x.ndim == 4:
        first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
        if x.shape[1] == 3 or (first and not last):
            return x
        if first and last:
            raise UserError(
                f"shape {shape} may have its channels first or last; give (batch, 3, height, width)"
            )
        if last:
            return x.permute(0, 3, 1, 2)
    hint = "; grey images are x[:, None]" if len(shape) == 3 and in_list else ""
    raise UserError(
        f"shape {shape} is not that of images; give (batch, channels, height, width) or "
        f"(batch, height, width, channels), with 1, 3 or 4 channels{hint}"
    )


def _batch(x: Tensor) -> Tensor:
    """(B, 1, H, W) of grey images (B, H, W); (1, H, W, C) of one image (H, W, C)."""
    if x.shape[0] in (3, 4):
        raise UserError(
            f"shape {tuple(x.shape)} may be one image or {x.shape[0]} grey ones; "
            "give x[None] for one image, x[:, None] for grey ones"
        )
    return x[None] if x.shape[2] <= NARROW else x[:, None]


def _levels(x: Tensor) -> Tensor:
    """Pixels as uint8."""
    if x.dtype == torch.uint8:
        return x
    if x.dtype == torch.bool:
        return x.to(torch.uint8).mul_(255)
    if x.dtype == torch.uint16:
        _check_depth(int(x.int().max()))
        return (x.int() >> 8).to(torch.uint8)
    if x.dtype not in FLOATS:
        name = str(x.dtype).removeprefix("torch.")
        raise UserError(
            f"dtype must be uint8, bool, uint16 or float in [0, 1], got {name}; "
            "if they run from 0 to 255, make them uint8"
        )
    return levels(x)


def _check_depth(high: int) -> None:
    """Refuse 16 bits that may be 8. high: the largest value."""
    if 0 < high < 256:
        raise UserError(
            f"uint16 pixels up to {high} may mean 8 bits or 16; make them uint8, shifted by 8 bits "
            "if they have 16"
        )
