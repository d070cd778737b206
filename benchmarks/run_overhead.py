"""What `peerlearn run` adds to a bare loop around `learner.learn`.

    python benchmarks/run_overhead.py         # about a minute on two quiet cores

Both train the same learner on the same batches, in turns; evaluation is left out on both sides, and
each side's median step is compared, and its total.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from peerlearn.data import load
from peerlearn.experiment import run as running
from peerlearn.experiment.progress import Console
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.run import make_learner, run
from peerlearn.runtime import keep_freed_memory

ROUNDS = 3


class Silent(Console):
    """A console that prints nothing."""

    def _line(self, text: str) -> None:
        pass


def bare(resolved: Resolved) -> float:
    """Seconds of a loop around `learn`."""
    stream = resolved.stream.stream(load(resolved.data), resolved.seed)
    learner = make_learner(resolved, stream)
    seconds = 0.0
    for task in stream.tasks:
        start = time.perf_counter()
        for batch in task.batches():
            learner.learn(*batch)
        seconds += time.perf_counter() - start
        learner.end_task()
    return seconds


def through_run(resolved: Resolved) -> float:
    """Seconds that a run spends in its loop over batches."""
    seconds = 0.0
    learn_task = running._Run._learn_task

    def timed(self: Any, *args: Any) -> None:
        nonlocal seconds
        start = time.perf_counter()
        learn_task(self, *args)
        seconds += time.perf_counter() - start

    running._Run._learn_task = timed  # type: ignore[method-assign, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(resolved, Path(folder), Silent())
    finally:
        running._Run._learn_task = learn_task  # type: ignore[method-assign]
    return seconds


def main() -> None:
    keep_freed_memory()
    given = {"data": "mini", "train_per_class": 40, "test_per_class": 1}
    resolved = resolve("er", [Given(k, v, "flag", f"--{k}") for k, v in given.items()])
    bare(resolved)  # warms up
    pairs = [(through_run(resolved), bare(resolved)) for _ in range(ROUNDS)]
    for ours, theirs in pairs:
        print(f"run {ours:.2f} s, bare {theirs:.2f} s, {100 * (ours / theirs - 1):+.1f} %")
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"median: {100 * (ours / theirs - 1):+.1f} %")


if __name__ == "__main__":
    main()
