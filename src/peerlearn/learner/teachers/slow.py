"""Slow teachers: copies of the peers that go a small part of the way with every step."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor
from typing_extensions import override

from peerlearn.devices import moved
from peerlearn.errors import UserError
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

CORRECTION_PERIOD = 10  # updates for which the exponent of the authors' correction stays as it is


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
            for model, followed in zip(self.models, self.followed(), strict=True):
                learnt = [own for own, *rest in _beside(model, followed) if _is_learnt(*rest)]
                torch._foreach_mul_(learnt, share)

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
            _follow_weights(model, followed, self.settings.alpha, factor)
            if self.settings.buffers == "follow":
                _follow_buffers(model, followed, self.settings.alpha)
        self.updates += 1

    def _correction(self) -> float:
        """The factor of the weights that are followed: 1, but for the start near zero.

        MKD's code has alpha where 1 - alpha is meant: for an alpha of 0.01 the factor is 1.01 for
        twenty updates and then 1.
        """
        if self.settings.start == "copy":
            return 1.0
        return 1 / (1 - self.settings.alpha ** max(1, self.updates // CORRECTION_PERIOD))

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
    """One slow copy of the mean of all peers, which begin as copies of the first.

    The mean of networks that began apart means nothing: their units are in different orders.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+gwm", StreamInfo(num_classes=2), "small", memory=10)
    >>> len(learner.teachers["shadow_all"].networks)
    1
    """

    Settings = BroadcastSettings
    settings: BroadcastSettings
    name = "shadow_all"

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        for peer in peers[1:]:
            peer.model.load_state_dict(peers[0].model.state_dict())
        super().__init__(peers, new_peer, **values)

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
            _follow_weights(peer.model, [model], self.settings.broadcast_share)
            _follow_buffers(peer.model, [model], self.settings.broadcast_share)


@torch.no_grad()
def _copied(models: Sequence[PeerModel]) -> PeerModel:
    """A network of its own with the mean of their weights, which never takes a gradient."""
    try:
        copied = copy.deepcopy(models[0]).requires_grad_(False)
    except (TypeError, RuntimeError) as error:
        raise UserError(
            f"network: cannot be copied ({error}), as a slow copy wants it; let it hold layers and "
            "tensors alone"
        ) from error
    _follow_weights(copied, models, share=1)
    _follow_buffers(copied, models, share=1)
    return copied


def _follow_weights(
    model: PeerModel, followed: Sequence[PeerModel], share: float, factor: float = 1.0
) -> None:
    """Let what is learnt go a share of the way to `factor` times the mean of others."""
    pairs = [(own, other) for own, *other in _beside(model, followed) if _is_learnt(own, *other)]
    own = [tensor for tensor, _ in pairs]
    ends = [_mean(moved(others, to.device)) for to, others in pairs]
    torch._foreach_lerp_(own, ends if factor == 1 else torch._foreach_mul(ends, factor), share)


def _follow_buffers(model: PeerModel, followed: Sequence[PeerModel], share: float) -> None:
    """The same for statistics, and for weights that nobody learns; counts are copied."""
    for own, *others in _beside(model, followed):
        if _is_learnt(own, *others):
            continue
        end = _mean(moved(others, own.device))
        if own.is_floating_point():  # infinities have no way between them
            end = torch.where(own == end, own, own.lerp(end, share))
        own.copy_(end)


def _beside(model: PeerModel, others: Sequence[PeerModel]) -> Iterator[tuple[Tensor, ...]]:
    """Every parameter and buffer of a network, with those of others."""
    yield from zip(*([*one.parameters(), *one.buffers()] for one in (model, *others)), strict=True)


def _is_learnt(*tensors: Tensor) -> bool:
    """Whether it is a weight that some peer learns; copies take no gradient."""
    return any(tensor.requires_grad for tensor in tensors)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1 or not tensors[0].is_floating_point():
        return tensors[0]
    return torch.stack([*tensors]).mean(dim=0)
