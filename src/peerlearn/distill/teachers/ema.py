"""EMA teachers: copies whose weights are an exponential moving average of the peers'."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from typing_extensions import override

from peerlearn.devices import moved
from peerlearn.distill.teachers.base import (
    LogitsByView,
    Teacher,
    TeacherInput,
    TeacherSettings,
    logits_by_view,
    mean_of_others,
)
from peerlearn.errors import UserError
from peerlearn.peer import Peer, PeerModel, State
from peerlearn.settings import setting

CORRECTION_PERIOD = 10  # updates for which the exponent of the authors' correction stays as it is


class EMASettings(TeacherSettings):
    """How an EMA copy follows.

    Args:
        alpha: the share of the way to the peer that it moves in each step.
        start: as a copy of the peer, or near zero, as in the code of MKD's authors.
        buffers: whether running statistics follow too, or are those of the batches that it sees.

    >>> EMASettings(alpha=0.05).start
    'copy'
    """

    alpha: float = setting(0.01, "share of the way that an EMA copy moves in a step", gt=0, le=1)
    start: Literal["copy", "zero"] = setting(
        "copy", "an EMA copy begins as its peer, or near zero (MKD's authors)"
    )
    buffers: Literal["follow", "own"] = setting(
        "follow", "running statistics of an EMA copy: they follow too, or are those of its batches"
    )

    @model_validator(mode="after")
    def _start_is_there(self) -> Self:
        if self.start == "zero" and self.alpha == 1:
            raise ValueError("start='zero' needs an alpha below 1; take start='copy'")
        return self


class BroadcastSettings(EMASettings):
    """How the EMA of all peers' mean follows, and when the peers move towards it.

    Args:
        broadcast_every: steps after which the peers do; 0: never.
        broadcast_share: the share of the way to the EMA that they then move.

    >>> BroadcastSettings(broadcast_every=100).broadcast_share
    1.0
    """

    broadcast_every: int = setting(500, "steps after which peers move towards the EMA copy", ge=0)
    broadcast_share: float = setting(1.0, "share of the way that they then move", gt=0, le=1)


class EMATeacher(Teacher):
    """The student's own EMA copy.

    Base of all EMA teachers. A copy computes logits in training mode, on the statistics of each
    batch, with its weights of before the step. It never takes a gradient, and moves once all peers
    have stepped.

    Mean teachers: Tarvainen and Valpola, 2017, https://arxiv.org/abs/1703.01780; for streams:
    Michel et al., ICML 2024, https://arxiv.org/abs/2309.02870

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+ema", StreamInfo(num_classes=2), "small", memory=10)
    >>> learner.teachers["shadow"].settings.alpha
    0.01
    """

    name = "shadow"
    Settings = EMASettings
    settings: EMASettings
    is_ema: ClassVar[bool] = True

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        super().__init__(peers, new_peer, **values)
        alpha = self.settings.alpha
        factor = alpha / (1 - alpha) if self.settings.start == "zero" else 1.0
        self.models = [_copied(models, factor) for models in self.followed()]
        self.updates = 0

    def followed(self) -> list[list[PeerModel]]:
        """Return for each copy the networks whose mean it follows."""
        return [[peer.model] for peer in self.peers]

    @property
    @override
    def networks(self) -> list[PeerModel]:
        return self.models

    @override
    @torch.no_grad()
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
        views = list(views)
        return [self._logits_of(model, views, given) for model in self.models]

    def _logits_of(self, model: PeerModel, views: list[int], given: TeacherInput) -> LogitsByView:
        before = [] if self.settings.buffers == "own" else [b.clone() for b in model.buffers()]
        try:
            return logits_by_view(model, views, given.views)
        finally:
            for buffer, was in zip(model.buffers(), before, strict=False):
                buffer.copy_(was)

    @override
    def after_step(self) -> None:
        follows = self.settings.buffers == "follow"
        for model, followed in zip(self.models, self.followed(), strict=True):
            _follow(model, followed, self.settings.alpha, self._correction(), buffers=follows)
        self.updates += 1

    def _correction(self) -> float:
        """Return the factor of the weights that are followed: 1, but for the start near zero.

        MKD's code has alpha where 1 - alpha is meant: for an alpha of 0.01 the factor is 1.01 for
        twenty updates and then 1.
        """
        if self.settings.start == "copy":
            return 1.0
        return 1 / (1 - self.settings.alpha ** max(1, self.updates // CORRECTION_PERIOD))

    @override
    def state_dict(self) -> State:
        return {**super().state_dict(), "updates": self.updates}

    @override
    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.updates = state["updates"]


class PeerEMA(EMATeacher):
    """The mean of the other peers' EMA copies.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+mkd-pair", StreamInfo(num_classes=2), "small", memory=10)
    >>> len(learner.teachers["shadow_peer"].networks)
    2
    """

    name = "shadow_peer"
    least_peers = 2

    @override
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
        views = list(views)
        return mean_of_others(views, moved(super().logits(views, given), self.models[0].device))


class MeanPeerEMA(EMATeacher):
    """One EMA copy of the mean of all peers, which begin as copies of the first.

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
    def ema_copies(self) -> list[PeerModel]:
        return self.models * len(self.peers)

    @override
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
        return super().logits(views, given) * len(self.peers)

    @override
    def after_step(self) -> None:
        """Follow the mean; every so often, the peers move towards it, and their moments stay."""
        super().after_step()
        every = self.settings.broadcast_every
        if every and self.updates % every == 0:
            for peer in self.peers:
                _follow(peer.model, self.models, self.settings.broadcast_share)


def _copied(models: Sequence[PeerModel], factor: float) -> PeerModel:
    """Return a network with `factor` times the mean of their weights, which takes no gradient."""
    try:
        copied = copy.deepcopy(models[0]).requires_grad_(False)
    except (TypeError, RuntimeError) as error:
        raise UserError(
            f"network: cannot be copied ({error}), as an EMA copy needs; let it hold layers and "
            "tensors alone"
        ) from error
    _follow(copied, models, share=1, factor=factor)
    return copied


@torch.no_grad()
def _follow(
    model: PeerModel,
    others: Sequence[PeerModel],
    share: float,
    factor: float = 1.0,
    *,
    buffers: bool = True,
) -> None:
    """Move trained weights a share of the way to `factor` times the mean of others'.

    buffers: whether to do the same, without the factor, with statistics and with weights that are
    not trained; counts are copied.
    """
    weights, ends = [], []
    tensors = ([*one.parameters(), *one.buffers()] for one in (model, *others))
    for own, *theirs in zip(*tensors, strict=True):
        theirs = moved(theirs, own.device)
        is_float = own.is_floating_point()
        end = torch.stack(theirs).mean(dim=0) if is_float and len(theirs) > 1 else theirs[0]
        if any(tensor.requires_grad for tensor in (own, *theirs)):  # copies take no gradient
            weights.append(own)
            ends.append(end)
        elif buffers:
            if is_float:  # infinities have no way between them
                end = torch.where(own == end, own, own.lerp(end, share))
            own.copy_(end)
    torch._foreach_lerp_(weights, ends if factor == 1 else torch._foreach_mul(ends, factor), share)
