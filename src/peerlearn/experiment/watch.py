"""Progress: one line that keeps changing on a terminal, a line per task elsewhere."""

import sys
import time
from typing import Any, TextIO

from peerlearn.errors import UserError
from peerlearn.experiment.settings import Settings


class Console:
    """Tells a person how a run goes on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.out = stream or sys.stderr
        self.live = self.out.isatty()
        self.label, self.scores = "", ""
        self.total = self.done = 0
        self.started = self.shown = 0.0

    def begin(self, settings: Settings, batches: int, done: int) -> None:
        """Name the run, and say where it goes on."""
        self.label = f"{settings.method} {settings.data} m{settings.memory} seed {settings.seed}"
        self.total, self.done, self.first, self.scores = batches, done, done, ""
        self.started = self.shown = time.monotonic()
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
        self.out.write(f"\r\x1b[K{self.label}: {text}, {duration(left)} left")
        self.out.flush()

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """A line for the task that has ended."""
        self.scores = f"AA {percent(summary['AA'])} LA {percent(summary['LA'])}"
        seconds = duration(summary["cost"]["train_seconds"])
        batches = f"batch {self.done}/{self.total}"
        self._line(f"{self.label}: task {task + 1} done, {batches}, {self.scores}, {seconds}")

    def end(self, summary: dict[str, Any], reused: bool) -> None:
        """A line for the run."""
        metrics = " ".join(f"{name} {percent(summary[name])}" for name in ("AA", "LA", "FM", "RF"))
        self._line(f"{self.label}: {'was done before' if reused else 'done'}, {metrics}")

    def _line(self, text: str) -> None:
        self.out.write(f"\r\x1b[K{text}\n" if self.live else f"{text}\n")
        self.out.flush()


class TensorBoard:
    """Passes everything on, and writes it for TensorBoard as well."""

    def __init__(self, inner: Console, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "--tensorboard: TensorBoard is not installed; pip install 'peerlearn[tensorboard]'"
            ) from error
        self.inner, self.folder, self.make = inner, folder, SummaryWriter
        self.writer: Any = None
        self.batch = 0

    def begin(self, settings: Settings, batches: int, done: int) -> None:
        """Open a log for the run."""
        self.inner.begin(settings, batches, done)
        place = (settings.data, settings.method, f"m{settings.memory}", f"seed{settings.seed}")
        self.writer = self.make("/".join((self.folder, *place)), purge_step=done)

    def step(self, batch: int, task: int, losses: dict[str, float]) -> None:
        """Log the losses."""
        self.inner.step(batch, task, losses)
        self.batch = batch
        for name, value in losses.items():
            self.writer.add_scalar(f"loss/{name}", value, batch)

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """Log the metrics."""
        self.inner.task(task, summary)
        for name in ("AA", "LA", "FM", "RF"):
            self.writer.add_scalar(f"metric/{name}", summary[name], self.batch)

    def end(self, summary: dict[str, Any], reused: bool) -> None:
        """Close the log."""
        self.inner.end(summary, reused)
        self.writer.close()


def percent(value: float | None) -> str:
    """A share in [0, 1] as a person reads it.

    >>> percent(0.5123), percent(None)
    ('51.2', '-')
    """
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def duration(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> duration(5), duration(192), duration(7300)
    ('5 s', '3 min 12 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
