"""Pixels between 0 and 1 as the 256 levels that images are kept in."""

import torch
from torch import Tensor

from peerlearn.errors import UserError


def levels(x: Tensor) -> Tensor:
    """Floats in [0, 1], rounded to uint8; all others are refused.

    >>> levels(torch.tensor([0.0, 0.5, 1.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    if not torch.isfinite(x).all():
        raise UserError("some pixels are NaN or infinite; drop or repair those images")
    low, high = float(x.min()), float(x.max())
    if low < 0 or high > 1:
        raise UserError(
            f"float pixels must lie in [0, 1], got {low:g} to {high:g}; divide by 255, or pass "
            "uint8, and leave normalisation to the network"
        )
    return x.mul(255).round_().to(torch.uint8)
