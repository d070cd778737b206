"""DER++: dark experience replay with labels."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.augment import Augment, partial
from peerlearn.errors import UserError
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
from peerlearn.peer import Peer
from peerlearn.stream import StreamInfo


class DarkDraw(NamedTuple):
    """Groups as the peers discuss them and as the method trains on them, and what to match."""

    group: Group
    train: list[Group]  # the stream, and a draw of the memory if there is one
    dark_x: Tensor | None  # (B, 3, H, W) another draw, augmented ...
    dark_logits: Tensor | None  # (B, C) ... and what was answered when those images came by


class DERPP(Method[DarkDraw]):
    """CE(stream) + alpha MSE(memory A, logits stored with it) + beta CE(memory B).

    The stored logits are those of the step in which an image came by, under that step's
    augmentation; with several peers they are the mean of theirs, and all regress to it.
    """

    name = "derpp"

    def __init__(
        self,
        stream: StreamInfo,
        *,
        replay_batch: int = 64,
        alpha: float = 0.2,
        beta: float = 1.0,
        augment: Augment = partial,
    ) -> None:
        super().__init__(stream, replay_batch=replay_batch)
        if not (0 <= alpha < math.inf and 0 <= beta < math.inf):
            raise UserError(f"derpp: alpha and beta must be 0 or more, got {alpha} and {beta}")
        self.alpha, self.beta, self.augment = alpha, beta, augment

    def draw(
        self,
        batch: Group,
        memory: Reservoir,
        progress: Progress,  # noqa: ARG002
        rng: torch.Generator,
    ) -> DarkDraw:
        """The stream batch and two independent draws of the memory."""
        train = [batch._replace(x=self.augment(batch.x, rng))]
        if not len(memory):
            return DarkDraw(batch, train, None, None)
        dark = memory.draw(self.replay_batch, rng)
        plain = replayed(memory.draw(self.replay_batch, rng))
        dark_x = self.augment(replayed(dark).x, rng)
        train.append(plain._replace(x=self.augment(plain.x, rng)))
        return DarkDraw(joined(batch, plain), train, dark_x, dark["logits"])

    def loss(self, peer: Peer, draw: DarkDraw) -> Outcome:
        """The three terms; the last two only if something was replayed."""
        answers = [Answer(g.x, peer.logits(g.x)) for g in draw.train]
        loss = classification_loss(answers[0].logits, draw.train[0])
        if draw.dark_x is not None and draw.dark_logits is not None:
            loss = loss + self.alpha * F.mse_loss(peer.logits(draw.dark_x), draw.dark_logits)
            loss = loss + self.beta * classification_loss(answers[1].logits, draw.train[1])
        return Outcome(loss, answers, remember={"logits": answers[0].logits.detach()})

    def groups(
        self,
        draw: DarkDraw,
        memory: Reservoir,  # noqa: ARG002
        rng: torch.Generator,  # noqa: ARG002
    ) -> list[Group]:
        """Stream and memory B, as one group."""
        return [draw.group]
