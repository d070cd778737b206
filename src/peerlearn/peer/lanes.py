"""Lanes: peers compute side by side, each in a thread of its own."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import TypeVar

import torch

from peerlearn.errors import UserError

T = TypeVar("T")
R = TypeVar("R")


class Lanes:
    """Threads that compute for several peers at once, to the bit as if these took turns.

    Numbers depend on how many threads torch takes for one computation. That number, and whether
    gradients are wanted, a lane has from the thread that asks; how many lanes there are changes no
    number.

    Args:
        count: computations at a time; 1 for one after the other in the calling thread.
        devices: of the items; on CUDA each item has a stream of its own.

    >>> Lanes(2).map(lambda x: x + 1, [1, 2, 3])
    [2, 3, 4]
    """

    def __init__(self, count: int, devices: Sequence[torch.device] = ()) -> None:
        if not hasattr(count, "__index__") or isinstance(count, bool) or count < 1:
            raise UserError(f"peers_at_once must be a whole number from 1 on, got {count!r:.60}")
        self.count = count
        self._streams = _Streams(devices)
        self._pools: list[ThreadPoolExecutor] = []  # of one thread each
        self._made_for: tuple[int, int] | None = None  # process and threads per computation

    def map(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The action's results in the order of the items, once all have ended.

        The first error in that order is raised. After an interrupt nothing is under way any more.
        """
        count = min(self.count, len(items))
        if count <= 1:
            return [action(item) for item in items]
        pools, grad = self._ready(), torch.is_grad_enabled()
        streams = self._streams.waiting_for_caller()

        def act(number: int) -> R:
            with torch.set_grad_enabled(grad), streams(number):
                return action(items[number])

        try:
            futures = [pools[i % count].submit(act, i) for i in range(len(items))]
            wait(futures)
        except BaseException:
            self._drain()
            raise
        self._streams.caller_waits()
        return [future.result() for future in futures]

    def _ready(self) -> list[ThreadPoolExecutor]:
        """Lanes with as many threads per computation as the caller; made anew after a fork."""
        wanted = (os.getpid(), torch.get_num_threads())
        if self._made_for != wanted:
            begin = _takes_threads(wanted[1])
            self._pools = [
                ThreadPoolExecutor(1, f"peer lane {i}", begin) for i in range(self.count)
            ]
            self._made_for = wanted
        return self._pools

    def _drain(self) -> None:
        """Wait until every lane is idle, whatever interrupts."""
        for pool in self._pools:
            idle = False
            while not idle:
                try:
                    pool.submit(int).result()  # a lane does one thing after the other
                    idle = True
                except KeyboardInterrupt:
                    continue  # somebody is impatient; whoever takes the step back must be alone


def _takes_threads(threads: int) -> Callable[[], None]:
    def begin() -> None:
        torch.set_num_threads(threads)
        torch.get_num_threads()  # makes it this thread's own; otherwise the next one to set wins

    return begin


class _Streams:
    """A stream of its own for each item that is on a CUDA device; on others nothing."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._own = [torch.cuda.Stream(d) if d.type == "cuda" else None for d in devices]
        self._callers: list[torch.cuda.Stream | None] = []

    def waiting_for_caller(self) -> Callable[[int], torch.cuda.StreamContext | nullcontext[None]]:
        """By the number of an item, a context in which it runs after what the caller has begun."""
        self._callers = [s and torch.cuda.current_stream(s.device) for s in self._own]
        for own, callers in zip(self._own, self._callers, strict=True):
            if own is not None and callers is not None:
                own.wait_stream(callers)
        return lambda number: (
            torch.cuda.stream(self._own[number]) if self._own else nullcontext()
        )

    def caller_waits(self) -> None:
        """What the caller begins from now on runs after what the items have begun."""
        for own, callers in zip(self._own, self._callers, strict=True):
            if own is not None and callers is not None:
                callers.wait_stream(own)
