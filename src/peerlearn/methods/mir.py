"""MIR: maximally interfered retrieval."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from peerlearn.devices import moved
from peerlearn.losses import LabelledImages, joined
from peerlearn.memory.base import Memory
from peerlearn.methods.er import ER, Replay
from peerlearn.methods.interface import Progress, replayed
from peerlearn.peer import Peer, PeerModel
from peerlearn.settings import setting


class MIR(ER):
    """ER that replays the images which a step on the stream alone would harm most.

    Maximally interfered retrieval: Aljundi et al., NeurIPS 2019, https://arxiv.org/abs/1908.04742

    Of `candidates` random memory images those are replayed whose loss rises most in a virtual step:
    a plain gradient step on the augmented stream batch, taken on a copy of the network. Several
    peers replay the same images, chosen by their mean rise.

    Args:
        stream: what the stream tells before its first batch.
        replay_batch: memory images per step.
        candidates: memory images from which these are chosen.
        virtual_lr: learning rate of the virtual step.
        augment: by name, how the images that it trains on are augmented.

    >>> from peerlearn import StreamInfo
    >>> MIR(StreamInfo(num_classes=10), candidates=100).settings.virtual_lr
    0.1
    """

    class Settings(ER.Settings):
        """What MIR can be told."""

        candidates: int = setting(
            128, "memory images from which those to replay are chosen", ge=1, le=1_000_000
        )
        virtual_lr: float = setting(0.1, "learning rate of the virtual step", ge=0)

        @model_validator(mode="after")
        def _has_a_choice(self) -> Self:
            if self.candidates < self.replay_batch:
                raise ValueError(
                    f"candidates must be at least replay_batch, got {self.candidates} and "
                    f"{self.replay_batch}"
                )
            return self

    settings: Settings
    name = "mir"
    authors: ClassVar[Mapping[str, Any]] = {}  # unlike ER, it is not in the code of CCL-DC

    @override
    def draw_for(
        self,
        peers: Sequence[Peer],
        /,
        batch: LabelledImages,
        memory: Memory,
        progress: Progress,
        rng: torch.Generator,
    ) -> Replay | None:
        """The stream batch and the memory images that it would harm most."""
        count = self.settings.replay_batch
        if len(memory) <= count:  # there is nothing to choose
            return self.draw(batch, memory, progress, rng)
        candidates = replayed(memory.draw(self.settings.candidates, rng))
        stream = batch._replace(x=self.augment(batch.x, rng))
        rises = [
            self.interference(peer.model, *moved((stream, candidates), peer.device))
            for peer in peers
        ]
        rise = torch.stack(moved(rises, batch.x.device)).mean(dim=0)
        chosen = rise.argsort(descending=True, stable=True)[:count]
        return self.train_on(
            joined(LabelledImages(candidates.x[chosen], candidates.y[chosen]), batch), rng
        )

    def interference(
        self, model: PeerModel, stream: LabelledImages, candidates: LabelledImages
    ) -> Tensor:
        """By how much a step on the stream raises the loss on each candidate, (S,).

        The step is taken on a copy, so that weights, gradients and batch-norm statistics of the
        model stay as they are; only its counts go on. The copy is in training mode, like the model:
        both losses of a candidate are judged by the statistics of the candidates.
        """
        virtual = copy.deepcopy(model)
        weights = [weight for weight in virtual.parameters() if weight.requires_grad]
        loss = _losses(virtual, stream).mean()
        slopes = torch.autograd.grad(loss, weights, allow_unused=True)
        with torch.no_grad():
            before = _losses(virtual, candidates)
            for weight, slope in zip(weights, slopes, strict=True):
                if slope is not None:
                    weight.sub_(slope, alpha=self.settings.virtual_lr)
            after = _losses(virtual, candidates)
        model.forwards, model.backwards = virtual.forwards, virtual.backwards
        return after - before


def _losses(model: PeerModel, group: LabelledImages) -> Tensor:
    """Cross-entropy of each image, (B,); layers that draw (dropout) draw the same at each call."""
    with torch.random.fork_rng([group.x.device] if group.x.is_cuda else []):
        return F.cross_entropy(model.logits(group.x), group.y, reduction="none")
