"""Losses: pure functions of tensors, each formula written once."""

from peerlearn.losses.contrastive import nt_xent, nt_xent_new, similarity, unit
from peerlearn.losses.logits import (
    LabelledImages,
    Mix,
    balance_weights,
    balanced_cross_entropy,
    classification_loss,
    cross_entropy_among,
    distill,
    joined,
    joined_unmasked,
    mixup_cross_entropy,
    proxy_contrast,
)
from peerlearn.losses.prototypes import class_means, prototype_contrast

__all__ = [
    "LabelledImages",
    "Mix",
    "balance_weights",
    "balanced_cross_entropy",
    "class_means",
    "classification_loss",
    "cross_entropy_among",
    "distill",
    "joined",
    "joined_unmasked",
    "mixup_cross_entropy",
    "nt_xent",
    "nt_xent_new",
    "prototype_contrast",
    "proxy_contrast",
    "similarity",
    "unit",
]
