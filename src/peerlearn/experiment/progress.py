"""Progress: one line that keeps changing on a terminal, a line per task elsewhere."""

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from peerlearn.errors import UserError
from peerlearn.metrics.table import MAIN
from peerlearn.records.folder import run_path, variant_name
from peerlearn.records.schema import Config
from peerlearn.units import duration, percent, printable


class Console:
    """Tells a person how runs go on; the protocol card once, before the first of a kind.

    Args:
        stream: where to; standard error by default.
        runs: the methods of all runs that are to be.
    """

    def __init__(self, stream: TextIO | None = None, runs: Sequence[str] = ()) -> None:
        self.out, self.runs = stream or sys.stderr, len(runs)
        self.to_come = Counter(runs)  # by method
        self.live = self.out.isatty()
        self.label, self.method, self.scores, self.card = "", "", "", ""
        self.number = self.total = self.done = self.first = 0
        self.started = self.shown = 0.0
        self.seconds: dict[str, float] = {}  # that the last run of a method took, or would have
        self.notes: set[str] = set()

    def note(self, text: str) -> None:
        """A line about the data or the machine, once."""
        if text not in self.notes:
            self._line(printable(text))
        self.notes.add(text)

    def wait(self, run: Config) -> None:
        """A line for a run that another process works on."""
        self._line(f"{label(run)}: another process is working on this run; waiting for it")

    def begin(self, run: Config, card: str, batches: int, done: int) -> None:
        """Name the run, and say where it goes on."""
        self.label, self.method = self._next(run), run.method
        self.total, self.done, self.first, self.scores = batches, done, done, ""
        self.started = self.shown = time.monotonic()
        if card != self.card and self.live:
            self._line("\n".join(map(printable, card.splitlines())))
        self.card = card
        if done:
            self._line(f"{self.label}: goes on after batch {done} of {batches}")

    def step(self, batch: int, task: int, losses: dict[str, float]) -> None:
        """Renew the line, a few times a second at the most."""
        self.done = batch
        now = time.monotonic()
        if not self.live or now - self.shown < 0.2:
            return
        self.shown = now
        pace = (now - self.started) / max(batch - self.first, 1)
        left = pace * (self.total - batch)
        self.seconds[self.method] = pace * self.total
        loss = f"loss {losses['base']:.2f}" if "base" in losses else ""
        where, until = f"batch {batch}/{self.total}", f"{duration(left)} left{self._in_all(left)}"
        number = f"run {self.number} of {self.runs}, " if self.runs > 1 else ""
        lines = [  # as much as there is room for; what a person waits for stays longest
            f"{self.label}: " + _listed(f"task {task + 1}", where, loss, self.scores, until),
            f"{self.label}: " + _listed(f"task {task + 1}", where, until),
            f"{number}{self.method}: {where}, {until}",
            f"{number}{self.method}: {where}, {duration(left)} left",
            f"{self.method}: {where}, {duration(left)} left",
            f"{where}, {duration(left)} left",
        ]
        width = self._width() - 1  # a full line would wrap
        line = next((line for line in lines if len(line) <= width), _cut(lines[-1], width))
        self._write(f"\r\x1b[K{line}")

    def _in_all(self, left: float) -> str:
        """How long this run and those to come will take, if there was one of each method."""
        if not self.to_come.total() or self.to_come.keys() - self.seconds.keys():
            return ""
        seconds = left + sum(n * self.seconds[method] for method, n in self.to_come.items())
        return f", ~{duration(seconds)} for all runs"

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """A line for the task that has ended."""
        self.scores = f"AA {percent(summary['AA'])} LA {percent(summary['LA'])}"
        seconds = duration(summary["cost"]["train_seconds"])
        batches = f"batch {self.done}/{self.total}"
        self._line(f"{self.label}: task {task + 1} done, {batches}, {self.scores}, {seconds}")

    def end(self, summary: dict[str, Any]) -> None:
        """A line for the run."""
        k = summary["cost"].get("relative")
        took = "" if k is None else f", k {k:.1f}"
        self._line(f"{self.label}: done, {_metrics(summary)}{took}")
        if learnt := self.total - self.first:
            self.seconds[self.method] = (time.monotonic() - self.started) / learnt * self.total

    def reuse(self, run: Config, metrics: Mapping[str, float | None]) -> None:
        """A line for a run that was finished before."""
        self._line(f"{self._next(run)}: was done before, {_metrics(metrics)}")

    def decoding(self, done: int, total: int) -> None:
        """Renew the line while images are decoded, which happens once per data set."""
        now = time.monotonic()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            text = f"decoding images, once: {done} of {total}"
            self._write(f"\r\x1b[K{_cut(text, self._width() - 1)}")

    def close(self) -> None:
        """Nothing is left to say."""

    def _next(self, run: Config) -> str:
        """The label of the next run, with its number if there are several."""
        self.number += 1
        self.to_come = +(self.to_come - Counter([run.method]))
        return f"run {self.number} of {self.runs}, {label(run)}" if self.runs > 1 else label(run)

    def _width(self) -> int:
        """How many letters a line of the terminal holds."""
        try:
            return os.get_terminal_size(self.out.fileno()).columns or 80
        except OSError:  # no terminal of the system's
            return shutil.get_terminal_size().columns

    def _line(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n" if self.live else f"{text}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # training goes on when nobody reads
            self.out.write(text)
            self.out.flush()


def _listed(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: max(longest - 1, 0)]}…"


class TensorBoard(Console):
    """Tells the same, and writes it for TensorBoard as well.

    Args:
        folder: where its logs go; a folder of its own for each run.
        stream: as above.
        runs: as above.
    """

    def __init__(
        self, folder: Path, stream: TextIO | None = None, runs: Sequence[str] = ()
    ) -> None:
        super().__init__(stream, runs)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "--tensorboard: TensorBoard is not installed; pip install 'peerlearn[tensorboard]'"
            ) from error
        self.folder, self.make = folder, SummaryWriter
        self.writer: Any = None

    def begin(self, run: Config, card: str, batches: int, done: int) -> None:
        """Open a log for the run; of a resumed one, what is to be learnt again is forgotten."""
        super().begin(run, card, batches, done)
        self.close()
        place = run_path(self.folder, run)
        self.writer = self.make(str(place), purge_step=done + 1 if done else None)

    def step(self, batch: int, task: int, losses: dict[str, float]) -> None:
        """Log the losses."""
        super().step(batch, task, losses)
        for name, value in losses.items():
            self.writer.add_scalar(f"loss/{name}", value, batch)

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """Log the metrics."""
        super().task(task, summary)
        for name in MAIN:
            if summary[name] is not None:
                self.writer.add_scalar(f"metric/{name}", summary[name], self.done)

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()


def label(run: Config) -> str:
    """A run in a few words."""
    variant = f" {variant_name(run.variant)}" if run.variant else ""
    return printable(f"{run.method} {run.data} m{run.memory}{variant} seed {run.seed}")


def _metrics(summary: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {percent(summary.get(name))}" for name in MAIN)
