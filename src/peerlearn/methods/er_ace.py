"""ER-ACE: asymmetric cross-entropy."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.augment import Augmentation
from peerlearn.devices import moved
from peerlearn.losses import LabelledImages
from peerlearn.memory.base import Memory
from peerlearn.methods.er import Replay, ReplayMethod
from peerlearn.methods.interface import MethodSettings, Progress, replayed
from peerlearn.settings import setting

Unseen = Literal["all", "first_batch_ids"]


class ERACE(ReplayMethod):
    """ER whose stream loss leaves the old classes alone.

    Asymmetric cross-entropy: Caccia et al., ICLR 2022, https://arxiv.org/abs/2104.05025

    Args:
        stream: what the stream tells before its first batch.
        replay_batch: memory images per step.
        unseen: which of the classes not met yet compete on the stream: all, or, as in the
            authors' code, those whose number is below the batch size.
        augment: by name, how the images that it trains on are augmented.

    >>> from peerlearn import StreamInfo
    >>> ERACE(StreamInfo(num_classes=10)).settings.unseen
    'all'
    """

    class Settings(MethodSettings):
        """What ER-ACE can be told."""

        augment: Augmentation = setting("crop_flip", "augmentation of what it trains on")
        unseen: Unseen = setting(
            "all", "classes not met yet that compete: all, or ids below the batch size (authors)"
        )

    settings: Settings
    name = "er_ace"
    authors: ClassVar[Mapping[str, Any]] = {
        "augment": "crop_flip_shared",
        "unseen": "first_batch_ids",
    }

    def active_classes(self, labels: Tensor, seen: Tensor) -> Tensor:
        """The classes that compete in the stream loss, (C,) bool.

        labels: (B,) of the stream batch; seen: (C,) bool, the batch included. The result is on
        the device of the labels.
        """
        active_classes = ~seen
        if self.settings.unseen == "first_batch_ids":
            ids = self.stream.class_ids or range(self.stream.num_classes)
            active_classes &= torch.tensor(ids) < len(labels)
        active_classes = moved(active_classes, labels.device)
        active_classes[labels] = True
        return active_classes

    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> Replay:
        """The stream batch among its active_classes, and memory images among all classes."""
        groups = [batch._replace(active_classes=self.active_classes(batch.y, progress.seen))]
        if len(memory):
            groups.append(replayed(memory.draw(self.settings.replay_batch, rng)))
        return self._replay(groups, rng)

    @override
    def draw_rehearsal(self, memory: Memory, progress: Progress, rng: torch.Generator) -> Replay:
        """Return memory images only, among all classes."""
        return self._replay([replayed(memory.draw(self.settings.replay_batch, rng))], rng)

    def _replay(self, groups: list[LabelledImages], rng: torch.Generator) -> Replay:
        return Replay(groups, [g._replace(x=self.augment(g.x, rng)) for g in groups])
