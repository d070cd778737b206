"""Batched image operations: draw the parameters on the CPU, then apply them on any device.

Images are floats in [0, 1] of shape (B, C, H, W). A `draw_*` function takes a CPU generator and
returns small CPU tensors. The caller moves all that it drew to the images at once; whatever applies
it is exact and leaves its input untouched, unless its name ends in an underscore. One row of
parameters per image, or one row for the whole batch.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


def draw_rows(count: int, chance: float, rng: torch.Generator) -> Tensor:
    """Choose each of `count` images with probability `chance`. Returns their numbers, (K,).

    They are counted on the CPU: no wait for a device.
    """
    return (torch.rand(count, generator=rng) < chance).nonzero().squeeze(1)


def on_rows_(x: Tensor, rows: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the chosen images in place. x: (B, C, H, W); rows: their numbers, (K,)."""
    return x.index_copy_(0, rows, change(x[rows])) if len(rows) else x


# ---- moving pixels ----


def mirror_(x: Tensor, rows: Tensor) -> Tensor:
    """Swap left and right of the chosen images, in place. x: (B, C, H, W); rows: (K,)."""
    return on_rows_(x, rows, lambda chosen: chosen.flip(3))


def draw_corners(count: int, pad: int, rng: torch.Generator) -> Tensor:
    """Draw (count, 2) rows of (top, left), each from 0 to 2 * pad."""
    return torch.randint(2 * pad + 1, (count, 2), generator=rng)


def crop(x: Tensor, corners: Tensor, *, pad: int) -> Tensor:
    """Cut (H, W) from each zero-padded image.

    x: (B, C, H, W); corners: (B, 2), or (1, 2) for one offset for all, from 0 to 2 * pad. The
    corner (pad, pad) gives the image itself.
    """
    b, c, h, w = x.shape
    rows = corners[:, 0, None] + torch.arange(h, device=x.device)  # (B or 1, H)
    cols = corners[:, 1, None] + torch.arange(w, device=x.device)  # (B or 1, W)
    wide = w + 2 * pad
    index = (rows[:, :, None] * wide + cols[:, None, :]).view(-1, 1, h * w)
    padded = F.pad(x, (pad, pad, pad, pad)).flatten(2)
    return padded.gather(2, index.expand(b, c, -1)).view(x.shape)


