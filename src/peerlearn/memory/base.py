"""What learners and methods need of a replay memory, and what all policies share."""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from peerlearn.devices import moved
from peerlearn.errors import UserError

LABELS = "y"  # the name of their column


class Memory(ABC):
    """A fixed number of rows, whatever the rows are; a policy decides which ones stay.

    Columns come with the first rows: images `x` and labels `y` always, and whatever else a method
    wants to find again beside them (DER++ adds `logits`). They stay on the device of those rows,
    but for the labels: these decide what is drawn, so they are always on the CPU, where reading
    them waits for no device.

    A policy states its `name` and the slots that rows take. One that keeps the latest rows:

    >>> class Latest(Memory):
    ...     name = "latest"
    ...     def slots(self, rows, rng):
    ...         return [(self.seen + i) % (self.capacity or 1) for i in range(len(rows["y"]))]
    >>> memory, rng = Latest(capacity=2), torch.Generator().manual_seed(0)
    >>> memory.add(rng, y=torch.tensor([0, 1, 2]))
    >>> memory["y"].tolist()
    [2, 1]

    Args:
        capacity: rows that it holds at most; 0 for no replay.
    """

    name: ClassVar[str]
    fills_up: ClassVar[bool] = False  # it takes every row while there is room

    def __init__(self, capacity: int) -> None:
        try:
            self.capacity = operator.index(capacity)
        except TypeError:
            self.capacity = -1
        if isinstance(capacity, bool) or self.capacity < 0:
            raise UserError(f"memory: capacity must be 0 (no replay) or more, got {capacity!r:.60}")
        self.seen = 0  # rows offered so far
        self.changes = 0  # how often rows have been written
        self._size = 0
        self._columns: dict[str, Tensor] = {}

    @abstractmethod
    def slots(self, rows: Mapping[str, Tensor], rng: torch.Generator) -> Sequence[int]:
        """The slot that each row takes, in the order of the rows; `capacity` or more for none.

        Slots fill from 0 on without gaps. `self.seen` and the columns are as before these rows.
        """

    def __len__(self) -> int:
        return self._size

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

    @final
    def add(self, rng: torch.Generator, **rows: Tensor) -> None:
        """Offer rows, each (B, ...).

        Equal to offering them one after the other: where two of them take the same slot, the later
        one stays.
        """
        self.keep(rows, self.choose(rows, rng))

    @final
    def choose(self, rows: Mapping[str, Tensor], rng: torch.Generator) -> Sequence[int]:
        """The slots that rows take, before any of them is overwritten: the first half of `add`."""
        if self._columns and rows.keys() != self._columns.keys():
            raise UserError(f"memory: columns are {[*self._columns]}, got {[*rows]}")
        rows = _labels_on_cpu(rows)
        if not self._columns:
            self._columns = {name: self._room(row).zero_() for name, row in rows.items()}
        slots = self.slots(rows, rng)
        self._check(slots, len(next(iter(rows.values()))))
        return slots

    @final
    def keep(self, rows: Mapping[str, Tensor], slots: Sequence[int]) -> None:
        """Write rows to the slots that were chosen for them: the second half of `add`."""
        taken = {slot: i for i, slot in enumerate(slots) if slot < self.capacity}
        if taken:
            self.changes += 1
            rows = _labels_on_cpu(rows)
            places = self._on_devices(torch.tensor([[*taken], [*taken.values()]]))
            for name, column in self._columns.items():
                into, of = places[column.device]
                column[into] = rows[name][of]
            self._size = max(self._size, max(taken) + 1)
        self.seen += len(slots)

    @final
    def room(self, column: str) -> Tensor:
        """All rows of a column, also those that nothing has been stored in: (capacity, ...)."""
        return self._columns[column]

    @final
    def put_room(self, column: str, rows: Tensor) -> None:
        """Have other rows in place of all of a column: (capacity, ...)."""
        self.changes += 1
        self._columns[column] = rows

    def check_room(self, rows: Tensor) -> None:
        """Refuse a capacity for which there is no memory. rows: (B, ...), such as images."""
        self._room(rows)

    def _room(self, rows: Tensor) -> Tensor:
        shape = (self.capacity, *rows.shape[1:])
        try:
            return rows.new_empty(shape)
        except RuntimeError as error:
            size = math.prod(shape) * rows.element_size() / 1e9
            raise UserError(
                f"memory: {self.capacity} rows of {tuple(rows.shape[1:])} need {size:.3g} GB, "
                "which is more than there is; take a smaller memory"
            ) from error

    def _check(self, slots: Sequence[int], count: int) -> None:
        taken = {slot for slot in slots if slot < self.capacity}
        new = sum(slot >= self._size for slot in taken)
        gap = max(taken, default=-1) >= self._size + new
        if len(slots) != count or min(slots, default=0) < 0 or gap:
            raise UserError(
                f"memory {self.name}: slots() must give a slot for each of {count} rows, from 0 on "
                f"without gaps, capacity or more for none; got {slots!r:.60}"
            )

    def draw(self, count: int, rng: torch.Generator) -> dict[str, Tensor]:
        """`count` different rows, uniformly; all of them, in storage order, if there are fewer."""
        if len(self) <= count:
            return self._rows(torch.arange(len(self)))
        return self._rows(torch.randperm(len(self), generator=rng)[:count])

    def draw_where(self, count: int, eligible: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
        """Up to `count` of the eligible rows, with replacement. eligible: (len(self),) bool.

        As many draws as there are eligible rows, if those are fewer than `count`.
        """
        rows = eligible.cpu().nonzero().flatten()
        if len(rows) == 0:
            return self._rows(rows)
        picks = torch.randint(len(rows), (min(count, len(rows)),), generator=rng)
        return self._rows(rows[picks])

    def _rows(self, index: Tensor) -> dict[str, Tensor]:
        places = self._on_devices(index)
        return {name: column[places[column.device]] for name, column in self._columns.items()}

    def _on_devices(self, index: Tensor) -> dict[torch.device, Tensor]:
        """Return an index of the CPU on each device that has columns, moved there once."""
        devices = {column.device for column in self._columns.values()}
        return {device: moved(index, device) for device in devices}

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on from here: tensors and numbers.

        The columns are not copied: write them down before more rows are added.
        """
        return {"seen": self.seen, "columns": {name: self[name] for name in self._columns}}

    def check_state(self, state: Mapping[str, Any], _num_classes: int, /) -> None:
        """Refuse a state that this memory cannot have had, before it is loaded.

        state: whole number `seen` and `columns` of rows, looked at before; what a policy adds to
        its state it has to look at itself.
        """
        columns: Mapping[str, Tensor] = state.get("columns", {})
        sizes = {len(rows) for rows in columns.values()}
        most = min(self.capacity, state["seen"])
        least = most if self.fills_up else 0
        if len(sizes) > 1 or not all(least <= size <= most for size in sizes):
            raise UserError(
                f"memory: columns of {sorted(sizes)} rows cannot be, with a capacity of "
                f"{self.capacity} and {state['seen']} rows offered"
            )

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Become the memory that gave this state, with its columns but the labels on `device`."""
        columns: Mapping[str, Tensor] = state.get("columns", {})
        size = max(map(len, columns.values()), default=0)
        if size > self.capacity:
            raise UserError(f"memory: the state has {size} rows, capacity is {self.capacity}")
        self.changes += 1
        self.seen, self._size, self._columns = int(state["seen"]), size, {}
        for name, rows in columns.items():
            home = torch.device("cpu") if name == LABELS else device
            column = rows.new_zeros((self.capacity, *rows.shape[1:]), device=home)
            column[:size] = rows
            self._columns[name] = column


def _labels_on_cpu(rows: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return {name: row.cpu() if name == LABELS else row for name, row in rows.items()}
