"""Pixels between 0 and 1 as the 256 levels that images are kept in."""

import torch
from torch import Tensor

from peerlearn.errors import UserError

ROUNDING = 1e-6  # by which scaled pixels may miss 0 or 1; far less than half a level


def levels(x: Tensor) -> Tensor:
    """Floats in [0, 1], or a rounding beyond, as the nearest of uint8; all others are refused.

    >>> levels(torch.tensor([0.0, 0.5, 1.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    if not torch.isfinite(x).all():
        raise UserError("some pixels are NaN or infinite; drop or repair those images")
    low, high = float(x.min()), float(x.max())
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise UserError(
            f"float pixels must lie in [0, 1], got {low:.8g} to {high:.8g}; divide by 255, or "
            "pass uint8, and leave normalisation to the network"
        )
    return x.mul(255).round_().to(torch.uint8)
