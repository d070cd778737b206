"""Transactions: a call either changes a learner as a whole, or leaves it as it was."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from torch import Tensor

from peerlearn.peer import State, prefixed
from peerlearn.threads import ForcedInterrupt

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

Changing = Literal["", "weights", "images"]  # what a learner changes now, or broke off changing
Undo = Literal["statistics", "weights", "images"]  # the most that a transaction can undo
_UNDONE: dict[Undo, tuple[Changing, ...]] = {
    "statistics": ("",),
    "weights": ("", "weights"),
    "images": ("", "weights", "images"),
}
_IMAGES = "memory.columns."


class Transaction:
    """A change of a learner that is committed as a whole; if an error comes before, it is undone.

    A step moves generators, statistics and counts long before the weights and, at last, the images
    in memory, of which copies are large. If it fails while it changes what was not copied, the
    learner stays broken and says so (`raise_if_broken`). Meanwhile predictions come from a snapshot
    of the state before it.

    Args:
        learner: the one to change. Set `learner.changing` before weights or images are written.
        undo: what can be undone: "statistics" with generators and counts, all of that and
            "weights", or all and "images".
    """

    def __init__(self, learner: "OnlineLearner", undo: Undo) -> None:
        self.learner, self._scope = learner, undo
        self._undo_calls: list[Callable[[], None]] = []
        self._undoing = False

    def __enter__(self) -> Self:
        learner = self.learner
        self._version, self._changing = learner.version, learner.changing
        self._before = _copy(learner, self._scope)
        with learner.state_lock:
            if not learner.changing:
                learner.publish()
            learner.transaction = self
        return self

    def on_undo(self, call: Callable[[], None]) -> None:
        """Call this first if the transaction is undone; for what is replaced, not written to."""
        self._undo_calls.append(call)

    def commit(self) -> None:
        """Let the present state be the one that counts: from now on nothing is undone."""
        with self.learner.state_lock:
            self.learner.version += 1
            self.learner.changing, self.learner.transaction = "", None

    @property
    def is_committed(self) -> bool:
        """Whether it has been committed; an interrupt may have come right after that."""
        return self.learner.version != self._version

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, ForcedInterrupt):
            self.learner.changing = "weights"  # some peer may still be computing
            self.learner.transaction = None
        elif kind is not None:
            self.undo()
        else:
            self.learner.transaction = None

    def undo(self) -> None:
        """Put back what was copied, unless it is committed, or more has changed than was copied.

        Until that is done, `learner.transaction` is this one: if an interrupt comes, the next call
        of the learner undoes it once more.
        """
        learner = self.learner
        if self.is_committed:
            learner.changing = ""
        else:
            learner.clear_gradients()
            if self._undoing or learner.changing in _UNDONE[self._scope]:
                self._undoing = True
                for call in reversed(self._undo_calls):
                    call()
                learner.load_state_dict({**self._not_copied(), **self._before})
                learner.changing = self._changing
        learner.transaction = None

    def _not_copied(self) -> State:
        """Return the part of the present state that is as it was, without what has come since."""

        def as_it_was(name: str) -> bool:
            if name.startswith(_IMAGES):
                return self._scope != "images" and bool(self._before["memory.seen"])
            return self._scope == "statistics" and ".buffers." not in name

        return {name: value for name, value in self.learner.state_dict().items() if as_it_was(name)}


def _copy(learner: "OnlineLearner", undo: Undo) -> State:
    state = _statistics(learner) if undo == "statistics" else learner.state_dict()
    return {
        name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        for name, value in state.items()
        if undo == "images" or not name.startswith(_IMAGES)
    }


def _statistics(learner: "OnlineLearner") -> State:
    """Return what a step changes before the weights: generators, statistics and counts."""
    state: State = {f"rng.{name}": rng.get_state() for name, rng in learner.rngs.items()}
    state |= prefixed("progress", learner.progress.state_dict())
    for i, peer in enumerate(learner.peers):
        state |= prefixed(f"peer{i}", peer.moving_state())
    for name, teacher in learner.teachers.items():
        state |= prefixed(f"teacher.{name}", teacher.moving_state())
    memory = learner.memory.state_dict()
    return state | {f"memory.{name}": memory[name] for name in memory if name != "columns"}
