"""Small pictures as text, and which images are shown."""

import base64
import io

import torch
from PIL import Image
from torch import Tensor

from peerlearn.devices import generator

SHOWN = 6  # images, each of another class


def png(image: Tensor) -> str:
    """An image, (3, H, W) in [0, 1], as a PNG in base64."""
    levels = image.mul(255).round().clamp(0, 255).byte().permute(1, 2, 0).contiguous()
    file = io.BytesIO()
    Image.fromarray(levels.numpy()).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def colours(heat: Tensor) -> Tensor:
    """From blue for 0 over green to red for 1. (H, W) -> (3, H, W).

    >>> colours(torch.tensor([[0.0, 0.5, 1.0]]))[:, 0].T
    tensor([[0.0000, 0.0000, 0.5000],
            [0.5000, 1.0000, 0.5000],
            [0.5000, 0.0000, 0.0000]])
    """
    peaks = torch.tensor([3.0, 2.0, 1.0])[:, None, None]
    return (1.5 - (4 * heat - peaks).abs()).clamp(0, 1)


def overlay(image: Tensor, heat: Tensor) -> Tensor:
    """An image, (3, H, W) in [0, 1], half covered by the colours of a heat map, (H, W)."""
    return (image + colours(heat)) / 2


def shuffled(count: int) -> Tensor:
    """An order of images, (count,), the same every time."""
    return torch.randperm(count, generator=generator(0, "pictures"))


def one_per_class(y: Tensor, most: int = SHOWN) -> Tensor:
    """The rows of the first image of each class, in the order of the rows. y: (N,).

    >>> one_per_class(torch.tensor([4, 4, 2, 4, 0]), most=2)
    tensor([0, 2])
    """
    first: dict[int, int] = {}
    for row, label in enumerate(y.tolist()):
        first.setdefault(label, row)
    return torch.tensor([*first.values()][:most], dtype=torch.int64)
