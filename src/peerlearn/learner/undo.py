"""All or nothing: a call that raises leaves a learner as it was before."""

import copy
from typing import TYPE_CHECKING, Literal, Self

from torch import Tensor

from peerlearn.learner.whole import Moving
from peerlearn.peer.lanes import Abandoned
from peerlearn.peer.peer import State, prefixed
from peerlearn.settings import flatten

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

Scope = Literal["before weights", "all but images", "all"]
_NOT_IN: dict[Scope, tuple[Moving, ...]] = {
    "before weights": ("weights", "images"),
    "all but images": ("images",),
    "all": (),
}
_IMAGES = "memory.columns."


class AllOrNothing:
    """If what is done within raises, the learner becomes again what it was.

    A step moves generators, statistics and counts long before it comes to the weights and at last
    to the images in memory, of which copies are large: if it fails while it moves what was not
    copied it is not taken back, and `learner.moving` says so. So it does if an interrupt comes
    while things are taken back. After `done()` nothing is taken back.

    Args:
        learner: whose state it is.
        scope: of what a copy is made.
    """

    def __init__(self, learner: "OnlineLearner", scope: Scope) -> None:
        self.learner, self.scope = learner, scope
        self.moving, self.before = learner.moving, _copy(learner, scope)
        self.is_done, self._taken = False, learner.whole.steps
        learner.whole.begin(self.before, _NOT_IN[scope])

    def done(self) -> None:
        """All has been moved; from now on that is the state which answers come from."""
        self.is_done = True
        self.learner.whole.steps += 1
        self.learner.whole.classes = None
        self.learner.whole.end()
        self.learner.predictors.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        learner = self.learner
        if kind is not None and issubclass(kind, Abandoned):
            learner.moving = "weights"  # some peer may still be computing
        elif kind is not None and not self.is_done and learner.whole.steps == self._taken:
            for peer in learner.peers:
                peer.optimizer.zero_grad(set_to_none=True)
            if learner.moving not in _NOT_IN[self.scope]:
                learner.moving = "weights"
                rest = _not_copied(learner, self.scope, self.before)
                learner.load_state_dict({**rest, **self.before})
                learner.moving = self.moving
        with learner.whole.lock:
            learner.whole.end()
            learner.predictors.refresh()


def _copy(learner: "OnlineLearner", scope: Scope) -> State:
    state = _moved_before_weights(learner) if scope == "before weights" else learner.state_dict()
    return {
        name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        for name, value in state.items()
        if scope == "all" or not name.startswith(_IMAGES)
    }


def _moved_before_weights(learner: "OnlineLearner") -> State:
    state: State = {f"rng.{name}": rng.get_state() for name, rng in learner.rngs.items()}
    for i, peer in enumerate(learner.peers):
        state |= prefixed(f"peer{i}", peer.moving_state())
    for name, teacher in learner.teachers.items():
        state |= prefixed(f"teacher.{name}", teacher.moving_state())
    return state | prefixed("memory", flatten(learner.memory.state_dict()))


def _not_copied(learner: "OnlineLearner", scope: Scope, before: State) -> State:
    """The part of the present state that is as it was; what has come since is left out."""

    def as_it_was(name: str) -> bool:
        if name.startswith(_IMAGES):
            return scope != "all" and bool(before["memory.seen"])
        return scope == "before weights" and ".buffers." not in name

    return {name: value for name, value in learner.state_dict().items() if as_it_was(name)}
