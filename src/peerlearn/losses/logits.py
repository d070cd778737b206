"""Losses of logits: cross-entropy of images that one mean judges, contrast, and distillation."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Mix(NamedTuple):
    """What else is in an image: the label of the other part and its weight. Both (B,)."""

    labels: Tensor
    weight: Tensor


class LabelledImages(NamedTuple):
    """Images with their labels, judged together by one mean.

    Args:
        x: images, (B, 3, H, W) in [0, 1].
        y: labels, (B,).
        active_classes: the classes that compete, (C,) bool; None for all.
        mix: what else is in the images; None where each shows one class.

    >>> batch = LabelledImages(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
    >>> batch._replace(active_classes=torch.tensor([True, True, False])).y
    tensor([0, 1])
    """

    x: Tensor
    y: Tensor
    active_classes: Tensor | None = None
    mix: Mix | None = None


def joined(*groups: LabelledImages) -> LabelledImages:
    """One group of several, among all classes; those without a mix count as unmixed.

    >>> one = LabelledImages(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
    >>> joined(one, one).y
    tensor([0, 1, 0, 1])
    """
    assert all(g.active_classes is None for g in groups)
    x, y = torch.cat([g.x for g in groups]), torch.cat([g.y for g in groups])
    if all(g.mix is None for g in groups):
        return LabelledImages(x, y)
    mixes = [g.mix or Mix(g.y, torch.zeros_like(g.y, dtype=g.x.dtype)) for g in groups]
    labels, weight = (torch.cat(parts) for parts in zip(*mixes, strict=True))
    return LabelledImages(x, y, mix=Mix(labels, weight))


def joined_unmasked(groups: Sequence[LabelledImages]) -> LabelledImages:
    """One group of several, whichever classes competed in each."""
    return joined(*(group._replace(active_classes=None) for group in groups))


def classification_loss(logits: Tensor, group: LabelledImages) -> Tensor:
    """The cross-entropy that fits a group's labels. logits: (B, C).

    >>> group = LabelledImages(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
    >>> classification_loss(torch.zeros(2, 2), group)  # log(2)
    tensor(0.6931)
    """
    if group.mix is not None:
        return mixup_cross_entropy(logits, group.y, *group.mix)
    return cross_entropy_among(group.active_classes, logits, group.y)


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


def proxy_contrast(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of log(sum over k of n_k exp(s_k)) - s_y, n_k being the images of class k in the batch.

    Lin et al., CVPR 2023, arXiv 2304.04408. Every image is contrasted with the proxies of all
    images of the batch, its own included, so that a class weighs as often as it is there. Classes
    that are absent do not compete and get no gradient. A batch of one class gives log(B), without
    gradient. logits s: (B, C); labels y: (B,).

    >>> proxy_contrast(torch.tensor([[3.0, 7.0], [1.0, 9.0]]), torch.tensor([0, 0])).exp()
    tensor(2.)
    """
    counts = F.one_hot(labels, logits.shape[1]).sum(dim=0)
    log_counts = counts.log()  # -inf where absent
    own = logits.gather(1, labels[:, None])
    return ((logits + log_counts).logsumexp(dim=1, keepdim=True) - own).mean()


def distill(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """KL(teacher || student) of softened answers, mean over the batch; logits are (B, C).

    No gradient reaches `teacher`. The factor temperature**2 keeps gradients on one scale: the
    paper's equation leaves it out, its authors' code and the published weights have it.
    """
    log_p = F.log_softmax(student / temperature, dim=1)
    log_q = F.log_softmax(teacher.detach() / temperature, dim=1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True) * temperature**2
