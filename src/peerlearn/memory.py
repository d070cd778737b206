"""The replay memory: a fixed number of rows, whatever the rows are."""

from collections.abc import Mapping

import torch
from torch import Tensor

from peerlearn.errors import UserError


class Reservoir:
    """A uniform sample, of fixed capacity, of every row ever added.

    Columns come with the first rows: images and labels always, and whatever else a method wants
    to find again beside them (DER++ adds `logits`).

    >>> memory, rng = Reservoir(capacity=2), torch.Generator().manual_seed(0)
    >>> memory.add(rng, x=torch.zeros(3, 3, 8, 8, dtype=torch.uint8), y=torch.tensor([0, 1, 2]))
    >>> len(memory), memory.seen, memory.draw(64, rng)["y"].shape
    (2, 3, torch.Size([2]))
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise UserError(f"memory: capacity must be 0 (no replay) or more, got {capacity}")
        self.capacity = capacity
        self.seen = 0
        self._columns: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def __getitem__(self, column: str) -> Tensor:
        """The stored rows of one column, in storage order: (len(self), ...)."""
        return self._columns[column][: len(self)]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; none before the first rows."""
        return tuple(self._columns)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes that each column occupies."""
        return {name: column.nbytes for name, column in self._columns.items()}

    def add(self, rng: torch.Generator, **rows: Tensor) -> None:
        """Offer rows, each (B, ...): row number s + 1 of all takes a place with chance M / (s + 1).

        Equal to offering them one after the other: every row draws its own slot, and where two rows
        of the batch draw the same slot the later one stays.
        """
        count = len(next(iter(rows.values())))
        if self._columns and rows.keys() != self._columns.keys():
            raise UserError(f"memory: columns are {[*self._columns]}, got {[*rows]}")
        if not self._columns:
            self._columns = {
                name: row.new_zeros((self.capacity, *row.shape[1:])) for name, row in rows.items()
            }
        position = self.seen + torch.arange(count)
        drawn = (torch.rand(count, generator=rng, dtype=torch.float64) * (position + 1)).long()
        slot = torch.where(position < self.capacity, position, drawn)
        taken = {s: row for row, s in enumerate(slot.tolist()) if s < self.capacity}
        if taken:
            slots, chosen = torch.tensor(list(taken)), torch.tensor(list(taken.values()))
            for name, column in self._columns.items():
                device = column.device
                column[slots.to(device)] = rows[name][chosen.to(device)]
        self.seen += count

    def draw(self, count: int, rng: torch.Generator) -> dict[str, Tensor]:
        """`count` different rows, uniformly; all of them, in storage order, if there are fewer."""
        if len(self) <= count:
            return self._rows(torch.arange(len(self)))
        return self._rows(torch.randperm(len(self), generator=rng)[:count])

    def draw_where(self, count: int, eligible: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
        """Up to `count` of the eligible rows, with replacement. eligible: (len(self),) bool.

        As many draws as there are eligible rows, if those are fewer than `count`.
        """
        rows = eligible.nonzero().flatten().cpu()
        if len(rows) == 0:
            return self._rows(rows)
        picks = torch.randint(len(rows), (min(count, len(rows)),), generator=rng)
        return self._rows(rows[picks])

    def _rows(self, index: Tensor) -> dict[str, Tensor]:
        return {name: self[name][index.to(col.device)] for name, col in self._columns.items()}

    def restore(self, columns: Mapping[str, Tensor], seen: int, device: torch.device) -> None:
        """Become a memory that held these columns after `seen` rows."""
        self.seen = seen
        self._columns = {}
        for name, rows in columns.items():
            column = rows.new_zeros((self.capacity, *rows.shape[1:]), device=device)
            column[: len(rows)] = rows
            self._columns[name] = column
