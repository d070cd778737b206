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
    """The Jensen-Shannon divergence of what networks answer, in nats, (B,). logits: (B, C) of each.

    The entropy of the mean of their probabilities minus the mean of their entropies: 0 where all
    say the same, at most log of their number. It is what is not known because the networks differ,
    not because an image is between classes.

    >>> sure = torch.tensor([[100.0, 0.0]])
    >>> disagreement([sure, sure]), disagreement([sure, sure.flip(1)])
    (tensor([0.]), tensor([0.6931]))
    """
    said = torch.stack([one.softmax(dim=1) for one in logits])
    own = torch.stack([entropy(one) for one in said]).mean(dim=0)
    return (entropy(said.mean(dim=0)) - own).clamp(min=0)
