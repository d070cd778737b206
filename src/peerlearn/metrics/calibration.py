"""Whether answers are as often right as they are sure, and what makes them so."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BINS = 15
TEMPERATURES = tuple(2 ** (k / 4) for k in range(-8, 13))  # 0.25 to 8, each a fifth above the last
SUMS = 1 + 3 * BINS  # of each temperature: of losses, and what bins hold


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
    return _of_sums(_binned(probabilities, y, torch.ones(len(y)), bins))


def _binned(probabilities: Tensor, y: Tensor, weights: Tensor, bins: int) -> Tensor:
    """Of each bin the sums of weights, of confidence and of right answers, (3, bins)."""
    confidence, said = probabilities.double().max(dim=1)
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    place = torch.bucketize(confidence, edges)
    values = (torch.ones_like(confidence), confidence, said == y)
    own = [torch.bincount(place, weights=weights * value, minlength=bins) for value in values]
    return torch.stack([each.double() for each in own])


def _of_sums(sums: Tensor) -> Reliability:
    count, confidence, right = sums
    some = torch.where(count > 0, count, 1.0)
    total = count.sum()
    return Reliability(confidence / some, right / some, count / torch.where(total > 0, total, 1.0))


class Fit(NamedTuple):
    """A temperature, the expected calibration error without it and with it, on how many images."""

    temperature: float
    before: float
    after: float
    images: int


class RecentSureness:
    """How sure answers to the last images would have been at each of `TEMPERATURES`, and how right.

    It is given answers that were made before their images were learnt. Images that have been
    learnt, such as those of a memory, are answered better than new ones, and would make answers
    surer than they should be. What is kept does not grow: sums, in which an image weighs
    1 - 1 / window of the next.

    Temperature scaling: Guo et al., On calibration of modern neural networks, ICML 2017,
    https://arxiv.org/abs/1706.04599

    Args:
        window: images that count, about.

    Attributes:
        sums: (temperatures, SUMS).

    >>> recent = RecentSureness(window=1000)
    >>> recent.add(torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1]))
    >>> round(recent.fit().temperature, 2)  # the nearest to 4 / log(3)
    3.36
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.sums = torch.zeros(len(TEMPERATURES), SUMS, dtype=torch.float64)

    def add(self, logits: Tensor, y: Tensor) -> None:
        """Count answers in their order, (B, C), and the right ones, (B,)."""
        keep = 1 - 1 / self.window
        weights = keep ** torch.arange(len(y) - 1, -1, -1, dtype=torch.float64)
        new = [_sums(logits.double() / t, y, weights) for t in TEMPERATURES]
        self.sums = keep ** len(y) * self.sums + torch.stack(new)

    def fit(self) -> Fit:
        """The temperature at which the labels were most likely; of equal ones that nearest to 1."""
        losses = self.sums[:, 0].tolist()
        by_distance = sorted(range(len(losses)), key=lambda k: abs(math.log(TEMPERATURES[k])))
        best = min(by_distance, key=losses.__getitem__)
        bins = self.sums[:, 1:].unflatten(1, (3, BINS))
        before, after = (_of_sums(bins[k]).error for k in (by_distance[0], best))
        return Fit(TEMPERATURES[best], before, after, round(float(bins[0, 0].sum())))


def _sums(logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """The sums of one temperature, (SUMS,). logits, (B, C), divided by it; y, weights: (B,)."""
    loss = weights @ F.cross_entropy(logits, y, reduction="none")
    return torch.cat([loss[None], _binned(logits.softmax(dim=1), y, weights, BINS).flatten()])
