"""What replay methods share: images from rows, groups joined, the cross-entropy that fits."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.devices import moved
from peerlearn.losses import cross_entropy_among, mixup_cross_entropy
from peerlearn.methods.interface import ForwardOutput, LabelledImages, Method, Mix, StepOutput
from peerlearn.peer import Peer


def images(x: Tensor) -> Tensor:
    """uint8 pixels as the networks see them: (B, 3, H, W) float in [0, 1]."""
    return x.float().div_(255)


def replayed(rows: Mapping[str, Tensor]) -> LabelledImages:
    """Rows of a memory as a group, all of it on the device of the images.

    >>> rows = {"x": torch.full((2, 3, 8, 8), 255, dtype=torch.uint8), "y": torch.tensor([0, 1])}
    >>> replayed(rows).x.max()
    tensor(1.)
    """
    x = images(rows["x"])
    return LabelledImages(x, moved(rows["y"], x.device))


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


class Replay(NamedTuple):
    """What the plain replay methods draw.

    Args:
        groups: as they are, on which peers teach each other.
        train: the same groups as the method trains on them, augmented.

    >>> batch = LabelledImages(torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
    >>> len(Replay([batch], train=[batch._replace(x=batch.x.flip(3))]).train)
    1
    """

    groups: list[LabelledImages]
    train: list[LabelledImages]


class ReplayMethod(Method[Replay]):
    """Cross-entropy on each group of what was drawn, summed; enough for ER and ER-ACE.

    A method that extends it only says what is drawn:

    >>> class Stream(ReplayMethod):
    ...     name = "stream"
    ...     def draw(self, batch, memory, progress, rng):
    ...         return Replay([batch], train=[batch])
    >>> from peerlearn import StreamInfo
    >>> Stream(StreamInfo(num_classes=10)).name
    'stream'
    """

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        """Sum over the groups of their classification losses."""
        answers = [ForwardOutput(g.x, peer.logits(g.x)) for g in draw.train]
        losses = [
            classification_loss(answer.logits, group)
            for answer, group in zip(answers, draw.train, strict=True)
        ]
        return StepOutput(torch.stack(losses).sum(), answers)

    @override
    def groups(self, draw: Replay, rng: torch.Generator) -> list[LabelledImages]:
        """The images that the method itself trains on."""
        return draw.groups
