"""What answers tell beside the class: how sure they are, and where networks disagree."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from peerlearn.live.labels import Label


class Details(NamedTuple):
    """What is answered for some images, and how far it can be trusted.

    Args:
        labels: the most likely one of each image, B of them.
        probability: of that label, (B,).
        entropy: of the probabilities of all classes, in nats, (B,).
        disagreement: of the networks, see `disagreement`, (B,).
        probabilities: of each class, (B, C).
        classes: which these are, C of them.
    """

    labels: list[Label]
    probability: Tensor
    entropy: Tensor
    disagreement: Tensor
    probabilities: Tensor
    classes: list[Label]


def entropy(probabilities: Tensor) -> Tensor:
    """The entropy of each row in nats, (B,). probabilities: (B, C).

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.6931, 0.0000])
    """
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(dim=1)


def disagreement(logits: Sequence[Tensor]) -> Tensor:
    """The chance that two of the networks name different classes, (B,). logits: (B, C) of each.

    Each names a class with the probability that it gives to it; the mean over all pairs, 0 where
    there is none. It is near 0 only where all are sure of the same class: networks that say the
    same, unsure of it, contradict each other by chance.

    >>> sure, unsure = torch.tensor([[100.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    >>> disagreement([sure, sure]), disagreement([sure, sure.flip(1)]), disagreement([sure, unsure])
    (tensor([0.]), tensor([1.]), tensor([0.5000]))
    """
    said = torch.stack([one.softmax(dim=1) for one in logits])
    pairs = len(said) * (len(said) - 1)
    if not pairs:
        return said.new_zeros(said.shape[1])
    together: Tensor = said.sum(dim=0).square().sum(dim=1) - said.square().sum(dim=(0, 2))
    return (1 - together / pairs).clamp(0, 1)
