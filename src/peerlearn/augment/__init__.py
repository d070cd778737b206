"""Augmentations of image batches: draw the parameters, then apply them."""

from peerlearn.augment.rotation import rot16, rot16_labels
from peerlearn.augment.strategies import (
    AUGMENTATIONS,
    Augment,
    Augmentation,
    full,
    gsa,
    onpro,
    partial,
    partial_shared,
)
from peerlearn.augment.views import ViewChain

__all__ = [
    "AUGMENTATIONS",
    "Augment",
    "Augmentation",
    "ViewChain",
    "full",
    "gsa",
    "onpro",
    "partial",
    "partial_shared",
    "rot16",
    "rot16_labels",
]
