"""Peers side by side, for as long as that changes no number."""

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from peerlearn.errors import UserError
from peerlearn.methods.interface import Method
from peerlearn.peer.lanes import Lanes
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer
from peerlearn.peer.seeding import global_states

R = TypeVar("R")


class NotAlone(Exception):  # noqa: N818
    """Peers side by side have changed something that they share, so that bits would differ."""


class SideBySide:
    """Asks every peer at once, or one after the other where they share something.

    Each peer has a copy of the method, so that what `loss` assigns to it no other peer sees. What
    was assigned is noticed afterwards, and so is a draw from a global generator: `NotAlone` is
    raised then, and the step has to be taken again in turns.

    Args:
        peers: who is asked.
        method: that they learn with.
        at_once: peers that compute side by side, if they can.
        compiled: whether torch.compile makes their networks; its CUDA graphs are of one thread.
    """

    def __init__(
        self, peers: Sequence[Peer], method: Method[Any], at_once: int, *, compiled: bool
    ) -> None:
        self.peers, self.method = peers, method
        devices = [peer.device for peer in peers]
        self.lanes = Lanes(at_once, devices)
        self.lanes.count = min(self.lanes.count, len(peers))
        shared = _share_parts(peers)
        if shared and len({*devices}) > 1:
            raise UserError(
                "device: the peers' networks share parts, which cannot be on several devices; "
                f"take device={str(devices[0])!r}"
            )
        if len(peers) == 1 or shared or compiled:
            self.lanes = Lanes(1)

    def lanes_for_answers(self) -> Lanes:
        """As many again, so that who answers does not wait for who learns."""
        return Lanes(self.lanes.count, [peer.device for peer in self.peers])

    def map(self, action: Callable[[int, Peer, Method[Any]], R]) -> list[R]:
        """What the action gives for the number of each peer, the peer and its method."""
        if self.lanes.count == 1 or _get_current_dispatch_mode_stack():
            return self.in_turn(action)  # whoever counts or traces operations sees one thread
        methods = [copy.copy(self.method) for _ in self.peers]
        before = global_states(*(peer.device for peer in self.peers)), _marks(self.method)
        numbers = range(len(self.peers))
        found = self.lanes.map(lambda i: action(i, self.peers[i], methods[i]), numbers)
        now = global_states(*(peer.device for peer in self.peers))
        alike = all(_same(_marks(method), before[1]) for method in (self.method, *methods))
        if now != before[0] or not alike:
            raise NotAlone
        return found

    def in_turn(self, action: Callable[[int, Peer, Method[Any]], R]) -> list[R]:
        """The same, one peer after the other."""
        return [action(i, peer, self.method) for i, peer in enumerate(self.peers)]

    def give_up(self) -> None:
        """Let peers take turns from now on."""
        warnings.warn(
            "peers take turns from now on, at the cost of speed alone: while they computed side by "
            "side, something drew from torch's global generator (dropout, another thread) or the "
            "method assigned to itself",
            RuntimeWarning,
            stacklevel=3,
        )
        self.lanes = Lanes(1)


Marks = dict[str, tuple[Any, int]]


def _marks(method: Method[Any]) -> Marks:
    """What a method holds, with a number that tells whether it was changed in place."""
    return {name: (value, _writes(value)) for name, value in vars(method).items()}


def _writes(value: Any) -> int:
    """How often a tensor was written, how long a collection is; 0 for what cannot be counted."""
    if isinstance(value, Tensor):
        return 0 if value.is_inference() else value._version
    return len(value) if isinstance(value, list | dict | set) else 0


def _same(now: Marks, before: Marks) -> bool:
    return now.keys() == before.keys() and all(
        now[name][0] is before[name][0] and now[name][1] == before[name][1] for name in now
    )


def _share_parts(peers: Sequence[Peer]) -> bool:
    """Whether the networks of two peers have a module, or numbers, in common: these would race."""

    def parts(network: PeerModel) -> set[int]:
        tensors = (*network.parameters(), *network.buffers())
        return {*map(id, network.modules())} | {t.untyped_storage().data_ptr() for t in tensors}

    owned = [set().union(*map(parts, peer.networks)) - {0} for peer in peers]  # 0: no numbers
    return sum(map(len, owned)) > len(set().union(*owned))
