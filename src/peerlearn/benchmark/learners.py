"""Learners to be timed: in the second of two tasks, their memory full."""

import gc
from collections.abc import Iterator
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor

from peerlearn.learner.build import build_learner
from peerlearn.learner.online import OnlineLearner
from peerlearn.memory.reservoir import Reservoir
from peerlearn.methods.interface import Shape
from peerlearn.nets.resnet import ResNet18
from peerlearn.stream.base import Batch, StreamInfo

BATCH, BATCHES = 10, 8


class Scene(NamedTuple):
    """How large the problem is: CIFAR-10 with a slim network and the memory of the first table."""

    width: int = 16
    memory: int = 200
    classes: int = 10
    pixels: int = 32

    def net(self) -> ResNet18:
        """A network for it."""
        return ResNet18(self.classes, width=self.width)

    def images(self, count: int, seed: int = 0) -> Tensor:
        """Some noise, (count, 3, pixels, pixels) uint8."""
        rng = torch.Generator().manual_seed(seed)
        shape = (count, 3, self.pixels, self.pixels)
        return torch.randint(256, shape, generator=rng, dtype=torch.uint8)


class Subject(NamedTuple):
    """A learner, and batches to go on with, without end."""

    learner: OnlineLearner
    batches: Iterator[Batch]

    def step(self) -> dict[str, float]:
        """Learn the next batch."""
        return self.learner.learn(*next(self.batches))


def untrained(name: str, scene: Scene, **options: Any) -> OnlineLearner:
    """A learner that was just built. options: of `build_learner`."""
    half = scene.classes // 2
    info = StreamInfo(num_classes=scene.classes, boundaries=True, classes_per_task=half)
    return build_learner(name, info, **{"net": scene.net, "memory": scene.memory, **options})


def prepared(name: str, scene: Scene, **options: Any) -> Subject:
    """A learner far into the second task, whose steps are all alike; it has taken one.

    Its memory is full, holds as much of both tasks, and hardly changes any more.
    """
    gc.collect()  # what was timed before takes no memory any more
    learner, half = untrained(name, scene, **options), scene.classes // 2
    classes = torch.arange(scene.classes)
    if scene.memory:
        labels = torch.arange(scene.memory) % scene.classes
        fill_memory(learner, scene.images(scene.memory), labels)
    learner.progress = learner.progress.meeting(classes[:half]).after_batch({})
    learner.end_task()
    learner.progress = learner.progress.meeting(classes[half:])
    stream = scene.images(BATCH * BATCHES, seed=1).split(BATCH)
    y = (half + torch.arange(BATCH * BATCHES) % (scene.classes - half)).split(BATCH)
    subject = Subject(learner, cycle(map(Batch, stream, y)))
    subject.step()
    return subject


def fill_memory(learner: OnlineLearner, x: Tensor, y: Tensor) -> None:
    """Put images (N, 3, H, W) uint8 and labels (N,) into a memory, as if among many others."""
    extras = {
        column: torch.zeros(len(x), *_sizes(learner, shape))
        for column, shape in learner.method.stores.items()
    }
    learner.memory.add(learner.rngs["memory"], x=x, y=y, **extras)
    if isinstance(learner.memory, Reservoir):
        learner.memory.seen *= 100


def _sizes(learner: OnlineLearner, shape: Shape) -> tuple[int, ...]:
    model = learner.peers[0].model
    known = {"classes": learner.method.stream.num_classes, "features": model.feature_dim}
    if model.projection is not None:
        known["projection"] = model.projection.out_features
    return tuple(known[size] if isinstance(size, str) else size for size in shape)
