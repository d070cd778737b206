"""What a teacher is: its logits, what it does after a step, and its state in a checkpoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.errors import UserError
from peerlearn.peer import Peer, PeerModel, State, part, prefixed
from peerlearn.settings import Settings

LogitsByView = dict[int, Tensor]  # (B, C) by the number of a view


class TeacherInput(NamedTuple):
    """What a teacher may use, on the learner's first device; its logits may be on any."""

    views: list[Tensor]  # (B, 3, H, W) each
    students: list[LogitsByView]  # by peer


class TeacherSettings(Settings):
    """The settings that a wrapper passes to a teacher; none, unless a teacher adds fields."""


class Teacher(ABC):
    """Base of all teachers: one teaches all students of a learner, by the edges that name it.

    Args:
        peers: those that it teaches.
        new_peer: makes one more, each from a seed of its own.
        values: its settings, by their names.

    One that finds every class equally likely:

    >>> import torch
    >>> class Undecided(Teacher):
    ...     name = "undecided"
    ...     reads_students = True
    ...     def logits(self, views, given):
    ...         return [{v: torch.zeros_like(own[v]) for v in views} for own in given.students]
    >>> given = TeacherInput(views=[], students=[{0: torch.ones(2, 3)}])
    >>> Undecided([], lambda: None).logits([0], given)[0][0].sum()
    tensor(0.)
    """

    name: ClassVar[str]
    reads_students: ClassVar[bool] = False  # needs the peers' logits on the views asked for
    sees_method_batch: ClassVar[bool] = False  # has logits on the batches that a method trains on
    least_peers: ClassVar[int] = 1
    is_ema: ClassVar[bool] = False  # has `ema_copies`; such a teacher needs no edge

    Settings: ClassVar[type[TeacherSettings]] = TeacherSettings
    settings: TeacherSettings

    def __init__(self, peers: Sequence[Peer], new_peer: Callable[[], Peer], **values: Any) -> None:
        self.peers, self.new_peer = peers, new_peer
        try:
            self.settings = self.Settings(**values)
        except UserError as error:
            raise UserError(f"teacher {self.name!r}: {error}") from None

    @property
    def networks(self) -> list[PeerModel]:
        """Networks of its own, which are counted in the cost and saved."""
        return []

    @property
    def ema_copies(self) -> list[PeerModel]:
        """EMA copies that can predict in the peers' place, one for each peer."""
        return self.networks if self.is_ema else []

    @abstractmethod
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
        """Return for each student the teacher's logits, (B, C), on the views of these numbers."""

    def batch_logits(self, _x: Tensor, /) -> Tensor:
        """Return the logits, (B, C), on a batch that the method trains on, (B, 3, H, W)."""
        raise TypeError(f"teacher {self.name!r} does not answer the method's own batches")

    def after_step(self) -> None:
        """Follow the peers, once all of them have taken their step."""
        return

    def moving_state(self) -> State:
        """Return the state that changes while it computes logits: all but its networks' weights."""
        weights = {
            f"{number}.{name}"
            for number, network in enumerate(self.networks)
            for name, _ in network.named_parameters()
        }
        return {name: value for name, value in self.state_dict().items() if name not in weights}

    def state_dict(self) -> State:
        """Return all that outlives a step: the same names and shapes from the start."""
        state: State = {}
        for number, network in enumerate(self.networks):
            state |= prefixed(f"{number}", network.full_state())
        return state

    def load_state_dict(self, state: State) -> None:
        """Take over the state that `state_dict()` returned."""
        for number, network in enumerate(self.networks):
            network.load_full_state(part(f"{number}", state))


def logits_by_view(
    model: PeerModel, numbers: Iterable[int], views: Sequence[Tensor]
) -> LogitsByView:
    """Return logits on the views of these numbers, each from a forward of its own.

    Batch norm must not mix views. The hardest view goes first, as in the authors' code, so that it
    weighs least in the running statistics that prediction uses.

    >>> from peerlearn import small_net
    >>> views = [torch.rand(4, 3, 8, 8) for _ in range(3)]
    >>> list(logits_by_view(PeerModel(small_net(2)), {0, 2}, views))
    [2, 0]
    """
    order = sorted(numbers, key=lambda view: (view != len(views) - 1, view))
    return {view: model.logits(views[view]) for view in order}


def mean_of_others(views: Iterable[int], logits: Sequence[LogitsByView]) -> list[LogitsByView]:
    """Return for each peer the mean of the others' logits, (B, C), on views of these numbers."""
    views, peers = list(views), range(len(logits))
    others = [[logits[j] for j in peers if j != i] for i in peers]
    return [{v: torch.stack([z[v] for z in some]).mean(dim=0) for v in views} for some in others]


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
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
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
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
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
    def logits(self, views: Iterable[int], given: TeacherInput) -> list[LogitsByView]:
        return [logits_by_view(self.model, views, given.views)] * len(given.students)

    @override
    @torch.no_grad()
    def batch_logits(self, x: Tensor, /) -> Tensor:
        return self.model.logits(x)
