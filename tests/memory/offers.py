"""Rows to offer to a memory."""

import torch
from torch import Tensor

from peerlearn.memory import Memory


def rows(first: int, count: int) -> dict[str, Tensor]:
    """Rows numbered from `first` on: each a class of its own, with its number in the image."""
    y = torch.arange(first, first + count)
    return {"x": y.view(-1, 1, 1, 1).to(torch.uint8).expand(-1, 3, 2, 2), "y": y}


def labelled(labels: list[int], first: int = 0) -> dict[str, Tensor]:
    """Rows of these classes, with their number beside them."""
    return {"y": torch.tensor(labels), "number": torch.arange(first, first + len(labels))}


def filled(memory: Memory, count: int, seed: int = 0, batch: int = 7) -> Memory:
    """The memory after `count` rows in small batches."""
    rng = torch.Generator().manual_seed(seed)
    for first in range(0, count, batch):
        memory.add(rng, **rows(first, min(batch, count - first)))
    return memory
