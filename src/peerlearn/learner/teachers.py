"""Teachers: who answers the students, what moves after a step, and what must be saved."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.errors import UserError
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer, State, part, prefixed
from peerlearn.settings import Settings


class Shown(NamedTuple):
    """What is to be answered: the views of some images, and each peer's logits on its views."""

    views: list[Tensor]  # (B, 3, H, W) each
    students: list[dict[int, Tensor]]  # per peer: (B, C) by view


class TeacherSettings(Settings):
    """What a wrapper can tell a teacher; nothing, unless a teacher has fields of its own."""


class Teacher(ABC):
    """Base of all teachers. One object serves all students of a learner.

    A class with a `name` and `answers` is a teacher; an edge asks for it by that name.
    """

    name: ClassVar[str]
    reads_students: ClassVar[bool] = False  # answers with what peers said on the views asked for
    answers_any_batch: ClassVar[bool] = False  # also on the batches that a method trains on
    least_peers: ClassVar[int] = 1

    Settings: ClassVar[type[TeacherSettings]] = TeacherSettings
    settings: TeacherSettings

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        """Teach these peers; `new_peer` makes one more, each from a seed of its own."""
        self.peers, self.new_peer = peers, new_peer
        try:
            self.settings = self.Settings(**values)
        except UserError as error:
            raise UserError(f"teacher {self.name!r}: {error}") from None

    @property
    def networks(self) -> list[PeerModel]:
        """Networks of its own, which cost and are kept."""
        return []

    @abstractmethod
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        """For each student, logits (B, C) on the views asked for."""

    def answer_batch(self, _x: Tensor, /) -> Tensor:
        """Logits (B, C) on a batch that the method trains on, (B, 3, H, W)."""
        raise TypeError(f"teacher {self.name!r} does not answer the method's own batches")

    def after_step(self) -> None:
        """Follow, once all peers have taken their step."""
        return

    def state_dict(self) -> State:
        """All that outlives a step."""
        state: State = {}
        for number, network in enumerate(self.networks):
            state |= prefixed(f"{number}", network.full_state())
        return state

    def load_state_dict(self, state: State) -> None:
        """Become the teacher whose `state_dict()` this was."""
        for number, network in enumerate(self.networks):
            network.load_full_state(part(f"{number}", state))


class OtherPeers(Teacher):
    """The mean of the other peers' answers."""

    name = "peer"
    reads_students = True
    least_peers = 2

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        asked, students = list(asked), shown.students
        others = [students[:i] + students[i + 1 :] for i in range(len(students))]
        return [
            {view: torch.stack([logits[view] for logits in peers]).mean(dim=0) for view in asked}
            for peers in others
        ]


class Itself(Teacher):
    """The student itself, on another view."""

    name = "self"
    reads_students = True

    @override
    def answers(self, asked: Iterable[int], shown: Shown) -> list[dict[int, Tensor]]:
        return shown.students


class Frozen(Teacher):
    """A network born like one more peer, and left as it is."""

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


def logits_by_view(
    model: PeerModel, asked: Iterable[int], views: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Logits on the views asked for, each a forward of its own: batch-norm must not mix them.

    The hardest view goes first, as in the authors' code, so that the running statistics that
    prediction uses weigh it least.
    """
    asked, last = sorted(asked), len(views) - 1
    order = [view for view in asked if view == last] + [view for view in asked if view != last]
    return {view: model.logits(views[view]) for view in order}
