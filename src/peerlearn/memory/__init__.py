"""Replay memories: a fixed number of rows of the stream, chosen by a policy."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.memory.base import Memory as Memory
    from peerlearn.memory.class_balanced import ClassBalanced as ClassBalanced
    from peerlearn.memory.reservoir import Reservoir as Reservoir

MEMORIES: "Registry[type[Memory]]" = Registry(
    "memory", "peerlearn.memory", "peerlearn.memory.base:Memory"
)

__all__ = ["MEMORIES", "ClassBalanced", "Memory", "Reservoir"]

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__, {"ClassBalanced": "class_balanced", "Memory": "base", "Reservoir": "reservoir"}
    )
