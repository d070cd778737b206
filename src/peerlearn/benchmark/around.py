"""What there is around a step: evaluation, checkpoints, start-up, the command's own loop."""

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.benchmark.learners import BATCH, Scene, Subject, prepared
from peerlearn.benchmark.timing import Action, Effort, in_turns, with_and_without
from peerlearn.data.images import ImageSet
from peerlearn.experiment.curve import Curve
from peerlearn.experiment.evaluate import Scores
from peerlearn.experiment.images import Loader
from peerlearn.experiment.progress import Console
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.run import make_learner, run
from peerlearn.experiment.settings import EvaluationSettings as Evaluation
from peerlearn.learner.snapshot import EVAL_BATCH
from peerlearn.runtime import child_environment

TEST_IMAGES = 500
EVERY, PROBE = 100, 10  # stream images between points, test images per class
FLAGS = {"data": "mini", "train_per_class": 20, "test_per_class": 1}  # of a short run


def evaluation(
    names: Sequence[str], widths: Sequence[int], effort: Effort
) -> Iterator[dict[str, Any]]:
    """Prediction next to bare forwards, nearest means, and all that a run evaluates."""
    for width in widths:
        for name in names:
            scene = Scene(width=width)
            subject = prepared(name, scene)
            actions = prediction(subject, scene.images(TEST_IMAGES, seed=2))
            times = in_turns([*actions.values()], effort._replace(seconds=4.0))
            yield {
                "learner": name,
                "width": width,
                "images": TEST_IMAGES,
                "memory": scene.memory,
                **{f"{key}_seconds": some.median for key, some in zip(actions, times, strict=True)},
            }


def prediction(subject: Subject, x: Tensor) -> dict[str, Action]:
    """The ways to answer: each may follow the one before it or the one after it."""
    learner = subject.learner
    models = [peer.model for peer in learner.peers]
    parts = [part.float().div(255) for part in x.split(EVAL_BATCH)]
    pixels = [part.contiguous(memory_format=models[0].layout) for part in parts]
    images = ImageSet(x, torch.zeros(len(x), dtype=torch.int64), ("one",))

    def bare() -> None:
        with torch.no_grad():
            for model in models:
                model.eval()
                for part in pixels:
                    model.net(part)
                model.train()

    def first_means() -> None:
        learner.refresh()  # as after a step
        learner.predict_ncm(x)

    def of_run() -> None:
        learner.refresh()
        Scores(learner, ncm=True).add(learner, [images])

    return {
        "bare": bare,
        "predict": lambda: learner.predict(x),
        "means_first": first_means,
        "means_again": lambda: learner.predict_ncm(x),
        "run": of_run,
    }


def along(
    names: Sequence[str], widths: Sequence[int], effort: Effort
) -> Iterator[dict[str, Any]]:
    """Ten batches with what a run may be asked along the stream, and without, by turns."""
    asked = {
        f"{PROBE} images per class": Evaluation(evaluate_every=EVERY, probe=PROBE),
        "each batch, before": Evaluation(prequential=1000),
    }
    for width, name, (what, settings) in product(widths, names, asked.items()):
        scene = Scene(width=width)
        subject = prepared(name, scene)
        y = torch.arange(PROBE * scene.classes) % scene.classes
        tests = [ImageSet(scene.images(len(y), seed=2), y, tuple(map(str, range(scene.classes))))]
        curve = Curve(settings, subject.learner, tests, settings.prequential)
        curve.met[:] = True  # which costs most
        ways = [partial(_learn_some, subject, curve), partial(_learn_some, subject, None)]
        found = with_and_without(*in_turns(ways, effort))
        yield {"learner": name, "width": width, "asked": what, **found}


