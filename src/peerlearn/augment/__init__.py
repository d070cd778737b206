"""Augmentations of image batches: draw the parameters, then apply them."""

from peerlearn.augment.rotation import rot16, rot16_labels
from peerlearn.augment.strategies import (
    AUGMENTATIONS,
    Augment,
    Augmentation,
    crop_flip,
    crop_flip_shared,
    crop_grey_mirrored,
    flip_grey_crop,
    full,
)
from peerlearn.augment.views import ViewChain

__all__ = [
    "AUGMENTATIONS",
    "Augment",
    "Augmentation",
    "ViewChain",
    "crop_flip",
    "crop_flip_shared",
    "crop_grey_mirrored",
    "flip_grey_crop",
    "full",
    "rot16",
    "rot16_labels",
]
