"""How long a run will take and how much memory, from a few of its steps on this machine."""

import statistics
import time
from typing import NamedTuple

import torch

from peerlearn.benchmark.learners import fill_memory
from peerlearn.experiment.evaluate import Scores
from peerlearn.experiment.images import Loader
from peerlearn.experiment.resolve import Resolved
from peerlearn.experiment.run import make_learner
from peerlearn.learner.online import OnlineLearner
from peerlearn.runtime import keep_freed_memory, peak_memory
from peerlearn.stream.base import Stream

STEPS = 3  # that are timed, after one that is not
TESTS = 64  # images on which evaluation is timed


class Estimate(NamedTuple):
    """What a run will take: seconds from its start to its end, and the most memory it will hold."""

    seconds: float
    peak_bytes: int


def cost_key(run: Resolved) -> str:
    """Equal for runs that take as long as each other: they differ in seeds, rates or weights."""
    kept = {
        name: value
        for name, value in run.values.items()
        if name not in ("seed", "profile")
        and not (isinstance(value, float) and name.startswith(("optim.", "method.", "collab")))
    }
    return f"{run.method} {sorted(map(str, kept.items()))}"


def calibrate(run: Resolved, loader: Loader) -> Estimate:
    """Take a few steps as in the middle of a run, its memory full, and evaluate a little.

    The process is to be used for nothing else: its peak counts, and what it took to begin.
    """
    begin, imports = time.perf_counter(), time.process_time()
    keep_freed_memory()
    images = loader(run, lambda *_: None)
    stream = run.stream.stream(images.data, run.seed)
    learner = make_learner(run, stream, peers_at_once=max(torch.get_num_threads(), 1))
    torch.set_num_threads(1)
    start = imports + time.perf_counter() - begin
    batches, tests = sum(map(len, stream.tasks)), [len(part) for part in stream.test_sets]
    evaluated = sum(sum(tests[: i + 1]) for i in range(len(tests)))
    _reach_the_second_task(learner, stream)
    steps = []
    second = stream.tasks[:2][-1]
    for batch, _ in zip(second.batches(), range(STEPS + 1), strict=False):
        begin = time.perf_counter()
        learner.learn(*batch)
        steps.append(time.perf_counter() - begin)
    step = statistics.median(steps[1:] or steps)
    per_image = _evaluation(learner, stream)
    kept = run.memory * len(stream.tasks)  # nearest class means look at the memory after each task
    seconds = start + step * batches + per_image * (evaluated + kept)
    if rehearsals := run.run.rehearsals(batches * run.stream.batch, len(stream.tasks)):
        begin = time.perf_counter()
        learner.rehearse(STEPS)
        seconds += (time.perf_counter() - begin) / STEPS * rehearsals
    return Estimate(seconds, peak_memory())


def _reach_the_second_task(learner: OnlineLearner, stream: Stream) -> None:
    first = stream.tasks[0]
    wanted = min(learner.memory.capacity, 10_000)
    x, y = [], []
    for batch in first.batches():
        x.append(batch.x)
        y.append(batch.y)
        if sum(map(len, x)) >= wanted:
            break
    if wanted:
        times = -(-wanted // sum(map(len, x)))
        fill_memory(learner, torch.cat(x * times)[:wanted], torch.cat(y * times)[:wanted])
    if len(stream.tasks) > 1:
        learner.progress = learner.progress.meeting(torch.cat(y).unique()).after_batch({})
        if stream.info.boundaries:
            learner.end_task()


def _evaluation(learner: OnlineLearner, stream: Stream) -> float:
    """Seconds for an image."""
    rows = torch.arange(min(TESTS, len(stream.test_sets[0])))
    tests = [stream.test_sets[0].take(rows)]
    scores = Scores(learner, ncm=False)
    begin = time.perf_counter()
    scores.add(learner, tests)
    return (time.perf_counter() - begin) / max(len(rows), 1)
