"""One run: train over the stream, evaluate after each task, go on after a crash."""

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TextIO

import torch

from peerlearn.augment import ViewChain
from peerlearn.blurry import BlurryStream
from peerlearn.data import Dataset, load
from peerlearn.errors import UserError
from peerlearn.experiment.evaluate import Scores
from peerlearn.experiment.files import RunFolder, environment
from peerlearn.experiment.settings import COLLABORATION, FIELDS, SCHEMA, Resolved, Settings
from peerlearn.learner import Collaboration, OnlineLearner, collaboration
from peerlearn.learner.presets import authors_options, find_method
from peerlearn.nets import ResNet18
from peerlearn.peer import Optim
from peerlearn.runtime import keep_freed_memory, peak_memory, reset_peak_memory
from peerlearn.stream import ClassStream, Stream

LOG_EVERY = 10  # batches between lines of steps.jsonl
CHECKPOINT_SECONDS = 60.0
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class Stopped(Exception):  # noqa: N818
    """The run was asked to stop, and has saved where it stands."""


class Watcher(Protocol):
    """Who is told how a run goes on."""

    def begin(self, settings: Settings, card: str, batches: int, done: int) -> None:
        """A run begins, or goes on after `done` of its batches."""

    def step(self, batch: int, task: int, losses: dict[str, float]) -> None:
        """A batch has been learnt."""

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """A task has been evaluated."""

    def end(self, summary: dict[str, Any]) -> None:
        """The run is finished."""

    def reuse(self, settings: Settings, summary: dict[str, Any]) -> None:
        """The run was finished before."""

    def decoding(self, done: int, total: int) -> None:
        """Images of the data set are being decoded."""

    def close(self) -> None:
        """No more runs are to come."""


def run(wanted: Resolved, out: Path, watcher: Watcher, root: Path | None = None) -> dict[str, Any]:
    """Finish the run of these settings, from wherever it stands; its summary.

    out: the folder of all runs. root: where data sets lie, if not in the usual places.
    """
    folder = RunFolder(out, wanted.settings)
    found = folder.finished(wanted)
    if found is None:
        settings = folder.settle(wanted)
        keep_freed_memory()
        reset_peak_memory()
        torch.set_num_threads(settings.threads)
        data = load(settings.data, root, size=settings.image_size, progress=watcher.decoding)
        stream = make_stream(settings, data)
        learner = make_learner(settings, stream)  # what cannot be is refused before files are made
        with folder.locked():
            settings = folder.claim(wanted, fingerprint(data))
            found = folder.finished(wanted)  # by another process, in the meantime
            if found is None:
                return _Run(settings, folder, stream, learner, watcher).go_on()
    watcher.reuse(wanted.settings, found)
    return found


def fingerprint(data: Dataset) -> str:
    """What tells one state of a data set from another: its labels, names and sizes."""
    digest = hashlib.sha256(repr((data.train.class_names, data.train.x.shape)).encode())
    for part in (data.train, data.test):
        digest.update(part.y.numpy().tobytes())
    return digest.hexdigest()[:16]


def make_stream(settings: Settings, data: Dataset) -> Stream:
    """The stream of a run."""
    train, test = data.train, data.test
    if settings.train_per_class is not None:
        train = train.first_per_class(settings.train_per_class)
    if settings.test_per_class is not None:
        test = test.first_per_class(settings.test_per_class)
    part = Dataset(train, test, data.name)
    if settings.blur:
        return BlurryStream(part, settings.tasks, settings.batch, settings.seed, blur=settings.blur)
    return ClassStream(part, settings.tasks, settings.batch, settings.seed)


def make_learner(settings: Settings, stream: Stream) -> OnlineLearner:
    """The learner of a run, untrained."""
    base, plus, kind = settings.method.partition("+")
    chosen = find_method(base)
    own = {k: getattr(settings, k) for k in chosen.own_settings() if k in FIELDS}
    method = chosen(stream.info, **authors_options(base, settings.profile), **own)
    c = Collaboration()
    if plus:
        chain = ViewChain(
            stages=settings.stages or 0,
            ops=settings.ops or 0,
            magnitude=settings.magnitude or 0,
            per_sample=bool(settings.per_sample),
        )
        given = {name: getattr(settings, name) for name in COLLABORATION}
        c = collaboration(kind, base, chain=chain, profile=settings.profile, **given)
    normalise: dict[str, Any] = IMAGENET if settings.normalise else {}
    net = partial(
        ResNet18,
        stream.info.num_classes,
        width=settings.width,
        stem=settings.stem,  # type: ignore[arg-type]
        pool=settings.pool,  # type: ignore[arg-type]
        **normalise,
    )
    return OnlineLearner(
        method,
        net,
        c,
        memory=settings.memory,
        seed=settings.seed,
        optim=Optim(settings.lr, settings.weight_decay, (0.9, settings.beta2)),
        updates=settings.updates,
        device=settings.device,
        precision=settings.precision,  # type: ignore[arg-type]
    )