class Boxes(NamedTuple):
    """Where to crop: whole pixels, each field (B,)."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


ASPECT = (3 / 4, 4 / 3)  # width over height of a box, log-uniform
ATTEMPTS = 10


def draw_boxes(
    count: int,
    size: tuple[int, int],
    rng: torch.Generator,
    *,
    min_area: float,
    smaller: bool = False,
) -> Boxes:
    """Draw `count` boxes within an image of `size` (H, W).

    A box covers a fraction of the area, uniform from `min_area` to 1, with an aspect ratio
    log-uniform in `ASPECT`. The first of ten attempts that fits is taken; if none fits, the
    largest centred box of permitted aspect. With `smaller`, as kornia draws them, a box fits
    only if it is lower and narrower than the image; if none is, the largest box of the widest
    aspect is taken, anywhere.
    """
    h, w = size
    shape = (count, ATTEMPTS)
    area = h * w * torch.empty(shape).uniform_(min_area, 1, generator=rng)
    low, high = (math.log(ratio) for ratio in ASPECT)
    aspect = torch.empty(shape).uniform_(low, high, generator=rng).exp_()
    # One more column for the fallback, which without `smaller` is the whole image unless that
    # is too slim.
    fallback = ASPECT[1] if smaller else min(max(w / h, ASPECT[0]), ASPECT[1])
    heights, widths = (area / aspect).sqrt_(), (area * aspect).sqrt_()
    heights = F.pad(heights.round_().long(), (0, 1), value=round(min(h, w / fallback)))
    widths = F.pad(widths.round_().long(), (0, 1), value=round(min(w, h * fallback)))

    most_high, most_wide = (h - 1, w - 1) if smaller else (h, w)
    fits = (heights > 0) & (heights <= most_high) & (widths > 0) & (widths <= most_wide)
    fits[:, ATTEMPTS] = True
    first = fits.byte().argmax(1, keepdim=True)  # of equal values, the first
    height, width = heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1)

    spare = torch.stack([h - height, w - width])  # (2, B)
    corner = (torch.rand(2, count, generator=rng) * (spare + 1)).long().minimum(spare)
    if not smaller:
        corner = torch.where(first.squeeze(1) == ATTEMPTS, spare // 2, corner)
    top, left = corner
    return Boxes(top, left, height, width)


def resized_crop(
    x: Tensor, boxes: Boxes, *, clamp_to_box: bool = True, aligned: bool = False
) -> Tensor:
    """Enlarge each box to the full image, bilinearly. x: (B, C, H, W).

    Pixels half outside the box repeat its edge, as if the crop had been cut out first; with
    `clamp_to_box=False` they use what lies beside the box, up to the edge of the image. With
    `aligned` the centres of the corner pixels of box and image coincide, and no pixel is outside.
    """
    down = _interpolation(boxes.top, boxes.height, x, 2, clamp_to_box, aligned)  # (B, H, H)
    across = _interpolation(boxes.left, boxes.width, x, 3, clamp_to_box, aligned)  # (B, W, W)
    b, c, h, w = x.shape
    x = torch.bmm(x.reshape(b, c * h, w), across.mT).view(b, c, h, w)
    return down[:, None] @ x


def _interpolation(
    start: Tensor, length: Tensor, x: Tensor, dim: int, clamp: bool, aligned: bool
) -> Tensor:
    """Weights (B, N, N) of each input row (last axis) in each output row of axis `dim` of x."""
    n = x.shape[dim]
    start, length = start.to(x.dtype)[:, None], length.to(x.dtype)[:, None]
    grid = torch.arange(n, device=x.device, dtype=x.dtype)
    if aligned:
        position = start + grid * ((length - 1) / max(n - 1, 1))  # (B, N)
    else:
        position = start + (grid + 0.5) * (length / n) - 0.5
    if clamp:
        position = torch.minimum(torch.maximum(position, start), start + length - 1)
    else:
        position = position.clamp_(0, n - 1)
    return (position[:, :, None] - grid).abs_().neg_().add_(1).clamp_(min=0)


# ---- changing colours ----


def grey(x: Tensor) -> Tensor:
    """Return the luma of RGB images. x: (B, 3, H, W); returns (B, 1, H, W)."""
    r, g, b = x.split(1, dim=1)
    return torch.mul(r, 0.299).add_(g, alpha=0.587).add_(b, alpha=0.114)


def greyscale_(x: Tensor, rows: Tensor) -> Tensor:
    """Take the colour out of the chosen images, in place. x: (B, 3, H, W); rows: (K,)."""
    return on_rows_(x, rows, lambda chosen: grey(chosen).expand_as(chosen))


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with black. x: (B, 3, H, W); factor: (B,), 1 changes nothing."""
    return (x * factor[:, None, None, None]).clamp_(0, 1)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image's mean grey. x: (B, 3, H, W); factor: (B,), 1 changes nothing."""
    factor = factor[:, None, None, None]
    mean = grey(x).mean((2, 3), keepdim=True)
    return torch.addcmul(mean * (1 - factor), x, factor).clamp_(0, 1)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the greyscale image. x: (B, 3, H, W); factor: (B,), 1 changes nothing."""
    factor = factor[:, None, None, None]
    return torch.addcmul(grey(x).mul_(1 - factor), x, factor).clamp_(0, 1)


def hue(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue of HSV, keeping saturation and value. x: (B, 3, H, W); turns: (B,)."""
    r, g, b = x.unbind(1)
    high = torch.maximum(torch.maximum(r, g), b)
    chroma = high - torch.minimum(torch.minimum(r, g), b)
    # The hue in sixths of a turn: red 0, green 2, blue 4. Grey pixels get 0; chroma 0 hides it. A
    # weight of 0 or 1 lets lerp choose, in an eighth of the time of torch.where.
    is_red, is_green = (torch.eq(high, own, out=torch.empty_like(high)) for own in (r, g))
    sixths = (r - g).add_(chroma, alpha=4).lerp_((b - r).add_(chroma, alpha=2), is_green)
    sixths = sixths.lerp_(g - b, is_red).div_(chroma.clamp(min=1e-12))
    sixths = sixths.add_(6 * turns[:, None, None])
    sixths = sixths.sub_(sixths.div(6).floor_(), alpha=6)  # from 0 to 6, as remainder_ gives
    # A channel is full within one sixth of its own hue and empty beyond two; with d the
    # distance not taken round the circle, that level is clamp(|d - 3| - 1, 0, 1).
    own = torch.arange(0, 6, 2, device=x.device, dtype=x.dtype)[:, None, None]
    level = (sixths[:, None] - own).abs_().sub_(3).abs_().clamp_(1, 2)
    floor = high.sub_(chroma, alpha=2)  # the level runs from 1 to 2 here: one pass less
    return level.mul_(chroma[:, None]).add_(floor[:, None]).clamp_(0, 1)


ADJUSTMENTS = (brightness, contrast, saturation, hue)


class Jitter(NamedTuple):
    """A colour jitter: which images, (K,); how much of each adjustment, (4, K); in which order."""

    rows: Tensor
    amounts: Tensor
    order: list[int]


def draw_jitter(count: int, rng: torch.Generator, *, chance: float = 0.8) -> Jitter:
    """Draw three factors from 0.6 to 1.4 and a turn of the hue from -0.1 to 0.1 per image.

    One order of the four adjustments holds for the whole batch.
    """
    rows = draw_rows(count, chance, rng)
    amounts = torch.empty(4, count).uniform_(-1, 1, generator=rng)
    amounts = amounts * torch.tensor([[0.4], [0.4], [0.4], [0.1]])
    amounts[:3] += 1
    return Jitter(rows, amounts[:, rows], torch.randperm(4, generator=rng).tolist())


def jitter_(x: Tensor, how: Jitter) -> Tensor:
    """Apply a drawn colour jitter in place. x: (B, 3, H, W)."""
    amounts = how.amounts.to(x.dtype)

    def adjust(chosen: Tensor) -> Tensor:
        for i in how.order:
            chosen = ADJUSTMENTS[i](chosen, amounts[i])
        return chosen

    return on_rows_(x, how.rows, adjust)
