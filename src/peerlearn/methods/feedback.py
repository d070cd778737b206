"""Adaptive prototypical feedback (OnPro): replay more of the classes that lie close."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from peerlearn.devices import moved
from peerlearn.losses import LabelledImages, Mix, joined
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import replayed


class FeedbackRates(NamedTuple):
    """The share of a batch that stays a uniform draw, and the chance of mixing."""

    uniform: float
    mixing: float


def pair_counts(prototypes: Tensor, total: int, rng: torch.Generator) -> list[tuple[int, int, int]]:
    """How many images to replay of each pair of classes: (class i, class j, count), i < j.

    prototypes: (C, P), zero rows for classes without one. The chance of a pair is the softmax of
    the inverse distance of its prototypes; counts are rounded and then evened out to `total` at
    random pairs. No pairs: an empty list.
    """
    prototypes = prototypes.cpu()  # what is drawn depends on them: the one wait for a device here
    known = prototypes.abs().sum(dim=1).nonzero().flatten()
    if len(known) < 2:
        return []
    i, j = torch.triu_indices(len(known), len(known), offset=1)
    distance = (prototypes[known[i]] - prototypes[known[j]]).norm(dim=1)
    chance = torch.softmax(1 / distance.clamp(min=1e-8), dim=0)
    count = (total * chance).round().long()
    excess = int(count.sum()) - total
    candidates = count.nonzero().flatten() if excess > 0 else torch.arange(len(count))
    picks = candidates[torch.randperm(len(candidates), generator=rng)[: abs(excess)]]
    count[picks] -= 1 if excess > 0 else -1
    pairs = zip(known[i].tolist(), known[j].tolist(), count.tolist(), strict=True)
    return [(a, b, n) for a, b, n in pairs if n > 0]


def prototype_feedback(
    plain: LabelledImages,
    memory: Memory,
    prototypes: Tensor,
    rates: FeedbackRates,
    rng: torch.Generator,
) -> LabelledImages:
    """As many images as `plain`: part of it, some mixed, and images of classes that lie close."""
    size = len(plain.y)
    uniform = int(size * rates.uniform)
    pairs = pair_counts(prototypes, size - uniform, rng)
    if not pairs:
        uniform = size
    parts = [_uniform_part(plain, uniform, rates.mixing, rng)]
    for first, second, count in pairs:
        mixed = _chance(rates.mixing, rng)
        weight = _beta(count, rng) if mixed else torch.zeros(count)
        ours, theirs = (_of_class(memory, k, count, rng) for k in (first, second))
        parts.append(_mixed(ours, theirs, weight))
    return joined(*parts)


def _uniform_part(
    plain: LabelledImages, count: int, mixing: float, rng: torch.Generator
) -> LabelledImages:
    """`count` of the images; if mixing is on, which is drawn once, each may be mixed."""
    chosen = _pick(plain, torch.randperm(len(plain.y), generator=rng)[:count])
    on = _chance(mixing, rng)
    weight = 0.6 * torch.rand(count, generator=rng)
    weight = torch.where((torch.rand(count, generator=rng) < mixing) & on, weight, 0.0)
    return _mixed(chosen, _pick(chosen, torch.randperm(count, generator=rng)), weight)


def _of_class(memory: Memory, label: int, count: int, rng: torch.Generator) -> LabelledImages:
    """`count` stored images of a class; of another one if the memory holds none of it any more."""
    labels = memory["y"]
    rows = (labels == label).nonzero().flatten()
    if len(rows) == 0:
        held = labels.unique()
        label = int(held[int(torch.randint(len(held), (), generator=rng))])
        rows = (labels == label).nonzero().flatten()
    picks = rows[torch.randint(len(rows), (count,), generator=rng)]
    x = memory["x"]
    return replayed({"x": x[moved(picks, x.device)], "y": labels[picks]})


def _mixed(ours: LabelledImages, theirs: LabelledImages, weight: Tensor) -> LabelledImages:
    """(1 - weight) of ours and weight of theirs. weight: (B,)."""
    weight = moved(weight, ours.x.device)
    x = torch.lerp(ours.x, theirs.x, weight.view(-1, 1, 1, 1))
    return LabelledImages(x, ours.y, mix=Mix(theirs.y, weight))


def _pick(group: LabelledImages, index: Tensor) -> LabelledImages:
    index = moved(index, group.y.device)
    return LabelledImages(group.x[index], group.y[index])


def _chance(p: float, rng: torch.Generator) -> bool:
    return bool(torch.rand((), generator=rng) < p)


def _beta(count: int, rng: torch.Generator, shape: float = 0.4) -> Tensor:
    """`count` draws of Beta(shape, shape); torch's own knows only the global generator."""
    seed = int(torch.randint(2**62, (), generator=rng))
    return torch.from_numpy(np.random.default_rng(seed).beta(shape, shape, count)).float()
