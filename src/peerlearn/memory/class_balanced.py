"""Class-balancing reservoir sampling (CBRS)."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.errors import UserError
from peerlearn.memory.base import Memory


class ClassBalanced(Memory):
    """A sample that is even over the classes, and uniform within each of them.

    Chrysakis and Moens, Online continual learning from imbalanced data, ICML 2020,
    https://proceedings.mlr.press/v119/chrysakis20a.html

    All rows are stored while there is room. After that a class is full once no class has more
    rows than it, and stays so. A row of a class that is not full overwrites a random row of a
    largest class. A row of a full class overwrites a random one of its own class, with chance
    rows stored / rows offered of that class. Labels are the column `y`.

    Args:
        capacity: rows that it holds at most; 0 for no replay.

    >>> memory, rng = ClassBalanced(capacity=4), torch.Generator().manual_seed(0)
    >>> memory.add(rng, y=torch.tensor([0] * 90 + [1] * 2))
    >>> sorted(memory["y"].tolist())
    [0, 0, 1, 1]
    """

    name = "class_balanced"
    fills_up = True

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._offered: Counter[int] = Counter()
        self._full: set[int] = set()
        self._held: defaultdict[int, list[int]] = defaultdict(list)  # slots by class, ascending

    @override
    def slots(self, rows: Mapping[str, Tensor], rng: torch.Generator) -> list[int]:
        labels = rows["y"].tolist()
        chances = torch.rand(len(labels), 2, generator=rng, dtype=torch.float64).tolist()
        return [self._slot(label, *pair) for label, pair in zip(labels, chances, strict=True)]

    def _slot(self, label: int, accept: float, pick: float) -> int:
        """The slot that a row takes. accept, pick: uniform between 0 and 1."""
        self._offered[label] += 1
        size, own = sum(map(len, self._held.values())), self._held[label]
        if label in self._full:
            stays_out = accept >= len(own) / self._offered[label]
            return self.capacity if stays_out else own[int(pick * len(own))]
        if self.capacity == 0:
            return self.capacity
        slot = size if size < self.capacity else self._evict(pick)
        insort(own, slot)
        if size >= self.capacity - 1:  # no room is left: the largest classes are full from now on
            self._full.update(self._largest())
        return slot

    def _evict(self, pick: float) -> int:
        """Free the slot of a random row of the largest classes, which are equally large."""
        pools = [self._held[label] for label in self._largest()]
        size = len(pools[0])
        number = int(pick * (len(pools) * size))
        return pools[number // size].pop(number % size)

    def _largest(self) -> list[int]:
        most = max(map(len, self._held.values()))
        return sorted(label for label, slots in self._held.items() if len(slots) == most)

    @override
    def state_dict(self) -> dict[str, Any]:
        classes = sorted(self._offered)
        return super().state_dict() | {
            "classes": torch.tensor(classes, dtype=torch.int64),
            "offered": torch.tensor([self._offered[k] for k in classes], dtype=torch.int64),
            "full": torch.tensor([k in self._full for k in classes], dtype=torch.bool),
        }

    @override
    def check_state(self, state: Mapping[str, Any], num_classes: int, /) -> None:
        super().check_state(state, num_classes)
        parts = [state.get(key) for key in ("classes", "offered", "full")]
        kinds = (torch.int64, torch.int64, torch.bool)
        for column, kind in zip(parts, kinds, strict=True):
            if not isinstance(column, Tensor) or column.dtype != kind or column.ndim != 1:
                raise UserError("memory: classes, offered and full should be a row per class")
        classes, offered, full = (column.tolist() for column in parts if column is not None)
        held = Counter(state["columns"]["y"].tolist() if "columns" in state else ())
        if (
            not len(classes) == len(offered) == len(full)
            or classes != sorted(set(classes) & set(range(num_classes)))
            or sum(offered) != state["seen"]
            or any(count < max(1, held[k]) for k, count in zip(classes, offered, strict=True))
            or not held.keys() <= set(classes)
            or (any(full) and held.total() < self.capacity)
        ):
            raise UserError("memory: classes, offered and full contradict each other")

    @override
    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        super().load_state_dict(state, device)
        classes, offered, full = (state[key].tolist() for key in ("classes", "offered", "full"))
        self._offered = Counter(dict(zip(classes, offered, strict=True)))
        self._full = {label for label, is_full in zip(classes, full, strict=True) if is_full}
        self._held = defaultdict(list)
        for slot, label in enumerate(self["y"].tolist() if self._columns else ()):
            self._held[label].append(slot)
