"""What the tests share: a toy stream and learners on it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from peerlearn import ClassStream, OnlineLearner, build_learner, small_net, toy_images

Build = Callable[..., OnlineLearner]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # toy nets are too small to share out


@pytest.fixture(scope="session")
def stream() -> ClassStream:
    """Four classes in two tasks, ten batches of ten each."""
    return ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)


@pytest.fixture(scope="session")
def build(stream: ClassStream) -> Build:
    """A learner by name on that stream."""

    def made(name: str, **settings: Any) -> OnlineLearner:
        settings = {"memory": 20, "seed": 0, "net": partial(small_net, 4, width=4)} | settings
        return build_learner(name, stream.info, **settings)

    return made


def learn_some(
    learner: OnlineLearner, stream: ClassStream, batches: int = 4, start: int = 0
) -> list[dict[str, float]]:
    """Feed `batches` batches of each task, from number `start` of all on; report the losses."""
    losses, number = [], 0
    for task in stream:
        for batch, _ in zip(task, range(batches), strict=False):
            if number >= start:
                losses.append(learner.learn(*batch))
            number += 1
        if number > start:
            learner.end_task()
    return losses


def weights(learner: OnlineLearner, peer: int = 0) -> dict[str, torch.Tensor]:
    """A peer's trained parameters."""
    return {k: v.detach().clone() for k, v in learner.peers[peer].model.named_parameters()}


def tensors(learner: OnlineLearner) -> dict[str, torch.Tensor]:
    """A copy of every tensor that a learner keeps between steps."""
    state = learner.state_dict().items()
    return {name: t.clone() for name, t in state if isinstance(t, torch.Tensor)}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Equal names and equal bits."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
