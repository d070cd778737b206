"""Cross-entropy among chosen classes (ER-ACE), of mixed images (OnPro), with balance (GSA)."""

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy_among(active_classes: Tensor | None, logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy where only `active_classes` compete; the others get no gradient.

    active_classes: (C,) bool, None for all; logits: (B, C); labels: (B,), each a rival.
    """
    if active_classes is not None:
        logits = logits.masked_fill(~active_classes, -1e9)
    return F.cross_entropy(logits, labels)


def mixup_cross_entropy(logits: Tensor, labels: Tensor, others: Tensor, weight: Tensor) -> Tensor:
    """Mean of (1 - weight) CE(labels) + weight CE(others): images that are partly another's.

    logits: (B, C); labels, others: (B,); weight: (B,) in [0, 1], 0 for an image of one class.
    """
    own = F.cross_entropy(logits, labels, reduction="none")
    foreign = F.cross_entropy(logits, others, reduction="none")
    return torch.lerp(own, foreign, weight).mean()


def balance_weights(count: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """Weight of each class by how hard it was pulled up and pushed down so far (GSA).

    All (K,): `count`, samples of the class; `own`, the sum of its probability over them; `others`,
    the sum of its probability over the samples of other classes. With the pull over the push
    g = (count - own) / others the weight is 2 / (1 + exp(1 - g)): 1 in balance, below 2 always.
    A class that nothing has pushed yet stays at 1.
    """
    pull_over_push = torch.where(others > 0, (count - own) / others, 1.0)
    return 2 / (1 + torch.exp(1 - pull_over_push))


def balanced_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Mean over the batch of weights[label] * CE; divided by the batch, not by the weights.

    logits: (B, K); labels: (B,); weights: (K,).
    """
    return (weights[labels] * F.cross_entropy(logits, labels, reduction="none")).mean()
