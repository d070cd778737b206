"""A learnable image set made on the spot, for tests, documents and first programs."""

import math

import torch
from torch import Tensor

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError


def toy_images(
    num_classes: int = 4,
    train_per_class: int = 50,
    test_per_class: int = 20,
    size: int = 8,
    seed: int = 0,
) -> Dataset:
    """Make noisy coloured waves, (3, size, size) each: a colour and a wave per class.

    The same arguments give the same pixels; classes take turns in the stored order.

    >>> train, test, name = toy_images(num_classes=3)
    >>> train.x.shape, len(test), train.class_names
    (torch.Size([150, 3, 8, 8]), 60, ('toy 0', 'toy 1', 'toy 2'))
    """
    for what, value in {
        "num_classes": num_classes,
        "train_per_class": train_per_class,
        "test_per_class": test_per_class,
        "size": size,
    }.items():
        if value < 1:
            raise UserError(f"toy_images: {what} must be at least 1, not {value}")
    rng = torch.Generator().manual_seed(seed)
    patterns = _patterns(num_classes, size, rng)
    names = tuple(f"toy {k}" for k in range(num_classes))

    def draw(per_class: int) -> ImageSet:
        y = torch.arange(num_classes).repeat(per_class)
        noise = 25 * torch.randn(len(y), 3, size, size, generator=rng)
        return ImageSet((patterns[y] + noise).clamp(0, 255).to(torch.uint8), y, names)

    return Dataset(draw(train_per_class), draw(test_per_class), "toy")


def _patterns(num_classes: int, size: int, rng: torch.Generator) -> Tensor:
    """One clean image per class, (num_classes, 3, size, size), between 15 and 240."""
    colour = 60 + 135 * torch.rand(num_classes, 3, 1, 1, generator=rng)
    waves = 4 * torch.rand(num_classes, 2, 1, 1, generator=rng) - 2  # per image width and height
    phase = torch.rand(num_classes, 3, 1, 1, generator=rng)
    across = torch.arange(size) / size
    turns = waves[:, :1] * across + waves[:, 1:] * across[:, None] + phase
    return colour + 45 * torch.sin(2 * math.pi * turns)
