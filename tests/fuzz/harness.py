"""Runs cases of the fuzzer in processes of their own: a case may end one, or never come back.

A case is a function of a seed and an empty folder. It makes a file from the seed, hands it to the
program, and says "read" or "refused"; whatever it raises is a fault that was found.
"""

import multiprocessing
import os
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import torch

Case = Callable[[int, Path], str]
OUTCOMES = ("read", "refused")
LIMIT = 2.0  # seconds of computing that a case may take
PATIENCE = 10.0  # seconds until a case that does not come back is given up
CASES_PER_PROCESS = 500
PROCESSES = multiprocessing.get_context("fork")


class Report(NamedTuple):
    """What became of a case."""

    seed: int
    outcome: str  # one of OUTCOMES, or "signal", "traceback", "slow"
    seconds: float
    what: str = ""  # the signal or the traceback

    @property
    def failed(self) -> bool:
        return self.outcome not in OUTCOMES


def run_cases(case: Case, seeds: Iterable[int], folder: Path) -> Counter[str]:
    """How many cases were read and refused; fails with the seed of the first that did neither."""
    counts: Counter[str] = Counter()
    for report in watch(case, seeds, folder):
        assert not report.failed, f"seed {report.seed}: {report.outcome} {report.what}"
        counts[report.outcome] += 1
    return counts


def watch(case: Case, seeds: Iterable[int], folder: Path, jobs: int = 1) -> Iterator[Report]:
    """Run a case for every seed, `jobs` at a time; a process that is lost is followed by another.

    folder: where each of them gets a folder to work in.
    """
    waiting = iter(seeds)
    workers = [_Worker(case, waiting, folder / f"{case.__module__}-{i}") for i in range(jobs)]
    try:
        while workers := [worker for worker in workers if worker.busy()]:
            wait([worker.reports for worker in workers], timeout=0.1)
            for worker in workers:
                yield from worker.news()
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that works through some seeds, and what is left of them."""

    def __init__(self, case: Case, waiting: Iterator[int], folder: Path) -> None:
        self.case, self.waiting, self.folder = case, waiting, folder
        self.seeds: list[int] = []
        self.process: multiprocessing.process.BaseProcess | None = None

    def busy(self) -> bool:
        """See to it that there is a process at work; False if no seeds are left."""
        self.seeds = self.seeds or list(islice(self.waiting, CASES_PER_PROCESS))
        if self.seeds and self.process is None:
            self.reports, sending = PROCESSES.Pipe(duplex=False)
            self.process = PROCESSES.Process(
                target=_work, args=(self.case, self.seeds, self.folder, sending), daemon=True
            )
            self.process.start()
            sending.close()
            self.heard = time.monotonic()
        return bool(self.seeds)

    def news(self) -> Iterator[Report]:
        """The cases that have ended since the last call, one way or another."""
        while self.seeds and self.reports.poll():
            try:
                outcome, seconds, what = self.reports.recv()
            except EOFError:  # it died
                yield self._lost("signal")
                return
            self.heard = time.monotonic()
            slow = seconds > LIMIT and outcome in OUTCOMES
            yield Report(self.seeds.pop(0), "slow" if slow else outcome, seconds, what)
        if not self.seeds:
            self.end()
        elif time.monotonic() - self.heard > PATIENCE:
            yield self._lost("slow")

    def _lost(self, outcome: str) -> Report:
        """Give up a process, and the case at which it was."""
        seconds = time.monotonic() - self.heard
        process = self.process
        self.end()
        code = process.exitcode if process and outcome == "signal" else None
        what = "" if code is None else f"the process ended with code {code}"
        return Report(self.seeds.pop(0), outcome, seconds, what)

    def end(self) -> None:
        """Let no process be left."""
        if self.process is None:
            return
        if self.seeds:
            self.process.kill()
        self.process.join()
        self.reports.close()
        self.process = None


def _work(case: Case, seeds: list[int], folder: Path, sending: Connection) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    for seed in seeds:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        start, what = time.process_time(), ""  # others may have the machine
        try:
            with open(os.devnull, "w") as unread, redirect_stdout(unread), redirect_stderr(unread):
                outcome = case(seed, folder)
            if outcome not in OUTCOMES:
                raise ValueError(f"a case says one of {OUTCOMES}, not {outcome!r}")
        except BaseException:  # noqa: BLE001
            outcome, what = "traceback", traceback.format_exc()
        sending.send((outcome, time.process_time() - start, what))
