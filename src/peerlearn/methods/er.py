"""Experience replay, and what plain replay methods share."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from typing_extensions import override

from peerlearn.augment import Augmentation
from peerlearn.losses import LabelledImages, classification_loss, joined
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import (
    ForwardOutput,
    Method,
    MethodSettings,
    Progress,
    StepOutput,
    replayed,
)
from peerlearn.peer import Peer
from peerlearn.settings import setting


class Replay(NamedTuple):
    """What the plain replay methods draw.

    Args:
        groups: as they are, on which peers teach each other.
        train: the same groups as the method trains on them, augmented.

    >>> batch = LabelledImages(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
    >>> len(Replay([batch], train=[batch._replace(x=batch.x.flip(3))]).train)
    1
    """

    groups: list[LabelledImages]
    train: list[LabelledImages]


class ReplayMethod(Method[Replay]):
    """Cross-entropy on each group of what was drawn, summed; enough for ER and ER-ACE.

    A method that extends it only says what is drawn:

    >>> class Stream(ReplayMethod):
    ...     name = "stream"
    ...     def draw(self, batch, memory, progress, rng):
    ...         return Replay([batch], train=[batch])
    >>> from peerlearn import StreamInfo
    >>> Stream(StreamInfo(num_classes=10)).name
    'stream'
    """

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        """Sum over the groups of their classification losses."""
        outputs, losses = [], []
        for group in draw.train:
            logits = peer.logits(group.x)
            outputs.append(ForwardOutput(group.x, logits))
            losses.append(classification_loss(logits, group))
        return StepOutput(torch.stack(losses).sum(), outputs)

    @override
    def groups(self, draw: Replay, rng: torch.Generator) -> list[LabelledImages]:
        """The images that the method itself trains on."""
        return draw.groups


class ER(ReplayMethod):
    """Stream and memory images together, one mean of cross-entropy over all of them.

    On tiny episodic memories: Chaudhry et al., 2019, https://arxiv.org/abs/1902.10486

    No step is taken on the first batch of a run, when there is nothing to replay yet; with a memory
    of capacity 0 every step trains on the stream alone.

    Args:
        stream: what the stream tells before its first batch.
        replay_batch: memory images per step.
        augment: by name, how the images that it trains on are augmented.

    >>> from peerlearn import StreamInfo
    >>> ER(StreamInfo(num_classes=10), replay_batch=32).settings.replay_batch
    32
    """

    class Settings(MethodSettings):
        """What ER can be told."""

        augment: Augmentation = setting("full", "augmentation of what it trains on")

    settings: Settings
    name = "er"
    authors: ClassVar[Mapping[str, Any]] = {"augment": "full_aligned"}
    is_plain_cross_entropy = True

    @override
    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> Replay | None:
        """Memory images and the stream batch, augmented together."""
        if memory.capacity and not len(memory):
            return None
        if memory.capacity:
            rows = memory.draw(self.settings.replay_batch, rng)
            batch = joined(replayed(rows), batch)
        return self.train_on(batch, rng)

    @override
    def draw_rehearsal(self, memory: Memory, progress: Progress, rng: torch.Generator) -> Replay:
        """Return memory images only."""
        return self.train_on(replayed(memory.draw(self.settings.replay_batch, rng)), rng)

    def train_on(self, batch: LabelledImages, rng: torch.Generator) -> Replay:
        """One group, as it is and augmented."""
        return Replay([batch], train=[batch._replace(x=self.augment(batch.x, rng))])