class _Run:
    """A run under way: what `run` needs beside the learner to go on and to write its files."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        stream: Stream,
        learner: OnlineLearner,
        watcher: Watcher,
    ) -> None:
        self.settings, self.folder, self.stream = settings, folder, stream
        self.learner, self.watcher = learner, watcher
        self.scores = Scores(len(self.learner.peers), ncm=settings.memory > 0)
        self.memory_classes: list[list[int]] = []
        self.train_seconds = self.eval_seconds = 0.0
        self.peak = 0

    def go_on(self) -> dict[str, Any]:
        """Train and evaluate from where the run stands to its end."""
        self._resume()
        threads = torch.get_num_threads()
        self.folder.write("environment.json", environment(threads, self.settings.device))
        self._write_results("running")
        total = sum(len(task) for task in self.stream.tasks)
        done = self.learner.progress.batches
        self.watcher.begin(self.settings, self.stream.card(), total, done)
        try:
            with _asked_to_stop() as asked:
                with self.folder.steps.open("a") as log:
                    for task in self.stream.tasks[len(self.scores.ensemble) :]:
                        self._learn_task(task.index, log, asked)
                        self._end_task(task.index, log)
                        if asked and task.index + 1 < len(self.stream.tasks):
                            raise Stopped
                summary = self._write_results("done")
                self.watcher.end(summary)
                if asked:  # what comes after this run was meant as well
                    raise Stopped
                return summary
        except (Stopped, KeyboardInterrupt):
            raise
        except Exception as error:
            with suppress(UserError):  # a full disk must not hide what went wrong
                self._write_results("failed")
            if isinstance(error, OSError):
                raise self.folder.unwritable("steps.jsonl", error) from error
            raise

    def _learn_task(self, index: int, log: TextIO, asked: list[int]) -> None:
        task = self.stream.tasks[index]
        before = sum(len(t) for t in self.stream.tasks[:index])
        saved = time.monotonic()
        for batch in task.batches(start=self.learner.progress.batches - before):
            start = time.perf_counter()
            losses = self.learner.learn(*batch)
            seconds = time.perf_counter() - start
            self.train_seconds += seconds
            done = self.learner.progress.batches
            if done % LOG_EVERY == 0:
                line = {"batch": done, "task": index, "losses": losses, "seconds": seconds}
                log.write(json.dumps(line) + "\n")
            self.watcher.step(done, index, losses)
            if asked or time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save(log)
                saved = time.monotonic()
            if asked:
                raise Stopped

    def _end_task(self, index: int, log: TextIO) -> None:
        if self.stream.info.boundaries:
            self.learner.end_task()
        start = time.perf_counter()
        self.scores.add(self.learner, self.stream.test_sets[: index + 1])
        self.eval_seconds += time.perf_counter() - start
        counts = torch.zeros(self.stream.info.num_classes, dtype=torch.int64)
        if len(self.learner.memory):
            labels = self.learner.memory["y"].cpu()
            counts = torch.bincount(labels, minlength=self.stream.info.num_classes)
        self.memory_classes.append(counts.tolist())
        self.folder.write("accuracy.json", self._accuracy())
        summary = self._write_results("running")
        self._save(log)
        self.watcher.task(index, summary)

    def _accuracy(self) -> dict[str, Any]:
        classes = self.stream.info.num_classes // len(self.stream.tasks)
        names = list(self.stream.class_names)
        head = {"schema": SCHEMA, "class_names": names, "classes_per_task": classes}
        return head | self.scores.to_lists()

    def _write_results(self, status: str) -> dict[str, Any]:
        cost = self.learner.cost
        seen = max(cost["stream_images"], 1)
        self.peak = max(self.peak, peak_memory())
        summary = {
            "schema": SCHEMA,
            "status": status,
            **{name: getattr(self.settings, name) for name in ("data", "method", "memory", "seed")},
            **self.scores.summary(),
            "cost": {
                "forward_per_image": cost["forward_images"] / seen,
                "backward_per_image": cost["backward_images"] / seen,
                "train_seconds": self.train_seconds,
                "eval_seconds": self.eval_seconds,
                "peak_bytes": self.peak,
                "kept_bytes": self.learner.kept_bytes,
            },
            "memory_classes": self.memory_classes,
        }
        return self.folder.write("summary.json", summary)

    def _save(self, log: TextIO) -> None:
        """Save the learner together with all that this run has found so far."""
        log.flush()
        os.fsync(log.fileno())
        extra = {
            "scores": self.scores.to_lists(),
            "memory_classes": self.memory_classes,
            "seconds": [self.train_seconds, self.eval_seconds],
            "peak": self.peak,
            "log_bytes": self.folder.steps.stat().st_size,
        }
        self.learner.save(self.folder.checkpoint, extra)

    def _resume(self) -> None:
        """Go back to the last checkpoint, if there is one, and forget what was logged after it."""
        log_bytes = 0
        if (self.folder.checkpoint / "state.json").exists():
            extra = self.learner.load(self.folder.checkpoint)
            self.scores.restore(extra["scores"])
            self.memory_classes = extra["memory_classes"]
            self.train_seconds, self.eval_seconds = extra["seconds"]
            self.peak, log_bytes = extra["peak"], extra["log_bytes"]
        if self.folder.steps.exists():
            os.truncate(self.folder.steps, min(log_bytes, self.folder.steps.stat().st_size))


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM wait for the step to end: the list holds the signals that came."""
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        asked.append(number)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
