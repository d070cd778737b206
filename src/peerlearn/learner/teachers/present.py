"""Teachers that answer as they are: the other peers, the student itself, one that never learns."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.learner.teacher import Shown, Teacher, logits_by_view, mean_of_others
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer


class OtherPeers(Teacher):
    """The mean of the other peers' answers.

    >>> shown = Shown(views=[], students=[{0: torch.zeros(1, 2)}, {0: torch.ones(1, 2)}])
    >>> OtherPeers([], lambda: None).answers([0], shown)[0][0]  # what the second says to the first
    tensor([[1., 1.]])
    """

    name = "peer"
    reads_students = True
    least_peers = 2

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        return mean_of_others(asked, shown.students)


class Itself(Teacher):
    """The student itself, on another view.

    >>> shown = Shown(views=[], students=[{0: torch.zeros(1, 2)}, {0: torch.ones(1, 2)}])
    >>> Itself([], lambda: None).answers([0], shown)[0][0]
    tensor([[0., 0.]])
    """

    name = "self"
    reads_students = True

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        return shown.students


class Frozen(Teacher):
    """A network born like one more peer, and left as it is.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er+untrained", StreamInfo(num_classes=2), "small", memory=10)
    >>> learner.teachers["frozen"].answer_batch(torch.rand(4, 3, 8, 8)).shape
    torch.Size([4, 2])
    """

    name = "frozen"
    answers_any_batch = True

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        super().__init__(peers, new_peer, **values)
        self.model = new_peer().model.requires_grad_(False)

    @property
    @override
    def networks(self) -> list[PeerModel]:
        return [self.model]

    @override
    @torch.no_grad()
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        return [logits_by_view(self.model, asked, shown.views)] * len(shown.students)

    @override
    @torch.no_grad()
    def answer_batch(self, x: Tensor, /) -> Tensor:
        return self.model.logits(x)
