"""OCM: replay that keeps mutual information, with a previous model to stay close to."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.augment import full
from peerlearn.errors import UserError
from peerlearn.losses import nt_xent, nt_xent_new, unit
from peerlearn.memory import Reservoir
from peerlearn.methods.base import (
    Answer,
    Group,
    Method,
    Outcome,
    Progress,
    classification_loss,
    joined,
    replayed,
)
from peerlearn.methods.rotations import (
    Pairs,
    check_rotatable,
    embed,
    peer_similarity,
    rotated_pairs,
)
from peerlearn.peer import Brain, Optim, Peer
from peerlearn.stream import StreamInfo


class OCMDraw(NamedTuple):
    """Stream and, after the first task, memory images, each with its rotated pairs."""

    stream: Group
    stream_pairs: Pairs
    memory: Group | None
    memory_pairs: Pairs | None
    old: Tensor  # (C,) bool: classes of finished tasks


class OCM(Method[OCMDraw]):
    """Contrast of rotated images, cross-entropy, and two ties to the model before this task.

    The first task uses no memory. Afterwards the cross-entropy is on the memory alone and the
    stream is learnt by contrast.
    """

    name = "ocm"
    optim = Optim(lr=1e-3, betas=(0.9, 0.99))
    needs_boundaries = True

    def __init__(
        self, stream: StreamInfo, *, replay_batch: int = 64, similarity_weight: float = 0.5
    ) -> None:
        super().__init__(stream, replay_batch=replay_batch)
        if not 0 <= similarity_weight < math.inf:
            raise UserError(f"ocm: similarity_weight must be 0 or more, got {similarity_weight}")
        self.similarity_weight = similarity_weight
        self.stride = max(1000, stream.num_classes)

    def check(self, batch: Group, progress: Progress) -> None:
        """The images can be rotated."""
        super().check(batch, progress)
        check_rotatable(batch.x)

    def equip(self, peer: Peer) -> None:
        """A projection, and a copy of the peer that is renewed after every task."""
        peer.brain.add_projection()
        peer.take_snapshot()

    def end_task(self, peer: Peer) -> None:
        """From now on, stay close to what has been learnt so far."""
        peer.take_snapshot()

    def draw(
        self, batch: Group, memory: Reservoir, progress: Progress, rng: torch.Generator
    ) -> OCMDraw:
        """Rotated pairs of the stream and, after the first task, of the memory."""
        stream = rotated_pairs(batch.x, batch.y, full, rng, stride=self.stride)
        if progress.task == 0 or not len(memory):
            return OCMDraw(batch, stream, None, None, progress.old)
        past = replayed(memory.draw(self.replay_batch, rng))
        pairs = rotated_pairs(past.x, past.y, full, rng, stride=self.stride)
        return OCMDraw(batch, stream, past, pairs, progress.old)

    def loss(self, peer: Peer, draw: OCMDraw) -> Outcome:
        """Cross-entropy and contrast; with a memory also the ties to the previous model."""
        weight = 1.0 if draw.memory is None else self.similarity_weight
        group = draw.memory or draw.stream
        pairs = [p for p in (draw.stream_pairs, draw.memory_pairs) if p is not None]
        rows = embed(peer, pairs)
        loss = nt_xent_new(peer_similarity(peer, rows[0], weight), pairs[0].labels)
        x = full(group.x, peer.rng)
        answer = Answer(x, peer.logits(x))
        loss = loss + classification_loss(answer.logits, group)
        if draw.memory is not None:
            assert peer.snapshot is not None
            loss = loss + nt_xent(peer_similarity(peer, rows[1], weight), pairs[1].labels)
            loss = loss + previous_contrast(peer.snapshot, rows[1].z, pairs[1])
            with torch.no_grad():  # another augmentation than the one the peer itself answered on
                previous = peer.snapshot.logits(full(group.x, peer.rng))
            loss = loss + F.mse_loss(answer.logits[:, draw.old], previous[:, draw.old])
        return Outcome(loss, [answer])

    def groups(
        self,
        draw: OCMDraw,
        memory: Reservoir,  # noqa: ARG002
        rng: torch.Generator,  # noqa: ARG002
    ) -> list[Group]:
        """Stream and memory; the stream takes part although OCM's own cross-entropy ends there."""
        return [draw.stream if draw.memory is None else joined(draw.stream, draw.memory)]


def previous_contrast(previous: Brain, z: Tensor, pairs: Pairs) -> Tensor:
    """Contrast of the rotated images with what the previous model makes of them.

    z: (R, P) of the present model, whose first half belongs to the rotated, unaugmented images.
    """
    half = len(z) // 2
    with torch.no_grad():
        before = unit(previous.project(previous.features(pairs.x[:half])))
    return nt_xent(z[:half] @ before.T, pairs.labels[:half])
