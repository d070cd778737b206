"""Progress of a sweep: a block that keeps changing on a terminal, a line per event elsewhere."""

import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from peerlearn.studies.job import Job
from peerlearn.studies.picture import (
    ENDLESS,
    MOST_LINES,
    Tally,
    count,
    headline,
    listed,
    short_names,
    wrapped,
)
from peerlearn.studies.process import Ended
from peerlearn.studies.state import Planned, State, reason, state
from peerlearn.studies.sweep import Result, Sweep
from peerlearn.units import duration, percent, printable

SHOWN = 1.0  # seconds between two pictures
PLAIN = 600.0  # seconds between two lines that only say that it goes on
MOST_FAILURES = 20  # that are listed at the end


class Lines:
    """Tells how a sweep goes on.

    Args:
        runs: all of them, by key; more may become known.
        done: how many were done before.
        slots: runs at once, for the time that is left.
        stream: where to; standard error by default.
    """

    def __init__(
        self, runs: Mapping[str, Planned], done: int, slots: int, stream: TextIO | None = None
    ) -> None:
        self.out, self.runs, self.done = stream or sys.stderr, runs, done
        self.live = self.out.isatty()
        self.failed = self.stopped = 0
        self.tally = Tally(slots)
        self._names: dict[str, str] = {}
        self._running: dict[str, tuple[Job, float]] = {}  # and when it began
        self._waiting: Iterable[Job] = ()  # a view of those that have not begun
        self._drawn = 0  # lines of the block on the terminal
        self._shown = time.monotonic() - (SHOWN if self.live else 0)

    def begin(self, left: int, executor: object) -> None:
        """Say what is to be done."""
        self._names, shared = short_names(list(self.runs.values()))
        before = f", {self.done} done before" if self.done else ""
        alike = f", all {shared}" if shared else ""
        self._line(f"{count(left)} to do{before}{alike}; {executor}")

    def end(self, failed: Sequence[Result], stopped: int) -> None:
        """Say what was given up, where it lies, and what is left."""
        for one in failed[:MOST_FAILURES]:
            self._line(f"failed: {one.job.folder.path}: {why(one)}")
        if len(failed) > MOST_FAILURES:
            more, out = len(failed) - MOST_FAILURES, failed[0].job.place.out
            self._line(f"and {more} more; peerlearn status {out} --json has them all")
        if failed:
            where = "its folder" if len(failed) == 1 else "their folders"
            self._line(f"{count(len(failed))} failed; error.log in {where} has what was said")
        if stopped:
            self._line(f"stopped and saved, {count(stopped)} left; the same command goes on")

    def started(self, job: Job) -> None:
        """Note when."""
        self._running[job.key] = job, time.monotonic()

    def again(self, job: Job, ended: Ended, attempt: int) -> None:
        """A line for a death."""
        self._running.pop(job.key, None)
        said = reason(ended.said) or f"its process {ended.how}"
        self._line(f"{self._name(job)}: {said}; goes on from its checkpoint (try {attempt + 1})")

    def result(self, result: Result) -> None:
        """A line for the end of a run."""
        job, ended = result.job, result.ended
        self._running.pop(job.key, None)
        if result.how == "stopped":
            self.stopped += 1
            self._event(f"{self._name(job)}: stopped and saved")
            return
        if result.how == "failed":
            self.failed += 1
            self._event(f"{self._name(job)}: failed, {why(result)}")
            return
        self.done += 1
        found = state(job.place.out, self.runs[job.key])
        took = f", {duration(ended.seconds)}" if ended else ", by another process"
        if ended:
            self.tally.finished(self.runs[job.key].kind, ended.seconds)
        left = "" if self.live else self._time_left()
        left = f"; {left}" if left else ""
        self._event(f"{self._name(job)}: done, AA {percent(found.aa)}{took}{left}")

    def show(self, sweep: Sweep) -> None:
        """Renew the block; where there is no terminal, say now and then how it stands."""
        now, self._waiting = time.monotonic(), sweep.waiting
        if now - self._shown < (SHOWN if self.live else PLAIN):
            return
        self._shown = now
        lines = self._block(sweep, now)
        if self.live:
            self._redraw(lines)
        else:
            self._write(f"{printable(lines[0])}\n")

    def _block(self, sweep: Sweep, now: float) -> list[str]:
        width = self._size().columns - 1 if self.live else ENDLESS
        states = self._states()
        spent = {key: now - began for key, (_, began) in self._running.items()}
        running, ended = len(self._running), self.done + self.failed + self.stopped
        left = len(self.runs) - ended - running
        time_left = self._time_left(states)
        if left > len(sweep.waiting) + len(sweep.elsewhere):  # it has been asked to stop
            time_left = "stopping: runs save; Ctrl-C again ends them"
        head = headline(self.done, running, left, self.failed, time_left, self.stopped)
        lines = wrapped(head, width)
        lines += listed(states, self._names, spent, width, more=running - len(states))
        if sweep.elsewhere:
            lines.append(f"  {len(sweep.elsewhere)} in other processes"[:width])
        return lines

    def _states(self) -> list[State]:
        """Where runs under way stand; of a thousand on a cluster not all are read every second."""
        first = list(self._running.items())[:MOST_LINES]
        return [state(job.place.out, self.runs[key]) for key, (job, _) in first]

    def _time_left(self, states: Sequence[State] = ()) -> str:
        now, known = time.monotonic(), {one.run.key: one for one in states}
        running = [
            (known.get(key) or State(self.runs[key], "running"), now - began)
            for key, (_, began) in self._running.items()
        ]
        return self.tally.left([self.runs[job.key].kind for job in self._waiting], running)

    def close(self) -> None:
        """Leave the terminal clean."""
        self._redraw([])

    def _event(self, text: str) -> None:
        total = len(self.runs)
        self._line(f"[{self.done + self.failed}/{total}] {text}")

    def _line(self, text: str) -> None:
        self._redraw([])
        self._write(f"{printable(text)}\n")

    def _redraw(self, lines: Sequence[str]) -> None:
        if not self.live:
            return
        size = self._size()
        shown = [printable(line)[: size.columns - 1] for line in lines][: size.lines - 1]
        back = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        self._drawn = len(shown)
        self._write(back + "".join(f"{line}\n" for line in shown))

    def _size(self) -> os.terminal_size:
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self.out.fileno())
        return shutil.get_terminal_size()

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # work goes on when nobody reads
            self.out.write(text)
            self.out.flush()

    def _name(self, job: Job) -> str:
        return self._names.get(job.key, job.label)


def why(result: Result) -> str:
    """Why a run was given up."""
    if result.ended is None:
        return "it could not begin"
    return reason(result.ended.said) or f"its process {result.ended.how}"
