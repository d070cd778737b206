"""EMA teachers: copies whose weights are an exponential moving average of the peers'."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor
from typing_extensions import override

from peerlearn.devices import moved
from peerlearn.distill.teachers.base import (
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
        buffers: whether running statistics follow as weights do, or are its own, of the batches
            that it sees.

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


class EMABase(Teacher):
    """Base of the teachers that are EMA copies of peers.

    A copy computes logits in training mode, on the statistics of each batch, with its weights of
    before the step. It never takes a gradient, and moves once all peers have stepped.
    """

    Settings = EMASettings
    settings: EMASettings
    is_ema: ClassVar[bool] = True

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        super().__init__(peers, new_peer, **values)
        self.updates = 0
        self.models = [_copied(models) for models in self.followed()]
        if self.settings.start == "zero":
            share = self.settings.alpha / (1 - self.settings.alpha)
            for model, followed in zip(self.models, self.followed(), strict=True):
                trained = [own for own, *rest in _beside(model, followed) if _is_trained(*rest)]
                torch._foreach_mul_(trained, share)

    @abstractmethod
    def followed(self) -> list[list[PeerModel]]:
        """Return for each copy the networks whose mean it follows."""

    @property
    @override
    def networks(self) -> list[PeerModel]:
        return self.models

    @property
    @override
    def ema_copies(self) -> list[PeerModel]:
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
        """Return the factor of the weights that are followed: 1, but for the start near zero.

        MKD's code has alpha where 1 - alpha is meant: for an alpha of 0.01 the factor is 1.01 for
        twenty updates and then 1.
        """
        if self.settings.start == "copy":
            return 1.0
        return 1 / (1 - self.settings.alpha ** max(1, self.updates // CORRECTION_PERIOD))

    def _logits_of_copies(
        self, views: Iterable[int], given: TeacherInput
    ) -> list[dict[int, Tensor]]:
        """Return the logits of each copy, (B, C), on the views of these numbers."""
        views = list(views)
        return [self._logits_of(model, views, given) for model in self.models]

    @torch.no_grad()
    def _logits_of(
        self, model: PeerModel, views: list[int], given: TeacherInput
    ) -> dict[int, Tensor]:
        before = [] if self.settings.buffers == "own" else [b.clone() for b in model.buffers()]
        try:
            return logits_by_view(model, views, given.views)
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


class EMATeacher(EMABase):
    """The student's own EMA copy.

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
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        return self._logits_of_copies(views, given)


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
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        views = list(views)
        copies = self._logits_of_copies(views, given)
        together: list[dict[int, Tensor]] = moved(copies, self.models[0].device)
        return mean_of_others(views, together)


class MeanPeerEMA(EMABase):
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
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        return self._logits_of_copies(views, given) * len(self.peers)

    @override
    @torch.no_grad()
    def after_step(self) -> None:
        super().after_step()
        every = self.settings.broadcast_every
        if every and self.updates % every == 0:
            self._broadcast()

    def _broadcast(self) -> None:
        """Move the peers towards the copy, statistics included; moments stay."""
        (model,) = self.models
        for peer in self.peers:
            _follow_weights(peer.model, [model], self.settings.broadcast_share)
            _follow_buffers(peer.model, [model], self.settings.broadcast_share)


@torch.no_grad()
def _copied(models: Sequence[PeerModel]) -> PeerModel:
    """Return a new network with the mean of their weights, which never takes a gradient."""
    try:
        copied = copy.deepcopy(models[0]).requires_grad_(False)
    except (TypeError, RuntimeError) as error:
        raise UserError(
            f"network: cannot be copied ({error}), as an EMA copy needs; let it hold layers and "
            "tensors alone"
        ) from error
    _follow_weights(copied, models, share=1)
    _follow_buffers(copied, models, share=1)
    return copied


def _follow_weights(
    model: PeerModel, followed: Sequence[PeerModel], share: float, factor: float = 1.0
) -> None:
    """Move trained weights a share of the way to `factor` times the mean of others'."""
    pairs = [(own, other) for own, *other in _beside(model, followed) if _is_trained(own, *other)]
    own = [tensor for tensor, _ in pairs]
    ends = [_mean(moved(others, to.device)) for to, others in pairs]
    torch._foreach_lerp_(own, ends if factor == 1 else torch._foreach_mul(ends, factor), share)


def _follow_buffers(model: PeerModel, followed: Sequence[PeerModel], share: float) -> None:
    """Do the same with statistics, and with weights that are not trained; counts are copied."""
    for own, *others in _beside(model, followed):
        if _is_trained(own, *others):
            continue
        end = _mean(moved(others, own.device))
        if own.is_floating_point():  # infinities have no way between them
            end = torch.where(own == end, own, own.lerp(end, share))
        own.copy_(end)


def _beside(model: PeerModel, others: Sequence[PeerModel]) -> Iterator[tuple[Tensor, ...]]:
    """Yield every parameter and buffer of a network, with those of others."""
    yield from zip(*([*one.parameters(), *one.buffers()] for one in (model, *others)), strict=True)


def _is_trained(*tensors: Tensor) -> bool:
    """Return whether it is a weight that some peer trains; copies take no gradient."""
    return any(tensor.requires_grad for tensor in tensors)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1 or not tensors[0].is_floating_point():
        return tensors[0]
    return torch.stack([*tensors]).mean(dim=0)
