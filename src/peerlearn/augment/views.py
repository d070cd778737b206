"""The distillation chain: views of a batch, each harder than the one before."""

import torch
from torch import Tensor

from peerlearn.augment import AUGMENTATIONS, ops, randaugment
from peerlearn.augment.naming import Augment, Augmentation
from peerlearn.augment.strategies import to_levels
from peerlearn.settings import Settings, setting


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
    magnitude: int = setting(15, "strength of RandAugment (M)", ge=0, le=randaugment.MAX_MAGNITUDE)
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
            plan = randaugment.draw(self.ops, len(x) if self.per_sample else 1, rng)
            levels = randaugment.apply(levels, plan, self.magnitude)
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
    size = (x.shape[2], x.shape[3])
    boxes = ops.draw_boxes(len(x), size, rng, min_area=0.6, smaller=aligned)
    flips = ops.draw_mask(len(x), 0.5, rng)
    return ops.mirror(ops.resized_crop(x, boxes, aligned=aligned), flips)
