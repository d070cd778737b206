"""RandAugment(n, m): n operations in a row, drawn from fourteen, all of magnitude m of 30.

Images are uint8 of shape (B, 3, H, W), on any device. Colour operations give what Pillow gives,
to the last bit. Geometric ones take the nearest pixel and fill with black: the centre of an
output pixel is mapped back into the input, in float64, and the pixel it falls into is copied.
Draw first, then apply; one draw per batch, or one per image, shows in the shape.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from peerlearn.devices import moved

MAX_MAGNITUDE = 30  # the scale has 31 steps, from 0


def to_levels(x: Tensor) -> Tensor:
    """Return images in [0, 1] as whole levels of 255, uint8.

    Like the authors, it rounds down; for every level k, k / 255 becomes k again.
    """
    return x.mul(255.999).clamp_(0, 255).byte()


# ---- moving pixels ----

Affine = tuple[float, float, float, float, float, float]


def affine(x: Tensor, inverse: Affine) -> Tensor:
    """Copy to (x, y) the pixel at (a x + b y + c, d x + e y + f), or black. (B, C, H, W)."""
    index, inside = _sources(x.shape[2], x.shape[3], inverse, x.device)
    flat = x.flatten(2)
    return flat.gather(2, index.expand_as(flat)).mul_(inside).view(x.shape)


@lru_cache(maxsize=64)  # a run uses ten on a device: five operations, two signs
def _sources(
    height: int, width: int, inverse: Affine, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Where each output pixel comes from, (H * W,), and whether that is inside, as 0 or 1.

    Computed on the CPU, as not every device has float64.
    """
    a, b, c, d, e, f = inverse
    x = torch.arange(width, dtype=torch.float64) + 0.5
    y = torch.arange(height, dtype=torch.float64)[:, None] + 0.5
    cols = (a * x + b * y + c).floor_().long()
    rows = (d * x + e * y + f).floor_().long()
    inside = (cols >= 0) & (cols < width) & (rows >= 0) & (rows < height)
    index = (rows * width + cols).mul_(inside)
    return moved((index.flatten(), inside.byte().flatten()), device)


def shear_x(x: Tensor, slope: float) -> Tensor:
    """Push rows to the left by `slope` pixels per row, the top edge staying. (B, C, H, W)."""
    return affine(x, (1.0, slope, 0.0, 0.0, 1.0, 0.0))


def shear_y(x: Tensor, slope: float) -> Tensor:
    """Push columns up by `slope` pixels per column, the left edge staying. (B, C, H, W)."""
    return affine(x, (1.0, 0.0, 0.0, slope, 1.0, 0.0))


def translate_x(x: Tensor, pixels: int) -> Tensor:
    """Move to the right by `pixels`, or to the left if negative. (B, C, H, W)."""
    return affine(x, (1.0, 0.0, -pixels, 0.0, 1.0, 0.0))


def translate_y(x: Tensor, pixels: int) -> Tensor:
    """Move down by `pixels`, or up if negative. (B, C, H, W)."""
    return affine(x, (1.0, 0.0, 0.0, 0.0, 1.0, -pixels))


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Turn counter-clockwise about the centre of the image. (B, C, H, W)."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    mid_x, mid_y = x.shape[3] / 2, x.shape[2] / 2
    back_x = mid_x - cos * mid_x + sin * mid_y  # so that the centre stays where it is
    back_y = mid_y - sin * mid_x - cos * mid_y
    return affine(x, (cos, -sin, back_x, sin, cos, back_y))


# ---- changing colours ----


def blend(base: Tensor, x: Tensor, factor: float) -> Tensor:
    """Go from `base` (factor 0) to x (factor 1) and beyond. base: float32 levels; x: uint8.

    Cut to 0..255, then truncated. The order of the arithmetic is Pillow's: another one would
    now and then land on the other side of a whole number.
    """
    return (x - base).mul_(factor).add_(base).clamp_(0, 255).byte()


def grey(x: Tensor) -> Tensor:
    """Return the luma of RGB images, in whole levels. uint8 (B, 3, H, W) to float (B, 1, H, W)."""
    r, g, b = x.int().split(1, dim=1)
    luma = torch.mul(r, 19595).add_(g, alpha=38470).add_(b, alpha=7471)  # weights of 2**16 in all
    return luma.add_(1 << 15).bitwise_right_shift_(16).float()


def brightness(x: Tensor, factor: float) -> Tensor:
    """Blend with black. (B, 3, H, W)."""
    return blend(torch.zeros((), device=x.device), x, factor)


def color(x: Tensor, factor: float) -> Tensor:
    """Blend with the grey image. (B, 3, H, W)."""
    return blend(grey(x), x, factor)


def contrast(x: Tensor, factor: float) -> Tensor:
    """Blend with the image's mean grey, rounded to a whole level. (B, 3, H, W)."""
    mean = grey(x).mean((2, 3), keepdim=True, dtype=torch.float64)
    return blend(mean.add_(0.5).floor_().float(), x, factor)


def sharpness(x: Tensor, factor: float) -> Tensor:
    """Blend with a smoothed image, 3 x 3, the middle counting five times. (B, 3, H, W).

    The border stays as it is.
    """
    smooth = x.float()
    if min(x.shape[2:]) >= 3:
        middle = smooth[:, :, 1:-1, 1:-1]
        rows = smooth[:, :, :-2] + smooth[:, :, 1:-1] + smooth[:, :, 2:]
        total = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:]).add_(middle, alpha=4)
        middle.copy_(total.div_(13).round_())  # thirteenths are never halves
    return blend(smooth, x, factor)


