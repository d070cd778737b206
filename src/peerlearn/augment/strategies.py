"""The augmentations of the baselines and the views of CCL-DC: images (B, 3, H, W) in, new ones out.

Parameters differ from image to image unless a docstring says otherwise. Those under
`@augmentation` can be named in a command: `--augment crop_flip`.
"""

from typing import Annotated

import torch
from torch import Tensor

from peerlearn.augment import AUGMENTATIONS, ops
from peerlearn.augment.naming import Augment, Augmentation, augmentation
from peerlearn.augment.randaugment import MAX_MAGNITUDE, apply, draw, to_levels
from peerlearn.devices import moved
from peerlearn.settings import Settings, about, setting

PAD = 4  # pixels of black around an image before it is cropped back to its size


@augmentation
def none(x: Tensor, rng: torch.Generator) -> Tensor:  # noqa: ARG001
    """Leave the images as they are.

    Shape (B, C, H, W).

    >>> none(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    return x


@augmentation
def crop_flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Crop with chance 0.5, then mirror with chance 0.5 (the paper's words). (B, C, H, W).

    >>> crop_flip(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    corners = ops.draw_corners(len(x), PAD, rng)
    corners[ops.draw_rows(len(x), 0.5, rng)] = PAD  # the corner that crops nothing
    flips = ops.draw_rows(len(x), 0.5, rng)
    corners, flips = moved((corners, flips), x.device)
    return ops.mirror_(ops.crop(x, corners, pad=PAD), flips)


@augmentation
def crop_flip_shared(x: Tensor, rng: torch.Generator) -> Tensor:
    """Crop always, all images alike, then mirror with chance 0.5 (the authors' code).

    Shape (B, C, H, W).

    >>> crop_flip_shared(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    corners = ops.draw_corners(1, PAD, rng)
    flips = ops.draw_rows(len(x), 0.5, rng)
    corners, flips = moved((corners, flips), x.device)
    return ops.mirror_(ops.crop(x, corners, pad=PAD), flips)


@augmentation
def full(x: Tensor, rng: torch.Generator) -> Tensor:
    """Resized crop from a fifth of the area, mirror, colour jitter, grey. (B, 3, H, W).

    >>> full(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    return _full(x, rng, aligned=False)


@augmentation
def full_aligned(x: Tensor, rng: torch.Generator) -> Tensor:
    """The full augmentation with the authors' resized crop: aligned corners, smaller boxes.

    Shape (B, 3, H, W).

    >>> full_aligned(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    return _full(x, rng, aligned=True)


def _full(x: Tensor, rng: torch.Generator, *, aligned: bool) -> Tensor:
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.2, smaller=aligned)
    flips = ops.draw_rows(len(x), 0.5, rng)
    jitter = ops.draw_jitter(len(x), rng)
    greys = ops.draw_rows(len(x), 0.2, rng)
    boxes, flips, jitter, greys = moved((boxes, flips, jitter, greys), x.device)
    x = ops.mirror_(ops.resized_crop(x, boxes, aligned=aligned), flips)
    return ops.greyscale_(ops.jitter_(x, jitter), greys)


@augmentation
def randaugment(
    x: Tensor,
    rng: torch.Generator,
    *,
    randaugment_n: Annotated[int, about("operations in a row (N)", ge=0, le=100)] = 1,
    randaugment_m: Annotated[int, about("magnitude (M)", ge=0, le=MAX_MAGNITUDE)] = 14,
) -> Tensor:
    """RandAugment: n operations of magnitude m, drawn for each image. (B, 3, H, W).

    Cubuk et al., 2020, https://arxiv.org/abs/1909.13719

    >>> randaugment(torch.rand(2, 3, 32, 32), torch.Generator(), randaugment_n=2).shape
    torch.Size([2, 3, 32, 32])
    """
    plan = draw(randaugment_n, len(x), rng)
    return apply(to_levels(x), plan, randaugment_m).to(x.dtype).div_(255)


def crop_grey_mirrored(x: Tensor, rng: torch.Generator, *, aligned: bool = False) -> Tensor:
    """Resized crop and grey, then all of it again mirrored: (B, 3, H, W) to (2 * B, 3, H, W).

    Labels are repeated to match: torch.cat([y, y]). aligned: crop as the authors' code does, with
    aligned corners, from boxes smaller than the image.

    >>> crop_grey_mirrored(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([4, 3, 32, 32])
    """
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.6, smaller=aligned)
    greys = ops.draw_rows(len(x), 0.2, rng)
    boxes, greys = moved((boxes, greys), x.device)
    x = ops.greyscale_(ops.resized_crop(x, boxes, aligned=aligned), greys)
    return torch.cat([x, x.flip(3)])


def flip_grey_crop(x: Tensor, rng: torch.Generator) -> Tensor:
    """Mirror, grey, and a resized crop that may look beyond its box. (B, 3, H, W).

    >>> flip_grey_crop(torch.rand(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    flips = ops.draw_rows(len(x), 0.5, rng)
    greys = ops.draw_rows(len(x), 0.25, rng)
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.3)
    flips, greys, boxes = moved((flips, greys, boxes), x.device)
    x = ops.greyscale_(ops.mirror_(x.clone(), flips), greys)
    return ops.resized_crop(x, boxes, clamp_to_box=False)


class ViewChain(Settings):
    """Image, resized crop and mirror of it, RandAugment of that, RandAugment of that, ...

    The distillation chain of CCL-DC: Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600;
    RandAugment: Cubuk et al., 2020, https://arxiv.org/abs/1909.13719

    Args:
        stages: views after the image itself.
        ops: operations of each RandAugment (N).
        magnitude: strength of RandAugment (M), to 30.
        per_sample: draw RandAugment for each image, not once for the batch.
        first: by name, the augmentation of the first stage in place of resized crop and mirror.
        aligned: crop as the authors' code does, with aligned corners, from boxes smaller than the
            image.

    >>> views = ViewChain(stages=3)(torch.rand(2, 3, 32, 32), torch.Generator())
    >>> len(views)
    4
    """

    stages: int = setting(3, "views after the image itself", ge=0, le=100)
    ops: int = setting(3, "operations of each RandAugment (N)", ge=0, le=100)
    magnitude: int = setting(15, "strength of RandAugment (M)", ge=0, le=MAX_MAGNITUDE)
    per_sample: bool = setting(False, "draw RandAugment for each image, not once for the batch")
    first: Augmentation | None = setting(
        None,
        "augmentation of the first stage, with its default settings, in place of resized crop and "
        "mirror",
    )
    aligned: bool = setting(
        False, "resized crop with aligned corners, from boxes smaller than the image (authors)"
    )

    def __call__(self, x: Tensor, rng: torch.Generator) -> list[Tensor]:
        """Return stages + 1 views, each float (B, 3, H, W) in [0, 1]; view 0 is x itself."""
        views = [x]
        if self.stages > 0:
            views.append(self._first_view(x, rng))
        # Levels stay whole from here on. Going through floats at each stage, as the authors do,
        # gives the same pixels: floor(255.999 * (k / 255)) is k for every level k.
        levels = to_levels(views[-1]) if self.stages > 1 else x
        for _ in range(1, self.stages):
            plan = draw(self.ops, len(x) if self.per_sample else 1, rng)
            levels = apply(levels, plan, self.magnitude)
            views.append(levels.to(x.dtype).div_(255))
        return views

    def _first_view(self, x: Tensor, rng: torch.Generator) -> Tensor:
        if self.first:
            first: Augment = AUGMENTATIONS[self.first]
            return first(x, rng)
        return crop_mirror(x, rng, aligned=self.aligned)


def crop_mirror(x: Tensor, rng: torch.Generator, *, aligned: bool = False) -> Tensor:
    """Resized crop of at least 0.6 of the area, mirror with chance 0.5. (B, 3, H, W).

    aligned: crop as the authors' code does: aligned corners, boxes smaller than the image.
    """
    boxes = ops.draw_boxes(len(x), _size(x), rng, min_area=0.6, smaller=aligned)
    flips = ops.draw_rows(len(x), 0.5, rng)
    boxes, flips = moved((boxes, flips), x.device)
    return ops.mirror_(ops.resized_crop(x, boxes, aligned=aligned), flips)


def _size(x: Tensor) -> tuple[int, int]:
    return x.shape[2], x.shape[3]
