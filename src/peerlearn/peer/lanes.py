"""Lanes: peers compute side by side, each in a thread of its own."""

import _thread
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import torch

from peerlearn.errors import UserError

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = 3  # interrupts after which nobody waits any longer

# Of processes that were forked when torch had computed, one in some 400 ended by a signal in its
# first convolutions in two threads, so there it is one after the other.
_PROCESS = os.getpid()

_here = threading.local()


def waiting_caller() -> int | None:
    """Of a thread that is a lane, the number of the thread that waits for it; None for others."""
    caller: int | None = getattr(_here, "caller", None)
    return caller


class Abandoned(KeyboardInterrupt):
    """Somebody would not wait for a computation to end; it may still be under way."""


class Lanes:
    """Threads that compute for several peers at once, to the bit as if these took turns.

    Numbers depend on how many threads torch takes for one computation. That number, and whether
    gradients are wanted, a lane has from the thread that asks; how many lanes there are changes no
    number. What the items share must not change meanwhile. In a forked process it is one after the
    other.

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
        self._lanes: list[_Lane] = []
        self._made_for = 0  # threads per computation

    def map(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The action's results in the order of the items, once all have ended.

        The first error in that order is raised. When this returns or raises, be it for an
        interrupt, nothing is under way any more; unless it raises `Abandoned`, for the third one.
        """
        count = min(self.count, len(items))
        if count <= 1 or waiting_caller() is not None or os.getpid() != _PROCESS:
            return [action(item) for item in items]
        lanes, grad, me = self._ready(), torch.is_grad_enabled(), threading.get_ident()
        streams = self._streams.waiting_for_caller()

        def act(number: int) -> R:
            _here.caller = me
            with torch.set_grad_enabled(grad), streams(number):
                return action(items[number])

        jobs = [_Job(act, number) for number in range(len(items))]
        try:
            for number, job in enumerate(jobs):
                lanes[number % count].do(job)
            for job in jobs:
                job.wait()
        finally:
            try:
                _end(jobs)
            finally:
                self._streams.caller_waits()
        return [job.result() for job in jobs]

    def _ready(self) -> "list[_Lane]":
        """Lanes with as many threads per computation as the caller."""
        wanted = torch.get_num_threads()
        if self._made_for != wanted:
            self._lanes = [_Lane(wanted) for _ in range(self.count)]
            self._made_for = wanted
        return self._lanes


class _Job(Generic[R]):
    """Something to be done once, by a lane or by nobody."""

    def __init__(self, action: Callable[[int], R], number: int) -> None:
        self._action, self._number = action, number
        self._taken: dict[str, str] = {}  # its setdefault decides at one stroke, without a lock
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self._ended = False
        self._found: R | None = None
        self._error: BaseException | None = None

    def taken_by(self, who: str) -> bool:
        """Whether it is who's to do; the first to ask has it, however often they ask."""
        return self._taken.setdefault("by", who) == who

    def run(self) -> None:
        """Do it, in a lane."""
        try:
            if self.taken_by("lane"):
                self._found = self._action(self._number)
        except BaseException as error:  # noqa: BLE001 - of whatever kind, it is the caller's
            self._error = error
        finally:
            self._ended = True
            self._under_way.release()

    def wait(self) -> None:
        """Until it has ended."""
        while not self._ended:  # not for ever at a stretch: Ctrl-C would have to wait
            self._under_way.acquire(timeout=0.1)

    def result(self) -> R:
        """What the action gave; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._found  # type: ignore[return-value]


def _end(jobs: Sequence[_Job[Any]]) -> None:
    """See that nothing is under way and nothing will be, whatever interrupts."""
    interrupts: list[BaseException] = []
    waiting = list(jobs)
    while waiting:
        try:
            if not waiting[-1].taken_by("nobody"):
                waiting[-1].wait()
            waiting.pop()
        except BaseException as error:  # who takes a step back must be alone
            interrupts.append(error)
            if len(interrupts) == PATIENCE:
                raise Abandoned from error
    if interrupts:
        raise interrupts[0]


class _Lane:
    """A thread that does one job after the other; it ends when nobody holds this any more."""

    def __init__(self, threads: int) -> None:
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        _thread.start_new_thread(_work, (self._jobs, threads))  # Thread.start breaks if interrupted
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def do(self, job: _Job[Any]) -> None:
        self._jobs.put(job)


def _work(jobs: "SimpleQueue[_Job[Any] | None]", threads: int) -> None:
    torch.set_num_threads(threads)
    torch.get_num_threads()  # makes it this thread's own; otherwise the next one to set wins
    while (job := jobs.get()) is not None:
        job.run()
        del job  # what it holds may be large


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
