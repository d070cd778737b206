"""PCR: proxy-based contrastive replay."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from peerlearn.augment import full
from peerlearn.losses import LabelledImages, joined, proxy_contrast
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import (
    ForwardOutput,
    Method,
    MethodSettings,
    Progress,
    StepOutput,
    replayed,
)
from peerlearn.peer import Peer
from peerlearn.settings import setting


class CosineHead(nn.Module):
    """Cosine of a feature vector and the proxy of each class, over a temperature; no bias.

    >>> CosineHead(8, 3, temperature=0.09)(torch.rand(2, 8)).abs().max() < 1 / 0.09
    tensor(True)
    """

    EPS = 1e-6  # added to every length, as in the authors' code

    def __init__(self, feature_dim: int, num_classes: int, *, temperature: float) -> None:
        super().__init__()
        self.weight = nn.Linear(feature_dim, num_classes, bias=False).weight  # the proxies, (C, D)
        self.temperature = temperature

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C)."""
        return F.linear(self._unit(features), self._unit(self.weight)) / self.temperature

    def _unit(self, x: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x / (length + self.EPS)


class PairDraw(NamedTuple):
    """The images of a step, and the pairs (as they are, then augmented) that are trained on."""

    group: LabelledImages  # on which peers teach each other
    pairs: list[LabelledImages]  # the stream's, and the memory's if there is one


class PCR(Method[PairDraw]):
    """Contrast of images with the proxies of the classes in the batch.

    Proxy-based contrastive replay: Lin et al., CVPR 2023, https://arxiv.org/abs/2304.04408

    Stream and memory images are shown as they are and augmented; the classifier compares directions
    only. No step is taken while there is nothing to replay; with a memory of capacity 0 every step
    trains on the stream alone.

    Args:
        stream: what the stream tells before its first batch.
        replay_batch: memory images per step.
        temperature: by which cosines are divided to give logits.

    >>> from peerlearn import StreamInfo
    >>> PCR(StreamInfo(num_classes=10), temperature=0.2).settings.temperature
    0.2
    """

    class Settings(MethodSettings):
        """What PCR can be told."""

        temperature: float = setting(0.09, "by which cosines are divided to give logits", gt=0)

    settings: Settings
    name = "pcr"
    images_per_sample = 2

    @override
    def setup_peer(self, peer: Peer) -> None:
        """Answer by cosines."""
        head = CosineHead(
            peer.model.feature_dim,
            self.stream.num_classes,
            temperature=self.settings.temperature,
        )
        peer.model.use_head(head)

    @override
    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> PairDraw | None:
        """The stream batch and memory images, as they are and augmented."""
        if memory.capacity and not len(memory):
            return None
        parts = [batch]
        if memory.capacity:
            parts.append(replayed(memory.draw(self.settings.replay_batch, rng)))
        return PairDraw(joined(*reversed(parts)), [_pair(part, rng) for part in parts])

    @override
    def draw_rehearsal(self, memory: Memory, progress: Progress, rng: torch.Generator) -> PairDraw:
        """Return memory images only, as they are and augmented."""
        drawn = replayed(memory.draw(self.settings.replay_batch, rng))
        return PairDraw(drawn, [_pair(drawn, rng)])

    def loss(self, peer: Peer, draw: PairDraw) -> StepOutput:
        """One contrast over all images; each pair is a forward of its own."""
        answers = [ForwardOutput(pair.x, peer.logits(pair.x)) for pair in draw.pairs]
        logits = torch.cat([answer.logits for answer in answers])
        labels = torch.cat([pair.y for pair in draw.pairs])
        return StepOutput(proxy_contrast(logits, labels), answers)

    @override
    def groups(self, draw: PairDraw, rng: torch.Generator) -> list[LabelledImages]:
        """Memory and stream, as one group."""
        return [draw.group]


def _pair(group: LabelledImages, rng: torch.Generator) -> LabelledImages:
    """Images as they are, then the same augmented."""
    return LabelledImages(torch.cat([group.x, full(group.x, rng)]), torch.cat([group.y, group.y]))
