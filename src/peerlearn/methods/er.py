"""Experience replay."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from typing_extensions import override

from peerlearn.augment import Augmentation
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import LabelledImages, MethodSettings, Progress
from peerlearn.methods.replay import Replay, ReplayMethod, joined, replayed
from peerlearn.settings import setting


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
