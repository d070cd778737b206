"""The distillation chain: views of a batch, each harder than the one before."""

from dataclasses import dataclass

import torch
from torch import Tensor

from peerlearn.augment import ops, randaugment
from peerlearn.errors import UserError


@dataclass(frozen=True)
class ViewChain:
    """Image, resized crop and mirror of it, RandAugment of that, RandAugment of that, ...

    >>> views = ViewChain(stages=3)(torch.rand(2, 3, 32, 32), torch.Generator())
    >>> len(views)
    4
    """

    stages: int = 3  # views after the image itself
    ops: int = 3  # operations in each RandAugment, the paper's N
    magnitude: int = 15  # of RandAugment, the paper's M
    per_sample: bool = False  # operations drawn for each image, not once for the batch

    def __post_init__(self) -> None:
        if self.stages < 0:
            raise UserError(f"ViewChain: stages is {self.stages}; it must be 0 or more")
        if self.ops < 0:
            raise UserError(f"ViewChain: ops is {self.ops}; it must be 0 or more")
        if not 0 <= self.magnitude <= randaugment.MAX_MAGNITUDE:
            raise UserError(
                f"ViewChain: magnitude is {self.magnitude}; "
                f"it must be from 0 to {randaugment.MAX_MAGNITUDE}"
            )

    def __call__(self, x: Tensor, rng: torch.Generator) -> list[Tensor]:
        """Return stages + 1 views, each float (B, 3, H, W) in [0, 1]; view 0 is x itself."""
        views = [x]
        if self.stages > 0:
            views.append(_crop_and_mirror(x, rng))
        # Levels stay whole from here on. Going through floats at each stage, as the authors do,
        # gives the same pixels: floor(255.999 * (k / 255)) is k for every level k.
        levels = views[-1].mul(255.999).clamp_(0, 255).byte() if self.stages > 1 else x
        for _ in range(1, self.stages):
            plan = randaugment.draw(self.ops, len(x) if self.per_sample else 1, rng)
            levels = randaugment.apply(levels, plan, self.magnitude)
            views.append(levels.to(x.dtype).div_(255))
        return views


def _crop_and_mirror(x: Tensor, rng: torch.Generator) -> Tensor:
    boxes = ops.draw_boxes(len(x), (x.shape[2], x.shape[3]), rng, min_area=0.6)
    flips = ops.draw_mask(len(x), 0.5, rng)
    return ops.mirror(ops.resized_crop(x, boxes), flips)
