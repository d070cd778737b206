"""Progress: one line that keeps changing on a terminal, a line per task elsewhere."""

import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from peerlearn.errors import UserError
from peerlearn.metrics.table import MAIN
from peerlearn.records.folder import run_path, variant_name
from peerlearn.records.schema import Config
from peerlearn.units import duration, percent, printable

SHORTEST_LABEL = 12  # letters that are left of a label, however narrow the terminal


class Console:
    """Tells a person how runs go on; the protocol card once, before the first of a kind.

    Args:
        stream: where to; standard error by default.
        runs: how many there are to be.
    """

    def __init__(self, stream: TextIO | None = None, runs: int = 1) -> None:
        self.out, self.runs = stream or sys.stderr, runs
        self.live = self.out.isatty()
        self.label, self.scores, self.card = "", "", ""
        self.number = self.total = self.done = self.first = 0
        self.started = self.shown = 0.0
        self.seconds: list[float] = []  # that each run of this command took, or would have
        self.notes: set[str] = set()

    def note(self, text: str) -> None:
        """A line about the data set, once."""
        if text not in self.notes:
            self._line(printable(text))
        self.notes.add(text)

    def wait(self, run: Config) -> None:
        """A line for a run that another process works on."""
        self._line(f"{label(run)}: another process is working on this run; waiting for it")

    def begin(self, run: Config, card: str, batches: int, done: int) -> None:
        """Name the run, and say where it goes on."""
        self.label = self._next(run)
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
        loss = f"loss {losses['base']:.2f}" if "base" in losses else ""
        parts = [f"task {task + 1}", f"batch {batch}/{self.total}", loss, self.scores]
        parts.append(f"{duration(left)} left")
        if self.number < self.runs:  # those to come may be cheaper or dearer: a guess
            whole = fmean([*self.seconds, pace * self.total])
            parts.append(f"~{duration(left + whole * (self.runs - self.number))} in all")
        text = ", ".join(part for part in parts if part)
        self._write(f"\r\x1b[K{fitted(self.label, text, self._width())}")

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """A line for the task that has ended."""
        self.scores = f"AA {percent(summary['AA'])} LA {percent(summary['LA'])}"
        seconds = duration(summary["cost"]["train_seconds"])
        batches = f"batch {self.done}/{self.total}"
        self._line(f"{self.label}: task {task + 1} done, {batches}, {self.scores}, {seconds}")

    def end(self, summary: dict[str, Any]) -> None:
        """A line for the run."""
        self._line(f"{self.label}: done, {_metrics(summary)}")
        if learnt := self.total - self.first:
            self.seconds.append((time.monotonic() - self.started) / learnt * self.total)

    def reuse(self, run: Config, metrics: Mapping[str, float | None]) -> None:
        """A line for a run that was finished before."""
        self._line(f"{self._next(run)}: was done before, {_metrics(metrics)}")

    def decoding(self, done: int, total: int) -> None:
        """Renew the line while images are decoded, which happens once per data set."""
        now = time.monotonic()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            text = fitted("decoding images, once", f"{done} of {total}", self._width())
            self._write(f"\r\x1b[K{text}")

    def close(self) -> None:
        """Nothing is left to say."""

    def _next(self, run: Config) -> str:
        """The label of the next run, with its number if there are several."""
        self.number += 1
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
        with suppress(BrokenPipeError):  # training goes on when nobody reads
            self.out.write(text)
            self.out.flush()


def fitted(label: str, text: str, width: int) -> str:
    """A label and what there is to say, in one line of a terminal; the label is cut first.

    >>> fitted("run 3 of 36, er_ace+ccldc mini m200 seed 0", "task 1, 21.5 s left", 48)
    'run 3 of 36, er_ace+ccldc…: task 1, 21.5 s left'
    """
    room = max(width - len(text) - 3, SHORTEST_LABEL)  # a full line would wrap
    line = f"{_cut(label, room)}: {text}"
    return _cut(line, width - 1)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: max(longest - 1, 0)]}…"


class TensorBoard(Console):
    """Tells the same, and writes it for TensorBoard as well.

    Args:
        folder: where its logs go; a folder of its own for each run.
        stream: as above.
        runs: as above.
    """

    def __init__(self, folder: Path, stream: TextIO | None = None, runs: int = 1) -> None:
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