def _learn_some(subject: Subject, curve: Curve | None) -> None:
    for batch in islice(subject.batches, EVERY // BATCH):
        if curve is not None:
            curve.before(batch)
        subject.learner.learn(*batch)
        if curve is not None:
            curve.inside(0)


def checkpoint(
    names: Sequence[str], widths: Sequence[int], effort: Effort
) -> Iterator[dict[str, Any]]:
    """A checkpoint saved and loaded, with its size."""
    for width in widths:
        for name in names:
            found = saved_and_loaded(prepared(name, Scene(width=width)), effort)
            yield {"learner": name, "width": width, "memory": Scene().memory, **found}


def saved_and_loaded(subject: Subject, effort: Effort) -> dict[str, float]:
    """Seconds of saving and loading, and bytes."""
    learner = subject.learner
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "checkpoint"
        learner.save(folder)
        actions = [lambda: learner.save(folder), lambda: learner.load(folder)]
        save, load = in_turns(actions, effort._replace(seconds=1.0))
        size = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "bytes": size,
        "save_seconds": save.median,
        "load_seconds": load.median,
    }


STARTS = {
    "python": ["-c", ""],
    "peerlearn --help": ["-m", "peerlearn", "--help"],
    "import torch": ["-c", "import torch"],
    "import peerlearn, torch and a learner": ["-c", "from peerlearn import build_learner"],
}


def startup(effort: Effort) -> Iterator[dict[str, Any]]:
    """Processes from their start to their end."""
    actions = [partial(_child, words) for words in STARTS.values()]
    _child(STARTS["import torch"])  # files are read from the disk once
    times = in_turns(actions, effort._replace(seconds=4.0))
    for name, some in zip(STARTS, times, strict=True):
        yield {"what": name, "seconds": some.median}


def _child(words: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, *words],
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )


class _Clock(Console):
    """Notes when each batch was done, and prints nothing."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.marks: list[tuple[int, float]] = []  # task and time

    @override
    def step(self, batch: int, task: int, losses: dict[str, float]) -> None:
        super().step(batch, task, losses)
        self.marks.append((task, time.perf_counter()))

    @property
    def pace(self) -> float:
        """Median seconds between two batches of a task."""
        return median(
            after - before
            for (task, before), (same, after) in pairwise(self.marks)
            if task == same
        )


def whole_run(
    names: Sequence[str], widths: Sequence[int], effort: Effort
) -> Iterator[dict[str, Any]]:
    """The seconds per batch of `peerlearn run`, and of a loop around `learn`, on `mini`."""
    loader, threads = Loader(), torch.get_num_threads()
    for name, width in product(names, widths):
        flags = {**FLAGS, "width": width, "threads": threads, "peer_threads": threads}
        resolved = resolve(name, [Given(k, v, "flag", f"--{k}") for k, v in flags.items()])
        ways = _Ways(resolved, loader)
        in_turns([ways.through_run, ways.through_loop], effort)
        ours, theirs = median(ways.of_run), median(ways.of_loop)
        yield {
            "learner": name,
            "width": width,
            "run_seconds": ours,
            "loop_seconds": theirs,
            "ratio": ours / theirs,
        }


class _Ways:
    """A short run, by the command and by hand, and the pace of each time."""

    def __init__(self, resolved: Resolved, loader: Loader) -> None:
        self.resolved, self.loader = resolved, loader
        self.of_run: list[float] = []
        self.of_loop: list[float] = []

    def through_run(self) -> None:
        """As the command does it."""
        clock = _Clock()
        with tempfile.TemporaryDirectory() as folder:
            run(self.resolved, Path(folder), clock, self.loader)
        self.of_run.append(clock.pace)

    def through_loop(self) -> None:
        """The same batches, with nothing around `learn`."""
        clock, resolved = _Clock(), self.resolved
        stream = resolved.stream.stream(self.loader(resolved, clock.decoding).data, resolved.seed)
        learner = make_learner(resolved, stream)
        for task in stream.tasks:
            for batch in task.batches():
                learner.learn(*batch)
                clock.marks.append((task.index, time.perf_counter()))
            learner.end_task()
        self.of_loop.append(clock.pace)
