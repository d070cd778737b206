"""References: what learning costs without a memory, and what all data at once would give."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from typing_extensions import override

from peerlearn.losses import LabelledImages
from peerlearn.memory.base import Memory
from peerlearn.methods.er import ER, Replay
from peerlearn.methods.interface import Progress


class Finetune(ER):
    """Train on the stream alone, without a memory: the lower reference.

    It keeps no image, whatever the size of the memory; `replay_batch` is not used.

    Args:
        stream: what the stream tells before its first batch.
        augment: by name, how the images that it trains on are augmented.

    >>> from peerlearn import StreamInfo
    >>> Finetune(StreamInfo(num_classes=10)).settings.augment
    'full'
    """

    name = "finetune"
    uses_memory = False

    @override
    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> Replay:
        """Return the stream batch."""
        return self.train_on(batch, rng)


class Joint(Finetune):
    """Train on all classes at once, shuffled, for several epochs: the upper reference.

    In a run its stream is one task of all images, in ten epochs unless `--epochs` says otherwise.
    In a program the stream is yours to deal: `ClassStream(data, num_tasks=1, epochs=10)`.

    Args:
        stream: what the stream tells before its first batch.
        augment: by name, how the images that it trains on are augmented.

    >>> Joint.fixed["stream.tasks"], Joint.preset["stream.epochs"]
    (1, 10)
    """

    name = "joint"
    fixed: ClassVar[Mapping[str, Any]] = {
        "stream.name": "class",
        "stream.tasks": 1,
        "stream.blur": 0.0,
    }
    preset: ClassVar[Mapping[str, Any]] = {"stream.epochs": 10}
