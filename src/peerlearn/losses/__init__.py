"""Losses: pure functions of tensors, each formula written once."""

from peerlearn.losses.contrastive import nt_xent, nt_xent_new, similarity, unit
from peerlearn.losses.cross_entropy import (
    balance_weights,
    balanced_cross_entropy,
    cross_entropy_among,
    mixup_cross_entropy,
)
from peerlearn.losses.distill import distill
from peerlearn.losses.prototypes import class_means, prototype_contrast
from peerlearn.losses.proxy import proxy_contrast

__all__ = [
    "balance_weights",
    "balanced_cross_entropy",
    "class_means",
    "cross_entropy_among",
    "distill",
    "mixup_cross_entropy",
    "nt_xent",
    "nt_xent_new",
    "prototype_contrast",
    "proxy_contrast",
    "similarity",
    "unit",
]
