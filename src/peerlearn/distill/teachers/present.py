"""Teachers without EMA: the other peers, the student itself, an untrained network."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.distill.teachers.base import Teacher, TeacherInput, logits_by_view, mean_of_others
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer


class OtherPeers(Teacher):
    """The mean of the other peers' logits; with two peers, each is the other's teacher.

    >>> given = TeacherInput(views=[], students=[{0: torch.zeros(1, 2)}, {0: torch.ones(1, 2)}])
    >>> OtherPeers([], lambda: None).logits([0], given)[0][0]  # what the second teaches the first
    tensor([[1., 1.]])
    """

    name = "peer"
    reads_students = True
    least_peers = 2

    @override
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        return mean_of_others(views, given.students)


class SelfTeacher(Teacher):
    """The student itself, on another view.

    >>> given = TeacherInput(views=[], students=[{0: torch.zeros(1, 2)}, {0: torch.ones(1, 2)}])
    >>> SelfTeacher([], lambda: None).logits([0], given)[0][0]
    tensor([[0., 0.]])
    """

    name = "self"
    reads_students = True

    @override
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        return given.students


class UntrainedTeacher(Teacher):
    """A network that is initialised like one more peer and never trained.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+untrained", StreamInfo(num_classes=2), "small", memory=10)
    >>> learner.teachers["frozen"].batch_logits(torch.rand(4, 3, 8, 8)).shape
    torch.Size([4, 2])
    """

    name = "frozen"
    sees_method_batch = True

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        super().__init__(peers, new_peer, **values)
        self.model = new_peer().model.requires_grad_(False)

    @property
    @override
    def networks(self) -> list[PeerModel]:
        return [self.model]

    @override
    @torch.no_grad()
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        return [logits_by_view(self.model, views, given.views)] * len(given.students)

    @override
    @torch.no_grad()
    def batch_logits(self, x: Tensor, /) -> Tensor:
        return self.model.logits(x)
