"""A thread pool in which peers compute side by side, and a fair lock."""

import copy
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from peerlearn.devices import global_states
from peerlearn.errors import UserError
from peerlearn.methods.interface import Method
from peerlearn.peer import Peer, PeerModel
from peerlearn.threads import CudaStreams, Job, Worker, end_all

T = TypeVar("T")
R = TypeVar("R")

# Of processes that were forked when torch had computed, one in some 400 ended by a signal in its
# first convolutions in two threads, so there peers take turns.
_PROCESS = os.getpid()

_here = threading.local()


def waiting_caller() -> int | None:
    """Return the number of the thread that waits for this one, if this one belongs to a pool."""
    caller: int | None = getattr(_here, "caller", None)
    return caller


class SharedStateError(Exception):
    """Peers side by side changed shared state: the step must be taken again in turn."""


class PeerPool:
    """Threads that compute for several peers at once, to the bit as if these took turns.

    The number of threads that torch takes for one computation decides its last bits: a thread of
    the pool takes that number, and whether gradients are wanted, from the thread that asks. A peer
    is always computed in the same thread: with an ordinary pool, where it may be another one each
    time, 6 of 34 tests of equal bits fail.

    One thread uses the pool at a time; others compute their items in turn meanwhile, and so does a
    forked process. What the items share must not change while they compute.

    Args:
        count: computations at a time; 1 computes in turn, in the calling thread.
        devices: of the items; on CUDA each item has a stream of its own.

    >>> PeerPool(2).map(lambda x: x + 1, [1, 2, 3])
    [2, 3, 4]
    """

    def __init__(self, count: int, devices: Sequence[torch.device] = ()) -> None:
        if not hasattr(count, "__index__") or isinstance(count, bool) or count < 1:
            raise UserError(f"peers_at_once must be a whole number from 1 on, got {count!r:.60}")
        self.count = count
        self._streams = CudaStreams(devices)
        self._threads: list[Worker] = []
        self._made_for = 0  # torch's threads per computation
        self._in_use = threading.Lock()

    @classmethod
    def of_peers(cls, peers: Sequence[Peer], at_once: int, *, compiled: bool) -> "PeerPool":
        """Return a pool for these peers: of one thread where they cannot be side by side.

        compiled: whether torch.compile makes their networks; its CUDA graphs are of one thread.
        """
        devices = [peer.device for peer in peers]
        pool = cls(at_once, devices)
        shared = _share_parts(peers)
        if shared and len({*devices}) > 1:
            raise UserError(
                "device: the peers' networks share parts, which cannot be on several devices; "
                f"take device={str(devices[0])!r}"
            )
        pool.count = 1 if shared or compiled else min(pool.count, len(peers))
        return pool

    def map(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the action's results in the order of the items, once all have ended.

        The first error in that order is raised. When this returns or raises, be it for an
        interrupt, nothing is under way any more; unless it raises `ForcedInterrupt`.
        """
        count = self.count
        several = min(count, len(items)) > 1 and waiting_caller() is None
        if not several or os.getpid() != _PROCESS or not self._in_use.acquire(blocking=False):
            return [action(item) for item in items]
        try:
            return self._side_by_side(action, items, self._ready(count))
        finally:
            self._in_use.release()

    def map_peers(
        self,
        action: Callable[[int, Peer, Method[Any]], R],
        peers: Sequence[Peer],
        method: Method[Any],
    ) -> list[R]:
        """Return what the action gives for each peer that learns: its number, itself, its method.

        Side by side each peer has a copy of the method, so that no other sees what `loss` assigns
        to it. If the method was changed, or a global generator drawn from, `SharedStateError` is
        raised: bits would differ, and the step has to be taken again in turn.
        """
        if self.count == 1 or _get_current_dispatch_mode_stack():
            # a mode that counts or traces operations sees only the thread that entered it
            return [action(i, peer, method) for i, peer in enumerate(peers)]
        devices = [peer.device for peer in peers]
        methods = [copy.copy(method) for _ in peers]
        generators, written = global_states(*devices), _attributes(method)
        found = self.map(lambda i: action(i, peers[i], methods[i]), range(len(peers)))
        alike = all(_same(_attributes(one), written) for one in (method, *methods))
        if global_states(*devices) != generators or not alike:
            raise SharedStateError
        return found

    def fall_back_to_sequential(self) -> None:
        """Let peers take turns from now on."""
        self.count = 1

    def wait(self) -> None:
        """Wait until nothing is under way any more; something may be after `ForcedInterrupt`."""
        if os.getpid() != _PROCESS:
            return  # threads stay behind in the process that forked
        jobs = [Job(lambda _: None, 0) for _ in self._threads]
        for thread, job in zip(self._threads, jobs, strict=True):
            thread.do(job)
        for job in jobs:
            job.wait()

    def _side_by_side(
        self, action: Callable[[T], R], items: Sequence[T], threads: "Sequence[Worker]"
    ) -> list[R]:
        count, grad, me = len(threads), torch.is_grad_enabled(), threading.get_ident()
        streams = self._streams.waiting_for_caller()

        def act(number: int) -> R:
            _here.caller = me
            with torch.set_grad_enabled(grad), streams(number):
                return action(items[number])

        jobs = [Job(act, number) for number in range(len(items))]
        try:
            for number, job in enumerate(jobs):
                threads[number % count].do(job)
            for job in jobs:
                job.wait()
        finally:
            try:
                end_all(jobs)
            finally:
                self._streams.caller_waits()
        return [job.result() for job in jobs]

    def _ready(self, count: int) -> "list[Worker]":
        """Return threads that take as many threads per computation as the caller."""
        wanted = torch.get_num_threads()
        if self._made_for != wanted:
            self._threads = [Worker(wanted) for _ in range(count)]
            self._made_for = wanted
        return self._threads


def warn_of_shared_state() -> None:
    """Say that peers take turns from now on, and why."""
    warnings.warn(
        "peers take turns from now on, at the cost of speed alone: while they computed side by "
        "side, something drew from torch's global generator (dropout, another thread) or the "
        "method assigned to itself",
        RuntimeWarning,
        stacklevel=3,
    )


Attributes = dict[str, tuple[Any, int]]


def _attributes(method: Method[Any]) -> Attributes:
    """Return what a method holds, with a number that tells whether it was changed in place."""
    return {name: (value, _writes(value)) for name, value in vars(method).items()}


def _writes(value: Any) -> int:
    """Return how often a tensor was written, how long a collection is; 0 for other things."""
    if isinstance(value, Tensor):
        return 0 if value.is_inference() else value._version
    return len(value) if isinstance(value, list | dict | set) else 0


def _same(now: Attributes, before: Attributes) -> bool:
    return now.keys() == before.keys() and all(
        now[name][0] is before[name][0] and now[name][1] == before[name][1] for name in now
    )


def _share_parts(peers: Sequence[Peer]) -> bool:
    """Return whether networks of two peers share a module or numbers: these would race."""

    def parts(network: PeerModel) -> set[int]:
        tensors = (*network.parameters(), *network.buffers())
        return {*map(id, network.modules())} | {t.untyped_storage().data_ptr() for t in tensors}

    owned = [set().union(*map(parts, peer.networks)) - {0} for peer in peers]  # 0: no numbers
    return sum(map(len, owned)) > len(set().union(*owned))


_HANDED_OVER = -1  # no thread has this number


class FairLock:
    """A fair, re-entrant lock: threads acquire it in FIFO order.

    Python's own lock lets a thread that releases and acquires again overtake all that wait.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._holder: int | None = None
        self.depth = 0  # how often its holder has acquired it

    def __enter__(self) -> None:
        me, caller = threading.get_ident(), waiting_caller()
        if caller is not None and self._holder == caller:  # its step holds the lock
            raise UserError(
                "a learner cannot be asked from within its own step while peers are side by side; "
                "build it with peers_at_once=1, or run it with --threads 1"
            )
        if self._holder != me:
            with self._guard:
                gate = threading.Lock()
                free = self._holder is None
                if free:
                    self._holder = me
                else:
                    gate.acquire()
                    self._waiting.append(gate)
            if not free:
                self._wait(gate, me)
        self.depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.depth -= 1
        if self.depth == 0:
            self._hand_over()

    def _wait(self, gate: threading.Lock, me: int) -> None:
        try:
            gate.acquire()
            self._holder = me
        except BaseException:  # Ctrl-C: leave the queue, or pass on what was just handed over
            with self._guard:
                handed = gate not in self._waiting
                if not handed:
                    self._waiting.remove(gate)
            if handed:
                self._hand_over()
            raise

    def _hand_over(self) -> None:
        with self._guard:
            self._holder = _HANDED_OVER if self._waiting else None
            if self._waiting:
                self._waiting.popleft().release()
