"""The augmentations of the baselines: images (B, 3, H, W) in, new images out.

Parameters differ from image to image unless a docstring says otherwise.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from peerlearn.augment import ops

Augment = Callable[[Tensor, torch.Generator], Tensor]

Augmentation = Literal["full", "crop_flip", "crop_flip_shared"]  # by name, see AUGMENTATIONS

PAD = 4  # pixels of black around an image before it is cropped back to its size


def crop_flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Crop with chance 0.5, then mirror with chance 0.5 (the paper's words). (B, C, H, W).

    >>> crop_flip(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    corners = ops.draw_corners(len(x), PAD, rng)
    corners[ops.draw_mask(len(x), 0.5, rng)] = PAD  # the corner that crops nothing
    flips = ops.draw_mask(len(x), 0.5, rng)
    return ops.mirror(ops.crop(x, corners, pad=PAD), flips)


def crop_flip_shared(x: Tensor, rng: torch.Generator) -> Tensor:
    """Crop always, all images alike, then mirror with chance 0.5 (the authors' code).

    Shape (B, C, H, W).

    >>> crop_flip_shared(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    corners = ops.draw_corners(1, PAD, rng)
    flips = ops.draw_mask(len(x), 0.5, rng)
    return ops.mirror(ops.crop(x, corners, pad=PAD), flips)


def full(x: Tensor, rng: torch.Generator) -> Tensor:
    """Resized crop from a fifth of the area, mirror, colour jitter, grey. (B, 3, H, W).

    >>> full(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.2)
    flips = ops.draw_mask(len(x), 0.5, rng)
    jitter = ops.draw_jitter(len(x), rng)
    greys = ops.draw_mask(len(x), 0.2, rng)
    x = ops.mirror(ops.resized_crop(x, boxes), flips)
    return ops.greyscale(ops.jitter(x, jitter), greys)


def crop_grey_mirrored(x: Tensor, rng: torch.Generator) -> Tensor:
    """Resized crop and grey, then all of it again mirrored: (B, 3, H, W) to (2 * B, 3, H, W).

    Labels are repeated to match: torch.cat([y, y]).

    >>> crop_grey_mirrored(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([4, 3, 32, 32])
    """
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.6)
    greys = ops.draw_mask(len(x), 0.2, rng)
    x = ops.greyscale(ops.resized_crop(x, boxes), greys)
    return torch.cat([x, x.flip(3)])


def flip_grey_crop(x: Tensor, rng: torch.Generator) -> Tensor:
    """Mirror, grey, and a resized crop that may look beyond its box. (B, 3, H, W).

    >>> flip_grey_crop(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    flips = ops.draw_mask(len(x), 0.5, rng)
    greys = ops.draw_mask(len(x), 0.25, rng)
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.3)
    x = ops.greyscale(ops.mirror(x, flips), greys)
    return ops.resized_crop(x, boxes, clamp_to_box=False)


def _size(x: Tensor) -> tuple[int, int]:
    return x.shape[2], x.shape[3]


AUGMENTATIONS: dict[Augmentation, Augment] = {
    "full": full,
    "crop_flip": crop_flip,
    "crop_flip_shared": crop_flip_shared,
}
