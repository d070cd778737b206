"""All or nothing: a call that raises leaves a learner as it was before."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from peerlearn.peer.peer import State, prefixed
from peerlearn.settings import flatten

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

Scope = Literal["before weights", "all but images", "all"]
_IMAGES = "memory.columns."


@contextmanager
def all_or_nothing(learner: "OnlineLearner", scope: Scope) -> Iterator[None]:
    """If what is done within raises, the learner becomes again what it was.

    scope: of what a copy is made. A step moves generators, statistics and counts long before it
    comes to the weights, of which copies are large: if it fails later than that it is not taken
    back, and `learner.moving` stays true.
    """
    before = _copy(learner, scope)
    try:
        yield
    except BaseException:
        for peer in learner.peers:
            peer.optimizer.zero_grad(set_to_none=True)
        if scope != "before weights" or not learner.moving:
            learner.load_state_dict({**_not_copied(learner, scope, before), **before})
        raise
    finally:
        learner.predictor.refresh()


def _copy(learner: "OnlineLearner", scope: Scope) -> State:
    state = _moved_before_weights(learner) if scope == "before weights" else learner.state_dict()
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in state.items()
        if scope == "all" or not name.startswith(_IMAGES)  # the last to be written: never by half
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
