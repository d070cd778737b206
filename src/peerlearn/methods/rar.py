"""RAR: repeated augmented rehearsal."""

from collections.abc import Mapping
from typing import Any, ClassVar

from peerlearn.augment import Augmentation
from peerlearn.methods.er import ER
from peerlearn.settings import setting


class RAR(ER):
    """ER with several steps per stream batch, each on a fresh draw under strong augmentation.

    Repeated augmented rehearsal: Zhang et al., NeurIPS 2022, https://arxiv.org/abs/2209.13917

    Its preset takes ten steps per batch, on RandAugment of stream and memory images.

    Args:
        stream: what the stream tells before its first batch.
        replay_batch: memory images per step.
        augment: by name, how the images that it trains on are augmented.

    >>> from peerlearn import StreamInfo
    >>> RAR(StreamInfo(num_classes=10)).settings.augment, RAR.preset
    ('randaugment', {'updates': 10})
    """

    class Settings(ER.Settings):
        """What RAR can be told."""

        replay_batch: int = setting(10, "memory images per step", ge=1, le=1_000_000)
        augment: Augmentation = setting("randaugment", "augmentation of what it trains on")

    settings: Settings
    name = "rar"
    authors: ClassVar[Mapping[str, Any]] = {}  # unlike ER, it is not in the code of CCL-DC
    preset: ClassVar[Mapping[str, Any]] = {"updates": 10}
