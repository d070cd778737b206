"""Slow teachers: copies of the peers that go a small part of the way with every step."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor
from typing_extensions import override

from peerlearn.devices import moved
from peerlearn.learner.teacher import (
    Shown,
    Teacher,
    TeacherSettings,
    logits_by_view,
    mean_of_others,
)
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer, State
from peerlearn.settings import setting

CORRECTED = 10  # updates for which the exponent of the authors' correction stays as it is


class ShadowSettings(TeacherSettings):
    """How a slow copy follows.

    Args:
        alpha: the share of the way that it goes in each step.
        start: as a copy of whom it follows, or near zero, as in the code of MKD's authors.
        buffers: whether running statistics follow as weights do, or are its own, of the batches
            that it is shown.

    >>> ShadowSettings(alpha=0.05).start
    'copy'
    """

    alpha: float = setting(0.01, "share of the way that a slow copy goes in a step", gt=0, le=1)
    start: Literal["copy", "zero"] = setting(
        "copy", "a slow copy begins as its peer, or near zero (MKD's authors)"
    )
    buffers: Literal["follow", "own"] = setting(
        "follow", "running statistics of a slow copy: they follow too, or are those of its batches"
    )

    @model_validator(mode="after")
    def _start_is_there(self) -> Self:
        if self.start == "zero" and self.alpha == 1:
            raise ValueError("start='zero' needs an alpha below 1; take start='copy'")
        return self


class BroadcastSettings(ShadowSettings):
    """How a slow copy of all peers follows, and when they go towards it.

    Args:
        broadcast_every: steps after which they do; 0: never.
        broadcast_share: the share of the way that they then go.

    >>> BroadcastSettings(broadcast_every=100).broadcast_share
    1.0
    """

    broadcast_every: int = setting(500, "steps after which peers go towards the slow copy", ge=0)
    broadcast_share: float = setting(1.0, "share of the way that they then go", gt=0, le=1)


class SlowTeacher(Teacher):
    """Base of the teachers that are slow copies of peers.

    A copy answers in training mode, on the statistics of each batch, as it was before the step. It
    never takes a gradient, and moves once all peers have stepped.
    """

    Settings = ShadowSettings
    settings: ShadowSettings
    slow: ClassVar[bool] = True

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        super().__init__(peers, new_peer, **values)
        self.updates = 0
        self.models = [_copied(models) for models in self.followed()]
        if self.settings.start == "zero":
            share = self.settings.alpha / (1 - self.settings.alpha)
            for weight in (weight for model in self.models for weight in model.parameters()):
                weight.mul_(share)

    @abstractmethod
    def followed(self) -> list[list[PeerModel]]:
        """Whom each copy follows: the mean of these."""

    @property
    @override
    def networks(self) -> list[PeerModel]:
        return self.models

    @property
    @override
    def slow_copies(self) -> list[PeerModel]:
        return self.models

    @override
    @torch.no_grad()
    def after_step(self) -> None:
        factor = self._correction()
        for model, followed in zip(self.models, self.followed(), strict=True):
            weights = [_weights(one) for one in followed]
            _follow(_weights(model), weights, self.settings.alpha, factor)
            if self.settings.buffers == "follow":
                _follow(_buffers(model), [_buffers(one) for one in followed], self.settings.alpha)
        self.updates += 1

    def _correction(self) -> float:
        """The factor of the weights that are followed: 1, but for the start near zero.

        MKD's code has alpha where 1 - alpha is meant: for an alpha of 0.01 the factor is 1.01 for
        twenty updates and then 1.
        """
        if self.settings.start == "copy":
            return 1.0
        return 1 / (1 - self.settings.alpha ** max(1, self.updates // CORRECTED))

    def _said(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        """What each copy says."""
        asked = list(asked)
        return [self._answer(model, asked, shown) for model in self.models]

    @torch.no_grad()
    def _answer(self, model: PeerModel, asked: list[int], shown: Shown) -> dict[int, Tensor]:
        before = [] if self.settings.buffers == "own" else [b.clone() for b in model.buffers()]
        try:
            return logits_by_view(model, asked, shown.views)
        finally:
            for buffer, was in zip(model.buffers(), before, strict=False):
                buffer.copy_(was)

    @override
    def state_dict(self) -> State:
        return {**super().state_dict(), "updates": self.updates}

    @override
    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.updates = state["updates"]


class Shadow(SlowTeacher):
    """The student's own slow copy.

    Mean teachers: Tarvainen and Valpola, 2017, https://arxiv.org/abs/1703.01780; for streams:
    Michel et al., ICML 2024, https://arxiv.org/abs/2309.02870

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+ema", StreamInfo(num_classes=2), "small", memory=10)
    >>> learner.teachers["shadow"].settings.alpha
    0.01
    """

    name = "shadow"

    @override
    def followed(self) -> list[list[PeerModel]]:
        return [[peer.model] for peer in self.peers]

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        return self._said(asked, shown)


class ShadowOfPeers(Shadow):
    """The mean of the other peers' slow copies.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+mkd-pair", StreamInfo(num_classes=2), "small", memory=10)
    >>> len(learner.teachers["shadow_peer"].networks)
    2
    """

    name = "shadow_peer"
    least_peers = 2

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        asked = list(asked)
        said: list[dict[int, Tensor]] = moved(self._said(asked, shown), self.models[0].device)
        return mean_of_others(asked, said)


class ShadowOfAll(SlowTeacher):
    """One slow copy of the mean of all peers.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+gwm", StreamInfo(num_classes=2), "small", memory=10)
    >>> len(learner.teachers["shadow_all"].networks)
    1
    """

    Settings = BroadcastSettings
    settings: BroadcastSettings
    name = "shadow_all"

    @override
    def followed(self) -> list[list[PeerModel]]:
        return [[peer.model for peer in self.peers]]

    @property
    @override
    def slow_copies(self) -> list[PeerModel]:
        return self.models * len(self.peers)

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        return self._said(asked, shown) * len(self.peers)

    @override
    @torch.no_grad()
    def after_step(self) -> None:
        super().after_step()
        every = self.settings.broadcast_every
        if every and self.updates % every == 0:
            self._broadcast()

    def _broadcast(self) -> None:
        """Let the peers go towards the copy, statistics included; moments stay."""
        (model,) = self.models
        for peer in self.peers:
            _follow(_weights(peer.model), [_weights(model)], self.settings.broadcast_share)
            _follow(_buffers(peer.model), [_buffers(model)], self.settings.broadcast_share)


@torch.no_grad()
def _copied(models: Sequence[PeerModel]) -> PeerModel:
    """A network of its own with the mean of their weights, which never takes a gradient."""
    copied = copy.deepcopy(models[0]).requires_grad_(False)
    _follow(_weights(copied), [_weights(one) for one in models], share=1)
    _follow(_buffers(copied), [_buffers(one) for one in models], share=1)
    return copied


def _weights(model: PeerModel) -> list[Tensor]:
    return list(model.parameters())


def _buffers(model: PeerModel) -> list[Tensor]:
    return list(model.buffers())


def _follow(
    own: Sequence[Tensor], others: Sequence[Sequence[Tensor]], share: float, factor: float = 1.0
) -> None:
    """Let tensors go a share of the way to `factor` times the mean of others; counts are copied."""
    goals = [_mean(moved(tensors, to.device)) for to, *tensors in zip(own, *others, strict=True)]
    floats = [i for i, tensor in enumerate(own) if tensor.is_floating_point()]
    ends = [goals[i] for i in floats]
    if factor != 1:
        ends = [factor * end for end in ends]
    torch._foreach_lerp_([own[i] for i in floats], ends, share)
    for to, goal in zip(own, goals, strict=True):
        if not to.is_floating_point():
            to.copy_(goal)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1 or not tensors[0].is_floating_point():
        return tensors[0]
    return torch.stack([*tensors]).mean(dim=0)
