"""Learners on the CPU and on the pretend devices, each taught once for all tests."""

from functools import cache, partial
from typing import Any, NamedTuple

import pretend
import torch
from torch import Tensor

from peerlearn import METHODS, ClassStream, OnlineLearner, build_learner, small_net, toy_images
from peerlearn.distill import WRAPPERS
from peerlearn.nets.processor import Devices

PEERS = [f"{method}+ccldc" for method in METHODS]
NAMES = [*METHODS, *PEERS, *(f"er+{wrapper}" for wrapper in WRAPPERS if wrapper != "ccldc")]
ONE, TWO = "pretend:0", "pretend:0,pretend:1"
STREAM = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)
BATCHES = 2  # of each task: the memory is full from then on, so that MIR has a choice


class Taught(NamedTuple):
    learner: OnlineLearner
    losses: list[dict[str, float]]
    waits: int  # the most that a step had to wait, after the first, which looks at the networks


def build(name: str, device: Devices = "cpu", **settings: Any) -> OnlineLearner:
    """A new learner."""
    if name.startswith("mir"):
        settings = {"replay_batch": 6, "candidates": 12} | settings
    if name == "er+untrained":
        settings = {"peers": 2} | settings
    settings = {"net": partial(small_net, 4, width=4), "memory": 20, "updates": 1} | settings
    return build_learner(name, STREAM.info, device=device, **settings)


@cache
def taught(name: str, device: str = "cpu") -> Taught:
    """A learner that nobody may change."""
    return teach(build(name, device))


def teach(learner: OnlineLearner) -> Taught:
    """The first batches of each task."""
    losses, most = [], 0
    for task in STREAM:
        for batch, _ in zip(task, range(BATCHES), strict=False):
            pretend.waits.clear()
            losses.append(learner.learn(*batch))
            if len(losses) > 1:
                most = max(most, len(pretend.waits))
        if task.index == 0:
            learner.end_task()
    return Taught(learner, losses, most)


def differences(one: OnlineLearner, two: OnlineLearner) -> list[str]:
    """The names of what two learners do not have alike, to the bit, wherever it is."""
    a, b = (_tensors(learner) for learner in (one, two))
    return [name for name in {**a, **b} if name not in a or name not in b or _differ(a, b, name)]


def _tensors(learner: OnlineLearner) -> dict[str, Tensor]:
    return {k: v.cpu() for k, v in learner.state_dict().items() if isinstance(v, Tensor)}


def _differ(a: dict[str, Tensor], b: dict[str, Tensor], name: str) -> bool:
    return a[name].dtype != b[name].dtype or not torch.equal(a[name], b[name])
