"""Images and labels as users give them: made uniform, or refused with what to do instead."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from peerlearn.data.levels import levels
from peerlearn.errors import UserError

MAX_CLASSES = 1_000_000
_KNOWN = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
          torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32,
          torch.float64}  # fmt: skip
Array = Tensor | np.ndarray[Any, Any]


def checked_images(x: Array, expected: tuple[int, ...] | None) -> Tensor:
    """Images as (B, 3, H, W) uint8; floats in [0, 1] are rounded to 256 levels.

    expected: (3, H, W) of the images so far, None before the first.
    """
    torch_words = isinstance(x, Tensor)
    x = _tensor(x, "images")
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise UserError(f"images: dtype must be uint8, or float in [0, 1]; got {_dtype(x)}")
    if x.ndim != 4:
        grey = f"grey images are x[:, None]{_THRICE[torch_words]}"
        hint = grey if x.ndim == 3 else "reshape them"
        if x.ndim == 3 and 3 in (x.shape[0], x.shape[2]):
            hint = "a single image is x[None]"
        raise UserError(
            f"images: shape must be (batch, 3, height, width), got {tuple(x.shape)}; {hint}"
        )
    if x.shape[0] == 0:
        raise UserError("images: the batch is empty; leave out batches without images")
    if x.shape[1] != 3:
        hint = _channels(x, torch_words)
        raise UserError(f"images: need 3 channels, got shape {tuple(x.shape)}; {hint}")
    if expected is not None and tuple(x.shape[1:]) != expected:
        raise UserError(
            f"images: this learner's images have shape {expected}, got {tuple(x.shape[1:])}; "
            "resize them first"
        )
    if 0 in x.shape:
        raise UserError(f"images: shape {tuple(x.shape)} has no pixels")
    if x.dtype == torch.uint8:
        return x
    try:
        return levels(x)
    except UserError as error:
        raise UserError(f"images: {error}") from None


def checked_labels(y: Array, count: int, num_classes: int) -> Tensor:
    """Labels as (count,) int64 on the CPU, each from 0 to num_classes - 1."""
    if isinstance(y, np.ndarray) and y.dtype.kind in "USO":
        raise UserError(
            f"labels: are {y.dtype}, not whole numbers; number the classes: "
            "names, y = numpy.unique(labels, return_inverse=True)"
        )
    y = _tensor(y, "labels")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise UserError(f"labels: dtype must be of whole numbers, got {_dtype(y)}")
    if tuple(y.shape) != (count,):
        hint = "; of one-hot rows take y.argmax(1)" if y.ndim == 2 and y.shape[0] == count else ""
        raise UserError(
            f"labels: shape must be ({count},) to match images, got {tuple(y.shape)}{hint}"
        )
    y = y.cpu().long()
    low, high = int(y.min()), int(y.max())
    if low < 0:
        raise UserError(f"labels: {low} is negative; labels count from 0")
    if high >= MAX_CLASSES:
        raise UserError(
            f"labels: {high} is out of range; there can be {MAX_CLASSES} classes: number them "
            "from 0 on"
        )
    if high >= num_classes:
        raise UserError(
            f"labels: {high} is out of range; the head has {num_classes} classes, 0 to "
            f"{num_classes - 1}: build the learner with num_classes={high + 1} or more"
        )
    return y


def _tensor(value: Array, what: str) -> Tensor:
    if isinstance(value, Tensor):
        plain = value.layout == torch.strided and value.device.type != "meta"
        if not plain or value.is_quantized or value.is_nested or value.dtype not in _KNOWN:
            raise UserError(f"{what}: need a plain tensor of bytes, whole numbers or floats")
        return value.detach()
    if isinstance(value, np.ndarray) and value.dtype != object:
        try:
            whole = np.ascontiguousarray(value)
            return torch.from_numpy(whole if whole.flags.writeable else whole.copy())
        except (TypeError, ValueError) as error:
            raise UserError(f"{what}: dtype {value.dtype} is not supported; convert it") from error
    hint = "; take numpy.asarray(...)" if isinstance(value, list | tuple) else ""
    raise UserError(f"{what}: need a torch tensor or numpy array, got {type(value).__name__}{hint}")


_THRICE = {True: ".repeat(1, 3, 1, 1)", False: ".repeat(3, axis=1)"}  # in torch, in numpy
_FORWARD = {True: "x.permute(0, 3, 1, 2)", False: "x.transpose(0, 3, 1, 2)"}


def _channels(x: Tensor, torch_words: bool) -> str:
    """What to do with (B, ?, H, W) images whose second size is not 3."""
    forward, thrice = _FORWARD[torch_words], _THRICE[torch_words]
    if x.shape[3] in (3, 4) and x.shape[1] not in (1, 4):
        alpha = "" if x.shape[3] == 3 else ", and drop alpha, x[:, :3]"
        return f"move the channels forward, {forward}{alpha}"
    if x.shape[1] == 4:
        return "drop the alpha channel, x[:, :3]"
    if x.shape[1] == 1:
        return f"repeat grey images three times, x{thrice}"
    if x.shape[3] == 1:
        return f"repeat grey images three times, {forward}{thrice}"
    return "choose three of them"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