def posterize(x: Tensor, bits: int) -> Tensor:
    """Keep the highest `bits` of each value, 0 to 8. (B, 3, H, W)."""
    return x & (256 - (1 << (8 - bits)))


def solarize(x: Tensor, threshold: float) -> Tensor:
    """Invert the values at or above `threshold`, which may lie between levels. (B, 3, H, W)."""
    return x ^ (x >= math.ceil(threshold)).byte().mul_(255)  # v ^ 255 is 255 - v


def autocontrast(x: Tensor) -> Tensor:
    """Stretch each channel of each image to 0..255; a flat channel stays. (B, 3, H, W)."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    flat = high == low
    full = torch.full((), 255.0, dtype=torch.float64, device=x.device)
    # Not 255.0 / span: PyTorch multiplies by 1 / span there, and rounds twice.
    scale = full / (high - low).masked_fill_(flat, 255)
    offset = (low.double() * -scale).masked_fill_(flat, 0.0)
    return (x * scale).add_(offset).clamp_(0, 255).byte()


def equalize(x: Tensor) -> Tensor:
    """Even out the histogram of each channel of each image; a flat channel stays. (B, 3, H, W)."""
    level = x.flatten(2).flatten(0, 1).long()  # (B * 3, H * W)
    count = torch.zeros(len(level), 256, dtype=torch.int32, device=x.device)
    count.scatter_add_(1, level, count.new_ones(()).expand_as(level))
    brightest = count.gather(1, level.amax(1, keepdim=True))
    step = (level.shape[1] - brightest) // 255
    below = count.cumsum(1, dtype=torch.int32) - count  # pixels darker than each level
    table = ((below + step // 2) // step.clamp(min=1)).clamp_(max=255)
    table = torch.where(step == 0, torch.arange(256, device=x.device), table)
    return table.byte().gather(1, level).view(x.shape)


# ---- the fourteen, by magnitude and sign ----


def _factor(magnitude: int, sign: int) -> float:
    return 1 + sign * 0.9 * magnitude / 30


def _pixels(size: int, magnitude: int, sign: int) -> int:
    return sign * (5 * size * magnitude // 331)  # 150/331 of the side at 30, truncated


Operation = Callable[[Tensor, int, int], Tensor]

OPERATIONS: dict[str, Operation] = {
    "Identity": lambda x, _m, _s: x,
    "ShearX": lambda x, m, s: shear_x(x, s * m / 100),
    "ShearY": lambda x, m, s: shear_y(x, s * m / 100),
    "TranslateX": lambda x, m, s: translate_x(x, _pixels(x.shape[3], m, s)),
    "TranslateY": lambda x, m, s: translate_y(x, _pixels(x.shape[2], m, s)),
    "Rotate": lambda x, m, s: rotate(x, s * m),
    "Brightness": lambda x, m, s: brightness(x, _factor(m, s)),
    "Color": lambda x, m, s: color(x, _factor(m, s)),
    "Contrast": lambda x, m, s: contrast(x, _factor(m, s)),
    "Sharpness": lambda x, m, s: sharpness(x, _factor(m, s)),
    "Posterize": lambda x, m, _s: posterize(x, 8 - round(4 * m / 30)),
    "Solarize": lambda x, m, _s: solarize(x, 255 * (30 - m) / 30),
    "AutoContrast": lambda x, _m, _s: autocontrast(x),
    "Equalize": lambda x, _m, _s: equalize(x),
}
"""Name to function of (images, magnitude 0..30, sign 1 or -1)."""

_IN_ORDER = tuple(OPERATIONS.values())


class Plan(NamedTuple):
    """What to apply, row by row: each (n, 1), shared by the batch, or (n, B), one per image."""

    operations: Tensor  # positions in OPERATIONS
    signs: Tensor  # 1 or -1; the last four and Identity do not look at it


def draw(n: int, columns: int, rng: torch.Generator) -> Plan:
    """Draw n operations and signs for each of `columns`: 1 for a whole batch, or its size B."""
    operations = torch.randint(len(OPERATIONS), (n, columns), generator=rng)
    signs = 1 - 2 * torch.randint(2, (n, columns), generator=rng)
    return Plan(operations, signs)


def apply(x: Tensor, plan: Plan, magnitude: int) -> Tensor:
    """Apply a drawn plan to uint8 images (B, 3, H, W), operation after operation."""
    for operations, signs in zip(*plan, strict=True):
        if len(operations) == 1:
            x = _IN_ORDER[int(operations)](x, magnitude, int(signs))
        else:
            x = _apply_by_kind(x, operations, signs, magnitude)
    return x


def _apply_by_kind(x: Tensor, operations: Tensor, signs: Tensor, magnitude: int) -> Tensor:
    """One operation per image: those that share operation and sign go together."""
    out = torch.empty_like(x)
    kinds = 2 * operations + (signs > 0)  # (B,)
    present, counts = kinds.unique(return_counts=True)
    by_kind = moved(kinds.argsort(stable=True), x.device).split(counts.tolist())
    for kind, rows in zip(present.tolist(), by_kind, strict=True):
        out[rows] = _IN_ORDER[kind // 2](x[rows], magnitude, 1 if kind % 2 else -1)
    return out
