"""Whether answers are as often right as they are sure, and what makes them so."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BINS = 15
STEPS = 60  # of the search for a temperature, each a third closer
COLDEST, HOTTEST = 0.05, 20.0


class Reliability(NamedTuple):
    """Bins of answers, each (bins,): how sure, how often right, which share of all."""

    confidence: Tensor
    accuracy: Tensor
    share: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error (ECE)."""
        return float((self.share * (self.accuracy - self.confidence).abs()).sum())


def reliability(probabilities: Tensor, y: Tensor, bins: int = BINS) -> Reliability:
    """Equal bins of confidence, each with its upper edge; empty ones are 0. (B, C), (B,).

    >>> found = reliability(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]), bins=2)
    >>> found.confidence, found.accuracy
    (tensor([0.0000, 0.8500], dtype=torch.float64), tensor([0.0000, 0.5000], dtype=torch.float64))
    """
    confidence, said = probabilities.double().max(dim=1)
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    place = torch.bucketize(confidence, edges)

    def total(values: Tensor) -> Tensor:
        return torch.bincount(place, weights=values.double(), minlength=bins)

    count = total(torch.ones_like(confidence))
    some = count.clamp(min=1)
    return Reliability(total(confidence) / some, total(said == y) / some, count / len(y))


def fitted_temperature(logits: Tensor, y: Tensor) -> float:
    """The temperature by which logits have to be divided for the labels to be most likely.

    Guo et al., On calibration of modern neural networks, ICML 2017,
    https://arxiv.org/abs/1706.04599

    The cross-entropy has one minimum over 1 / temperature, which is looked for between 0.05 and 20;
    1 where none is better, as with a single class.
    logits: (B, C); y: (B,).

    >>> logits = torch.tensor([[4.0, 0.0]] * 4)
    >>> round(fitted_temperature(logits, torch.tensor([0, 0, 0, 1])), 2)  # 4 / log(3)
    3.64
    """
    logits, low, high = logits.double(), 1 / HOTTEST, 1 / COLDEST

    def loss(factor: float) -> float:
        return float(F.cross_entropy(factor * logits, y))

    for _ in range(STEPS):
        third = (high - low) / 3
        if loss(low + third) < loss(high - third):
            high -= third
        else:
            low += third
    factor = (low + high) / 2
    return 1 / factor if loss(factor) < loss(1.0) else 1.0
