"""A learner whose save is killed."""

import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from conftest import same, tensors

from crash.layer import Layer
from crash.runs import end
from peerlearn import ClassStream, OnlineLearner, build_learner, small_net, toy_images


class Save(NamedTuple):
    """A save that is killed at one call; over an older checkpoint, or as the first of all."""

    method: str
    stop: int  # 0: it is not killed
    how: str
    first: bool


def calls_of(save: Save, scratch: Path) -> list[str]:
    """What a save does."""
    learner, stream = _learner(save.method)
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        folder = Path(work) / "checkpoint"
        _older(save, learner, stream, folder)
        with Layer(folder) as layer:
            learner.save(folder)
    return layer.calls


def state_after(save: Save, scratch: Path) -> str:
    """Whether a kill leaves the "old" or the "new" state to be loaded, "none", or another."""
    learner, stream = _learner(save.method)
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        folder = Path(work) / "checkpoint"
        _older(save, learner, stream, folder)
        old = tensors(learner)
        learner.learn(*list(stream.tasks[0])[2])
        new = tensors(learner)

        def killed() -> int:
            with Layer(folder, save.stop, save.how):
                learner.save(folder)
            return 0

        end(-signal.SIGKILL, killed, folder)
        if not (folder / "state.json").exists():
            return "none"
        found, _ = _learner(save.method)
        found.load(folder)
        state = tensors(found)
        found.learn(*next(iter(stream.tasks[1])))
        found.save(folder)  # what was left is not in the way
        return "old" if same(state, old) else "new" if same(state, new) else "another"


def _learner(method: str) -> tuple[OnlineLearner, ClassStream]:
    torch.set_num_threads(1)
    stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=5, seed=0)
    net = partial(small_net, 4, width=1)
    return build_learner(method, stream.info, net, memory=10, seed=0), stream


def _older(save: Save, learner: OnlineLearner, stream: ClassStream, folder: Path) -> None:
    for batch in list(stream.tasks[0])[:2]:
        learner.learn(*batch)
        if not save.first:
            learner.save(folder)
