"""Progress: one line that keeps changing on a terminal, a line per task elsewhere."""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from peerlearn.errors import UserError
from peerlearn.metrics.table import MAIN
from peerlearn.records.folder import run_path, variant_name
from peerlearn.records.schema import Config
from peerlearn.units import duration, percent


class Console:
    """Tells a person how runs go on; the protocol card once, before the first of a kind."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.out = stream or sys.stderr
        self.live = self.out.isatty()
        self.label, self.scores, self.card = "", "", ""
        self.total = self.done = self.first = 0
        self.started = self.shown = 0.0

    def begin(self, run: Config, card: str, batches: int, done: int) -> None:
        """Name the run, and say where it goes on."""
        self.label = label(run)
        self.total, self.done, self.first, self.scores = batches, done, done, ""
        self.started = self.shown = time.monotonic()
        if card != self.card and self.live:
            self._line(card)
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
        text = ", ".join(part for part in parts if part)
        self._write(f"\r\x1b[K{self.label}: {text}, {duration(left)} left")

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """A line for the task that has ended."""
        self.scores = f"AA {percent(summary['AA'])} LA {percent(summary['LA'])}"
        seconds = duration(summary["cost"]["train_seconds"])
        batches = f"batch {self.done}/{self.total}"
        self._line(f"{self.label}: task {task + 1} done, {batches}, {self.scores}, {seconds}")

    def end(self, summary: dict[str, Any]) -> None:
        """A line for the run."""
        self._line(f"{self.label}: done, {_metrics(summary)}")

    def reuse(self, run: Config, metrics: Mapping[str, float | None]) -> None:
        """A line for a run that was finished before."""
        self._line(f"{label(run)}: was done before, {_metrics(metrics)}")

    def decoding(self, done: int, total: int) -> None:
        """Renew the line while images are decoded, which happens once per data set."""
        now = time.monotonic()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            self._write(f"\r\x1b[Kdecoding images, once: {done} of {total}")

    def close(self) -> None:
        """Nothing is left to say."""

    def _line(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n" if self.live else f"{text}\n")

    def _write(self, text: str) -> None:
        with suppress(BrokenPipeError):  # training goes on when nobody reads
            self.out.write(text)
            self.out.flush()


class TensorBoard(Console):
    """Tells the same, and writes it for TensorBoard as well."""

    def __init__(self, folder: str, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "--tensorboard: TensorBoard is not installed; pip install 'peerlearn[tensorboard]'"
            ) from error
        self.folder, self.make = Path(folder), SummaryWriter
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
    return f"{run.method} {run.data} m{run.memory}{variant} seed {run.seed}"


def _metrics(summary: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {percent(summary.get(name))}" for name in MAIN)
