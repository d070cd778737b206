"""The state between two steps, for those who copy it while a step is under way."""

import threading
from collections.abc import Collection, Mapping
from typing import Any, Literal

from peerlearn.errors import UserError
from peerlearn.peer.peer import State, part

Moving = Literal["", "weights", "images"]  # what a step is about to change, "" at other times


class Whole:
    """Knows what a step has moved already, as it was, and keeps copying and moving apart.

    A step moves generators, statistics and counts while it computes, and of these there is a copy
    from before it. What it has no copy of, it moves at its end, under the lock. So whoever has the
    lock finds a whole state: what was copied from the copy, the rest where it is.

    Attributes:
        lock: to be held while weights or images move, or are copied; never for long.
        moving: what is moving, or has been left half moved by a step that broke off.
        steps: how many have been taken to their end.
        classes: how many were known before those that a step under way brings; None without such.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.moving: Moving = ""
        self.steps = 0
        self.classes: int | None = None
        self._before: Mapping[str, Any] = {}
        self._not_copied: Collection[Moving] = ("weights", "images")

    @property
    def under_way(self) -> bool:
        """Whether something is being done that may have moved a part of the state."""
        return bool(self._before)

    def begin(self, before: State, not_copied: Collection[Moving]) -> None:
        """Something begins, with a copy of the state but for what it does not move or this."""
        with self.lock:
            self._before, self._not_copied = before, not_copied

    def end(self) -> None:
        """It has ended: the state is what it is."""
        with self.lock:
            self._before, self._not_copied = {}, ("weights", "images")

    def before(self, name: str) -> State:
        """What was copied of a part of the state, by the names that it has itself."""
        return part(name, self._before)

    @property
    def torn(self) -> bool:
        """Whether there is no whole state: something moves, or was left half moved, uncopied."""
        return self.moving in self._not_copied

    def refuse_torn(self) -> None:
        """Raise if there is no whole state."""
        if self.torn:
            raise UserError(
                f"the last step broke off while it moved {self.moving}, some have and some have "
                "not: load() the last checkpoint, or build the learner anew"
            )
