"""Reservoir sampling."""

from collections.abc import Mapping

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.memory.base import Memory


class Reservoir(Memory):
    """A uniform sample of every row ever added.

    Vitter, Random sampling with a reservoir, ACM TOMS 1985, https://doi.org/10.1145/3147.3165

    Args:
        capacity: rows that it holds at most; 0 for no replay.

    >>> memory, rng = Reservoir(capacity=2), torch.Generator().manual_seed(0)
    >>> memory.add(rng, x=torch.zeros(3, 3, 8, 8, dtype=torch.uint8), y=torch.tensor([0, 1, 2]))
    >>> len(memory), memory.seen, memory.draw(64, rng)["y"].shape
    (2, 3, torch.Size([2]))
    """

    name = "reservoir"
    fills_up = True

    @override
    def slots(self, rows: Mapping[str, Tensor], rng: torch.Generator) -> list[int]:
        """Row number s + 1 of all takes a place with chance capacity / (s + 1)."""
        count = len(next(iter(rows.values())))
        position = self.seen + torch.arange(count)
        drawn = (torch.rand(count, generator=rng, dtype=torch.float64) * (position + 1)).long()
        slots: list[int] = torch.where(position < self.capacity, position, drawn).tolist()
        return slots
