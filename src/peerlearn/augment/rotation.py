"""Sixteen variants of each image, every one a class of its own (OCM, OnPro)."""

import torch
from torch import Tensor

from peerlearn.errors import UserError


def rot16(x: Tensor) -> Tensor:
    """Turn halves and wholes: (B, C, N, N) to (16 * B, C, N, N), variant v of image i at v * B + i.

    Variants 0 to 3 turn neither half, the left, both, the right by 180 degrees, each half in its
    place. Then come the same four, turned as a whole by 180, 90 and 270 degrees, counter-clockwise.

    >>> rot16(torch.rand(2, 3, 32, 32)).shape
    torch.Size([32, 3, 32, 32])
    """
    height, width = x.shape[-2:]
    if height != width or width % 2:
        raise UserError(
            f"rot16 got images of {height} x {width} pixels; they must be square, of even width"
        )
    left, right = x.chunk(2, dim=3)
    left_180, right_180 = left.flip(2, 3), right.flip(2, 3)
    halves = ((left, right), (left_180, right), (left_180, right_180), (left, right_180))
    inner = torch.cat([torch.cat(pair, dim=3) for pair in halves])
    return torch.cat([inner, *(inner.rot90(quarters, (2, 3)) for quarters in (2, 1, 3))])


def rot16_labels(y: Tensor, stride: int) -> Tensor:
    """Label the variants of `rot16`: (B,) to (16 * B,), y + v * stride. Mixed labels stay floats.

    >>> rot16_labels(torch.tensor([3, 7]), stride=10)[:6].tolist()
    [3, 7, 13, 17, 23, 27]
    """
    shift = stride * torch.arange(16, device=y.device, dtype=y.dtype)
    return (shift[:, None] + y).flatten()
