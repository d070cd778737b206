"""The learner: its state, its snapshots, and how it is built."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.learner.build import build_learner as build_learner
    from peerlearn.learner.online import OnlineLearner as OnlineLearner
    from peerlearn.learner.snapshot import Snapshot as Snapshot

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {"OnlineLearner": "online", "Snapshot": "snapshot", "build_learner": "build"},
    )
