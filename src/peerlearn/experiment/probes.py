"""Probes: what a run can be asked about itself while it learns, and not afterwards.

Whoever answers is in evaluation mode and nothing is drawn that learning draws, so that a run with
probes learns the same as one without.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.devices import generator
from peerlearn.experiment.curve import Curve, sample
from peerlearn.experiment.settings import ProbeSettings
from peerlearn.files import Log
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.snapshot import EVAL_BATCH
from peerlearn.records.folder import RunFolder
from peerlearn.stream.base import Batch, Stream, Task

SAMPLE = 10  # test images of each class


class Probes:
    """Asks a learner every so many batches, and writes what it says to probes.jsonl.

    Use it in a `with`, after `restore`.

    Args:
        settings: how often each question is asked.
        curve: the accuracy along the stream, whose points are written as well.
        learner: who is asked.
        stream: what the learner learns.
        epochs: passes over each task, of which one is looked at.
        folder: of the run.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        curve: Curve,
        learner: OnlineLearner,
        stream: Stream,
        epochs: int,
        folder: RunFolder,
    ) -> None:
        self.settings, self.curve, self.learner = settings, curve, learner
        self.stream, self.epochs, self.folder = stream, epochs, folder
        self._bytes = 0
        self._log: Log | None = None

    def __enter__(self) -> Self:
        if self.settings.current_loss or self.settings.disagreement or self.curve.how:
            self._log = Log(self.folder.probes)
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.__exit__()
            self._log = None

    def restore(self, size: int) -> None:
        """Forget what was written after probes.jsonl had this size."""
        self.folder.truncate_probes(size)
        self._bytes = size

    def flush(self) -> int:
        """Wait until all lines are on the disk; how many bytes they are."""
        if self._log is not None:
            self._bytes = self._log.flush()
        return self._bytes

    def ask(self, batch: int, task: int) -> None:
        """Ask what is due after this batch of the stream, which is one of this task."""
        found: dict[str, Any] = {}
        if _due(self.settings.current_loss, batch):
            images = images_of(self.stream.tasks[task], self.epochs)
            found["current_loss"] = mean_cross_entropy(self.learner, images)
        if _due(self.settings.disagreement, batch) and len(self.learner.peers) > 1:
            x = torch.cat(self._sample[: task + 1])
            said = self.learner.snapshot("peers").outputs(x, features=False).logits
            found["disagreement"] = disagreement(said)
        start = sum(map(len, self.stream.tasks[:task]))
        if batch < start + len(self.stream.tasks[task]) and (point := self.curve.inside(task)):
            found |= point._asdict()
        self._write(batch, task, start, found)

    def ask_at_end(self, batch: int, task: int, said: Tensor) -> None:
        """Ask what is due at the end of a task. said: as `Curve.at_end` has it."""
        if point := self.curve.at_end(task, said):
            self._write(batch, task, sum(map(len, self.stream.tasks[:task])), point._asdict())

    def _write(self, batch: int, task: int, start: int, found: Mapping[str, Any]) -> None:
        if found and self._log is not None:
            self.folder.log_probe(self._log, batch, task, start, found)

    @cached_property
    def _sample(self) -> list[Tensor]:
        """Some test images of each task."""
        rng = generator(self.learner.seed, "probes")
        return [sample(test, SAMPLE, rng).x for test in self.stream.test_sets]


def _due(every: int, batch: int) -> bool:
    return every > 0 and batch % every == 0


def images_of(task: Task, epochs: int = 1) -> Iterator[Batch]:
    """All training images of a task, once, some hundreds at a time."""
    held: list[Batch] = []
    for batch in islice(task.batches(), len(task) // epochs):
        held.append(batch)
        if sum(len(b.y) for b in held) >= EVAL_BATCH:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(batches: list[Batch]) -> Batch:
    return Batch(torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches]))


def mean_cross_entropy(learner: OnlineLearner, images: Iterator[Batch]) -> float:
    """Of the first peer, among all classes, in nats."""
    total, count = 0.0, 0
    for x, y in images:
        logits = learner.logits(x, peer=0).cpu()
        total += float(F.cross_entropy(logits.double(), y, reduction="sum"))
        count += len(y)
    return total / count


def disagreement(logits: list[Tensor]) -> float:
    """The share of images that not all peers put into the same class. logits: (B, C) of each.

    >>> one, two = torch.eye(4), torch.eye(4)[[0, 1, 3, 2]]
    >>> disagreement([one, two])
    0.5
    """
    said = torch.stack(logits).argmax(dim=2)  # (peers, B)
    return float((said != said[0]).any(dim=0).double().mean())
