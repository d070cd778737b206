"""Runs the command inside the process of a test, or in one that the test kills."""

import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from peerlearn import cli
from peerlearn.data import Dataset, load
from peerlearn.experiment import images
from peerlearn.experiment import run as running

# Two batches per task of a net with one channel: a whole run in a second.
SMALL = [
    *("--data", "mini", "--memory", "20", "--width", "1"),
    *("--train-per-class", "10", "--test-per-class", "5"),
]
VARIANT = "train_per_class=10,test_per_class=5,width=1"


def folder(out: Path, method: str = "er_ace+ccldc", variant: str = VARIANT) -> Path:
    """Where a small run has its files."""
    return out / "mini" / method / "m20" / variant / "seed0"


def command(*words: str) -> int:
    """The exit code of `peerlearn` with these words."""
    return cli.main(words)


@cache
def mini() -> Dataset:
    """The pictures of `mini`, decoded once for all runs of a test process."""
    return load("mini")


def load_quickly(data: str, *args: Any, **options: Any) -> Dataset:
    """Stands for `load`."""
    return mini() if data == "mini" else load(data, *args, **options)


def run_small(out: Path, *words: str, method: str = "er_ace+ccldc") -> int:
    """A small run, with a checkpoint after every batch."""
    torch.set_num_threads(1)
    with (
        patch.object(os, "fsync"),  # a killed process, unlike a power cut, loses nothing written
        patch.object(running, "CHECKPOINT_SECONDS", 0.0),
        patch.object(images, "load", load_quickly),
    ):
        given = ("--peer-threads", "1", "--out", str(out), *words)
        return command("run", *method.split(), *SMALL, *given)


def run_small_and_exit(out: Path, method: str) -> None:
    """The same as a process of its own."""
    raise SystemExit(run_small(out, method=method))


def run_beside_others(out: Path, said: Path, method: str, seconds: float, together: Any) -> None:
    """A process that takes at least some seconds for each batch; what it says goes to a file.

    together: a barrier at which it waits for the others, or None.
    """
    learn = running.OnlineLearner.learn

    def slowly(learner: Any, *batch: Any, **how: Any) -> Any:
        time.sleep(seconds)
        return learn(learner, *batch, **how)

    running.OnlineLearner.learn = slowly  # type: ignore[method-assign]
    if together is not None:
        together.wait()
    with said.open("w") as sys.stderr:
        code = run_small(out, "--net", "small", method=method)
    raise SystemExit(code)
