"""Worker threads, jobs with waits that Ctrl-C can interrupt, and CUDA streams."""

import _thread
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import torch

R = TypeVar("R")

MAX_INTERRUPTS = 3  # the last of them ends the wait for a computation


class ForcedInterrupt(KeyboardInterrupt):
    """The wait for a computation was given up; it may still be under way."""


class Job(Generic[R]):
    """An action that is done once, by a thread of the pool or not at all."""

    def __init__(self, action: Callable[[int], R], number: int) -> None:
        self._action, self._number = action, number
        self._taken: dict[str, str] = {}  # its setdefault decides at one stroke, without a lock
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self._ended = False
        self._found: R | None = None
        self._error: BaseException | None = None

    def taken_by(self, taker: str) -> bool:
        """Return whether the taker has the job; the first to ask has it, however often it asks."""
        return self._taken.setdefault("by", taker) == taker

    def run(self) -> None:
        """Do it, in a thread of the pool."""
        try:
            if self.taken_by("thread"):
                self._found = self._action(self._number)
        except BaseException as error:  # noqa: BLE001 - of whatever kind, it is the caller's
            self._error = error
        finally:
            self._ended = True
            self._under_way.release()

    def wait(self) -> None:
        """Wait until it has ended."""
        while not self._ended:  # not for ever at a stretch: Ctrl-C would have to wait
            self._under_way.acquire(timeout=0.1)

    def result(self) -> R:
        """Return what the action gave, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._found  # type: ignore[return-value]


def end_all(jobs: Sequence[Job[Any]]) -> None:
    """Cancel jobs that have not begun, wait for the others, then raise the first interrupt."""
    interrupts: list[BaseException] = []
    waiting = list(jobs)
    while waiting:
        try:
            if not waiting[-1].taken_by("caller"):
                waiting[-1].wait()
            waiting.pop()
        except BaseException as error:  # a step that is undone must be alone
            interrupts.append(error)
            if len(interrupts) == MAX_INTERRUPTS:
                raise ForcedInterrupt from error
    if interrupts:
        raise interrupts[0]


class Worker:
    """A thread that does one job after the other; it ends once this object is gone."""

    def __init__(self, torch_threads: int) -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        # Thread.start breaks if it is interrupted
        _thread.start_new_thread(_work, (self._jobs, torch_threads))
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def do(self, job: Job[Any]) -> None:
        """Let the thread do a job, after those that it was given before."""
        self._jobs.put(job)


def _work(jobs: "SimpleQueue[Job[Any] | None]", torch_threads: int) -> None:
    torch.set_num_threads(torch_threads)
    torch.get_num_threads()  # makes it this thread's own; otherwise the next one to set wins
    while (job := jobs.get()) is not None:
        job.run()
        del job  # what it holds may be large


class CudaStreams:
    """One CUDA stream for each item that is on a CUDA device; on others nothing."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._own = [torch.cuda.Stream(d) if d.type == "cuda" else None for d in devices]
        self._callers: list[torch.cuda.Stream | None] = []

    def waiting_for_caller(self) -> Callable[[int], torch.cuda.StreamContext | nullcontext[None]]:
        """Return, by an item's number, a context that runs after what the caller has begun."""
        self._callers = [s and torch.cuda.current_stream(s.device) for s in self._own]
        for own, callers in zip(self._own, self._callers, strict=True):
            if own is not None and callers is not None:
                own.wait_stream(callers)
        return lambda number: torch.cuda.stream(self._own[number]) if self._own else nullcontext()

    def caller_waits(self) -> None:
        """Let the caller's next work run after what the items have begun."""
        for own, callers in zip(self._own, self._callers, strict=True):
            if own is not None and callers is not None:
                callers.wait_stream(own)
