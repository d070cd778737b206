"""DER++: dark experience replay with labels."""

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from peerlearn.augment import Augmentation
from peerlearn.losses import LabelledImages, classification_loss, joined
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import (
    ForwardOutput,
    Method,
    MethodSettings,
    Progress,
    Shape,
    StepOutput,
    replayed,
)
from peerlearn.peer import Peer
from peerlearn.settings import setting


class DarkDraw(NamedTuple):
    """Groups as the peers see them and as the method trains on them, and what to match."""

    group: LabelledImages
    stream: LabelledImages | None  # None in a step on the memory alone
    memory: LabelledImages | None  # a draw of it, if it holds any image
    dark_x: Tensor | None  # (B, 3, H, W) another draw, augmented ...
    dark_logits: Tensor | None  # (B, C) ... and what was answered when those images came by


class DERPP(Method[DarkDraw]):
    """CE(stream) + alpha MSE(memory A, logits stored with it) + beta CE(memory B).

    Dark experience replay with labels: Buzzega et al., NeurIPS 2020,
    https://arxiv.org/abs/2004.07211

    The stored logits are those of the step in which an image came by, under that step's
    augmentation; with several peers they are the mean of theirs, and all regress to it. A class
    that came later was not asked about then, and is left out of it.

    Args:
        stream: what the stream tells before its first batch.
        alpha: weight of the stored logits.
        beta: weight of the labels of the second draw.
        replay_batch: memory images in each of the two draws of a step.
        augment: by name, how the images that it trains on are augmented.

    >>> from peerlearn import StreamInfo
    >>> DERPP(StreamInfo(num_classes=10), alpha=0.5).settings.alpha
    0.5
    """

    class Settings(MethodSettings):
        """What DER++ can be told."""

        alpha: float = setting(0.2, "weight of the stored logits", ge=0)
        beta: float = setting(1.0, "weight of the labels of the second draw", ge=0)
        augment: Augmentation = setting("crop_flip", "augmentation of what it trains on")

    settings: Settings
    name = "derpp"
    images_per_sample = 2
    stores: ClassVar[Mapping[str, Shape]] = {"logits": ("classes",)}
    fill_values: ClassVar[Mapping[str, float]] = {"logits": math.nan}  # was not asked about them
    authors: ClassVar[Mapping[str, Any]] = {"augment": "crop_flip_shared"}

    @override
    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> DarkDraw:
        """The stream batch and two independent draws of the memory."""
        stream = batch._replace(x=self.augment(batch.x, rng))
        if not len(memory):
            return DarkDraw(batch, stream, None, None, None)
        drawn = self.draw_rehearsal(memory, progress, rng)
        return drawn._replace(group=joined(batch, drawn.group), stream=stream)

    @override
    def draw_rehearsal(self, memory: Memory, progress: Progress, rng: torch.Generator) -> DarkDraw:
        """Return two independent draws of the memory."""
        count = self.settings.replay_batch
        dark = memory.draw(count, rng)
        plain = replayed(memory.draw(count, rng))
        dark_x = self.augment(replayed(dark).x, rng)
        train = plain._replace(x=self.augment(plain.x, rng))
        return DarkDraw(plain, None, train, dark_x, dark["logits"])

    def loss(self, peer: Peer, draw: DarkDraw) -> StepOutput:
        """Return the three terms: of the stream batch, and of what was replayed, where there is."""
        losses, answers, store = [], [], {}
        if draw.stream is not None:
            answers.append(ForwardOutput(draw.stream.x, peer.logits(draw.stream.x)))
            losses.append(classification_loss(answers[0].logits, draw.stream))
            store["logits"] = answers[0].logits.detach()
        if draw.dark_x is not None and draw.dark_logits is not None:
            dark = dark_loss(peer.logits(draw.dark_x), draw.dark_logits)
            losses.append(self.settings.alpha * dark)
        if draw.memory is not None:
            answers.append(ForwardOutput(draw.memory.x, peer.logits(draw.memory.x)))
            labels = classification_loss(answers[-1].logits, draw.memory)
            losses.append(self.settings.beta * labels)
        return StepOutput(reduce(torch.add, losses), answers, store)

    @override
    def groups(self, draw: DarkDraw, rng: torch.Generator) -> list[LabelledImages]:
        """Stream and memory B, as one group."""
        return [draw.group]


def dark_loss(logits: Tensor, stored: Tensor) -> Tensor:
    """The mean squared difference from what was stored, which is NaN for classes that came later.

    logits, stored: (B, C). What has nothing to be compared with differs by nothing.

    >>> dark_loss(torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, torch.nan]]))
    tensor(2.)
    """
    return F.mse_loss(logits, torch.where(stored.isnan(), logits.detach(), stored))
