"""The distillation chain: views of a batch, each harder than the one before."""

import torch
from torch import Tensor

from peerlearn.augment import ops, randaugment
from peerlearn.augment.strategies import AUGMENTATIONS, Augmentation
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

    >>> views = ViewChain(stages=3)(torch.rand(2, 3, 32, 32), torch.Generator())
    >>> len(views)
    4
    """

    stages: int = setting(3, "views after the image itself", ge=0, le=100)
    ops: int = setting(3, "operations of each RandAugment (N)", ge=0, le=100)
    magnitude: int = setting(15, "strength of RandAugment (M)", ge=0, le=randaugment.MAX_MAGNITUDE)
    per_sample: bool = setting(False, "draw RandAugment for each image, not once for the batch")
    first: Augmentation | None = setting(
        None, "augmentation of the first stage; none: resized crop and mirror"
    )

    def __call__(self, x: Tensor, rng: torch.Generator) -> list[Tensor]:
        """Return stages + 1 views, each float (B, 3, H, W) in [0, 1]; view 0 is x itself."""
        views = [x]
        if self.stages > 0:
            views.append(AUGMENTATIONS[self.first](x, rng) if self.first else crop_mirror(x, rng))
        # Levels stay whole from here on. Going through floats at each stage, as the authors do,
        # gives the same pixels: floor(255.999 * (k / 255)) is k for every level k.
        levels = views[-1].mul(255.999).clamp_(0, 255).byte() if self.stages > 1 else x
        for _ in range(1, self.stages):
            plan = randaugment.draw(self.ops, len(x) if self.per_sample else 1, rng)
            levels = randaugment.apply(levels, plan, self.magnitude)
            views.append(levels.to(x.dtype).div_(255))
        return views


def crop_mirror(x: Tensor, rng: torch.Generator) -> Tensor:
    """Resized crop of at least 0.6 of the area, mirror with chance 0.5. (B, 3, H, W)."""
    boxes = ops.draw_boxes(len(x), (x.shape[2], x.shape[3]), rng, min_area=0.6)
    flips = ops.draw_mask(len(x), 0.5, rng)
    return ops.mirror(ops.resized_crop(x, boxes), flips)
