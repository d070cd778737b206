"""Teachers: who answers the students, what moves after a step, and what must be saved."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer, State, part, prefixed
from peerlearn.settings import Settings


class Shown(NamedTuple):
    """What is to be answered: the views of some images, and each peer's logits on its views.

    All of it is on the learner's first device. Answers may be on any.
    """

    views: list[Tensor]  # (B, 3, H, W) each
    students: list[dict[int, Tensor]]  # per peer: (B, C) by view


class TeacherSettings(Settings):
    """What a wrapper can tell a teacher; nothing, unless a teacher has fields of its own."""


class Teacher(ABC):
    """Base of all teachers. One object serves all students of a learner.

    A class with a `name` and `answers` is a teacher; an edge asks for it by that name. The learner
    makes it.

    Args:
        peers: those that it teaches.
        new_peer: makes one more, each from a seed of its own.
        values: its settings, by their names.

    One that finds every class equally likely:

    >>> import torch
    >>> class Undecided(Teacher):
    ...     name = "undecided"
    ...     reads_students = True
    ...     def answers(self, asked, shown):
    ...         return [{v: torch.zeros_like(own[v]) for v in asked} for own in shown.students]
    >>> views = Shown(views=[], students=[{0: torch.ones(2, 3)}])
    >>> Undecided([], lambda: None).answers([0], views)[0][0].sum()
    tensor(0.)
    """

    name: ClassVar[str]
    reads_students: ClassVar[bool] = False  # answers with what peers said on the views asked for
    answers_any_batch: ClassVar[bool] = False  # also on the batches that a method trains on
    least_peers: ClassVar[int] = 1
    slow: ClassVar[bool] = False  # has `slow_copies`; such a one may be there without an edge

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

    @property
    def slow_copies(self) -> list[PeerModel]:
        """Slow copies that can answer in the peers' place, one for each peer; [] if it has none."""
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

    def moving_state(self) -> State:
        """The part of its state that moves while it answers: all but its networks' weights."""
        weights = {
            f"{number}.{name}"
            for number, network in enumerate(self.networks)
            for name, _ in network.named_parameters()
        }
        return {name: value for name, value in self.state_dict().items() if name not in weights}

    def state_dict(self) -> State:
        """All that outlives a step: the same names and shapes from the start."""
        state: State = {}
        for number, network in enumerate(self.networks):
            state |= prefixed(f"{number}", network.full_state())
        return state

    def load_state_dict(self, state: State) -> None:
        """Become the teacher whose `state_dict()` this was."""
        for number, network in enumerate(self.networks):
            network.load_full_state(part(f"{number}", state))


def logits_by_view(
    model: PeerModel, asked: Iterable[int], views: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Logits on the views asked for, each a forward of its own: batch-norm must not mix them.

    The hardest view goes first, as in the authors' code, so that the running statistics that
    prediction uses weigh it least. The model is shown them on its own device.

    >>> from peerlearn import small_net
    >>> views = [torch.rand(4, 3, 8, 8) for _ in range(3)]
    >>> list(logits_by_view(PeerModel(small_net(2)), {0, 2}, views))
    [2, 0]
    """
    asked, last = sorted(asked), len(views) - 1
    order = [view for view in asked if view == last] + [view for view in asked if view != last]
    return {view: model.logits(moved(views[view], model.device)) for view in order}


def mean_of_others(
    asked: Iterable[int], said: Sequence[Mapping[int, Tensor]]
) -> list[dict[int, Tensor]]:
    """For each, what the others say on average. said: logits (B, C) by view, of each.

    >>> mean_of_others([0], [{0: torch.zeros(1, 2)}, {0: torch.ones(1, 2)}])[0][0]
    tensor([[1., 1.]])
    """
    asked = list(asked)
    others = [[*said[:i], *said[i + 1 :]] for i in range(len(said))]
    return [
        {view: torch.stack([logits[view] for logits in some]).mean(dim=0) for view in asked}
        for some in others
    ]
