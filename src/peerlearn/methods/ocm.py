"""OCM: replay that keeps mutual information, with a previous model to stay close to."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from peerlearn.augment import Augment, full, full_aligned
from peerlearn.devices import moved
from peerlearn.losses import LabelledImages, classification_loss, joined, nt_xent, nt_xent_new, unit
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import (
    ForwardOutput,
    Method,
    MethodSettings,
    Progress,
    StepOutput,
    replayed,
)
from peerlearn.methods.rotations import (
    Pairs,
    check_rotatable,
    embed,
    peer_similarity,
    rotated_pairs,
)
from peerlearn.optim.optimizers import AdamW
from peerlearn.peer import Peer, PeerModel
from peerlearn.settings import setting


class OCMDraw(NamedTuple):
    """Stream and, after the first task, memory images, each with its rotated pairs."""

    stream: LabelledImages
    stream_pairs: Pairs
    memory: LabelledImages | None
    memory_pairs: Pairs | None
    old: Tensor  # (K,): classes of finished tasks


class OCM(Method[OCMDraw]):
    """Contrast of rotated images, cross-entropy, and two ties to the model before this task.

    Online continual learning through mutual information maximization: Guo et al., ICML 2022,
    https://proceedings.mlr.press/v162/guo22g.html

    The first task uses no memory. Afterwards the cross-entropy is on the memory alone and the
    stream is learnt by contrast.

    Args:
        stream: what the stream tells before its first batch; boundaries must be among it.
        replay_batch: memory images per step.
        similarity_weight: of the similarity of projections after the first task.
        aligned_crop: crop as the CCL-DC authors' code does, with aligned corners, from boxes
            smaller than the image.

    >>> from peerlearn import StreamInfo
    >>> OCM(StreamInfo(num_classes=10, boundaries=True)).optim.beta2
    0.99
    """

    class Settings(MethodSettings):
        """What OCM can be told."""

        similarity_weight: float = setting(
            0.5, "weight of the projections' similarity after the first task", ge=0
        )
        aligned_crop: bool = setting(
            False, "resized crop with aligned corners, from boxes smaller than the image (authors)"
        )

    settings: Settings
    name = "ocm"
    authors: ClassVar[Mapping[str, Any]] = {"aligned_crop": True}
    images_per_sample = 34
    optim = AdamW(lr=1e-3, beta2=0.99)
    needs_boundaries = True
    no_rehearsal = "its contrast needs the images of a stream batch"

    @property
    def stride(self) -> int:
        """Pseudo classes are so far apart that those of two rotations never meet."""
        return max(1000, self.stream.num_classes)

    @property
    def augmentation(self) -> Augment:
        """The full augmentation, with the chosen crop."""
        return full_aligned if self.settings.aligned_crop else full

    def check(self, batch: LabelledImages, progress: Progress) -> None:
        """The images can be rotated."""
        super().check(batch, progress)
        check_rotatable(batch.x)

    def setup_peer(self, peer: Peer) -> None:
        """A projection, and a copy of the peer that is renewed after every task."""
        peer.model.add_projection()
        peer.keep_previous()

    def end_task(self, peer: Peer) -> None:
        """From now on, stay close to what has been learnt so far."""
        peer.keep_previous()

    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> OCMDraw:
        """Rotated pairs of the stream and, after the first task, of the memory."""
        stream = rotated_pairs(batch.x, batch.y, self.augmentation, rng, stride=self.stride)
        old = moved(progress.old.nonzero().flatten(), batch.x.device)
        if progress.task == 0 or not len(memory):
            return OCMDraw(batch, stream, None, None, old)
        past = replayed(memory.draw(self.settings.replay_batch, rng))
        pairs = rotated_pairs(past.x, past.y, self.augmentation, rng, stride=self.stride)
        return OCMDraw(batch, stream, past, pairs, old)

    def loss(self, peer: Peer, draw: OCMDraw) -> StepOutput:
        """Cross-entropy and contrast; with a memory also the ties to the previous model."""
        weight = 1.0 if draw.memory is None else self.settings.similarity_weight
        group = draw.memory or draw.stream
        pairs = [p for p in (draw.stream_pairs, draw.memory_pairs) if p is not None]
        rows = embed(peer, pairs)
        loss = nt_xent_new(peer_similarity(peer, rows[0], weight), pairs[0].labels)
        x = self.augmentation(group.x, peer.rng)
        answer = ForwardOutput(x, peer.logits(x))
        loss = loss + classification_loss(answer.logits, group)
        if draw.memory is not None:
            assert peer.previous is not None
            loss = loss + nt_xent(peer_similarity(peer, rows[1], weight), pairs[1].labels)
            loss = loss + previous_contrast(peer.previous, rows[1].z, pairs[1])
            with torch.no_grad():  # another augmentation than the one the peer itself answered on
                previous = peer.previous.logits(self.augmentation(group.x, peer.rng))
            loss = loss + F.mse_loss(answer.logits[:, draw.old], previous[:, draw.old])
        return StepOutput(loss, [answer])

    @override
    def groups(self, draw: OCMDraw, rng: torch.Generator) -> list[LabelledImages]:
        """Stream and memory; the stream takes part although OCM's own cross-entropy ends there."""
        return [draw.stream if draw.memory is None else joined(draw.stream, draw.memory)]


def previous_contrast(previous: PeerModel, z: Tensor, pairs: Pairs) -> Tensor:
    """Contrast of the rotated images with what the previous model makes of them.

    z: (R, P) of the present model, whose first half belongs to the rotated, unaugmented images.
    """
    half = len(z) // 2
    with torch.no_grad():
        before = unit(previous.project(previous.features(pairs.x[:half])))
    return nt_xent(z[:half] @ before.T, pairs.labels[:half])
