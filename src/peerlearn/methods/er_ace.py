"""ER-ACE: asymmetric cross-entropy."""

from typing import Literal

import torch
from torch import Tensor

from peerlearn.augment import Augment, partial
from peerlearn.errors import UserError
from peerlearn.memory import Reservoir
from peerlearn.methods.base import Group, Progress, Replay, ReplayMethod, replayed
from peerlearn.stream import StreamInfo

Unseen = Literal["all", "first_batch_ids"]


class ERACE(ReplayMethod):
    """ER whose stream loss leaves the old classes alone.

    Args:
        stream: what the stream tells.
        replay_batch: memory images per step.
        augment: `partial` as the paper has it, or `partial_shared` as the authors' code does it.
        unseen: which classes not met yet compete with those of the batch: all of them, or, as in
            the authors' code, those whose id in the data set is below the batch size.
    """

    name = "er_ace"

    def __init__(
        self,
        stream: StreamInfo,
        *,
        replay_batch: int = 64,
        augment: Augment = partial,
        unseen: Unseen = "all",
    ) -> None:
        super().__init__(stream, replay_batch=replay_batch)
        if unseen not in ("all", "first_batch_ids"):
            raise UserError(f"er_ace: unseen must be all or first_batch_ids, got {unseen!r}")
        self.augment, self.unseen = augment, unseen

    def rivals(self, labels: Tensor, seen: Tensor) -> Tensor:
        """The classes that compete in the stream loss, (C,) bool.

        labels: (B,) of the stream batch; seen: (C,) bool, the batch included.
        """
        rivals = ~seen
        if self.unseen == "first_batch_ids":
            ids = self.stream.class_ids or range(self.stream.num_classes)
            rivals &= torch.tensor(ids, device=seen.device) < len(labels)
        rivals[labels] = True
        return rivals

    def draw(
        self, batch: Group, memory: Reservoir, progress: Progress, rng: torch.Generator
    ) -> Replay:
        """The stream batch among its rivals, and memory images among all classes."""
        groups = [batch._replace(rivals=self.rivals(batch.y, progress.seen))]
        if len(memory):
            groups.append(replayed(memory.draw(self.replay_batch, rng)))
        return Replay(groups, [g._replace(x=self.augment(g.x, rng)) for g in groups])
