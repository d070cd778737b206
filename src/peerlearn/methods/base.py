"""What a method is.

A method is one short class that says what a step trains on (`draw`), with which loss (`loss`), and
which images peers may discuss (`groups`). It owns no network, no optimizer and no loop, and does
not know whether its peer has company. To add one, write these three, put the class into `METHODS`,
and it has CCL-DC and checkpoints. What must outlive a step is kept elsewhere, so that it is saved
and resumed without further code: what concerns the stream in `Progress`, what belongs to one
network in `peer.kept`, what goes with a stored image in a column of the memory.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from peerlearn.errors import UserError
from peerlearn.losses import cross_entropy_among, mixup_cross_entropy
from peerlearn.memory import Reservoir
from peerlearn.peer import Optim, Peer
from peerlearn.stream import StreamInfo


class Mix(NamedTuple):
    """What else is in an image: the label of the other part and its share. Both (B,)."""

    others: Tensor
    share: Tensor


class Group(NamedTuple):
    """Images (B, 3, H, W) in [0, 1] with their labels (B,), judged together by one mean."""

    x: Tensor
    y: Tensor
    rivals: Tensor | None = None  # (C,) bool: the classes that compete; None: all
    mix: Mix | None = None  # None: every image shows one class


class Answer(NamedTuple):
    """A batch as a peer saw it, (B, 3, H, W), and what it said, (B, C)."""

    x: Tensor
    logits: Tensor


class Outcome(NamedTuple):
    """What a method computed for one peer."""

    loss: Tensor
    answers: list[Answer]  # on the batches that its cross-entropy trained on
    remember: Mapping[str, Tensor] = {}  # columns that go into the memory beside the stream batch
    notes: Mapping[str, Tensor] = {}  # found in `Progress.notes` by the next draw

    # With several peers, what they remember and note is averaged.


@dataclass(frozen=True)
class Progress:
    """Where the stream stands, the present batch included. The learner keeps it."""

    first_met: Tensor  # (C,) the task in which each class was first met, -1 before that
    task: int = 0
    step: int = 0  # batches of this task before the present one
    batches: int = 0  # batches of all tasks before the present one
    notes: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def seen(self) -> Tensor:
        """(C,) bool: classes met so far."""
        return self.first_met >= 0

    @property
    def old(self) -> Tensor:
        """(C,) bool: classes met before this task."""
        return self.seen & (self.first_met < self.task)

    def meeting(self, labels: Tensor) -> "Progress":
        """Where it stands once a batch with these labels, (B,), has come in."""
        first_met = self.first_met.clone()
        first_met[labels] = torch.where(self.seen[labels], first_met[labels], self.task)
        return replace(self, first_met=first_met)

    def after_batch(self, notes: Mapping[str, Tensor]) -> "Progress":
        """Where it stands once the present batch is done."""
        return replace(self, step=self.step + 1, batches=self.batches + 1, notes=dict(notes))

    def after_task(self) -> "Progress":
        """Where it stands at the start of the next task."""
        return replace(self, task=self.task + 1, step=0)


D = TypeVar("D")


class Method(ABC, Generic[D]):
    """Base of all methods; D is the type of what `draw` hands to `loss`."""

    name: ClassVar[str]
    optim: ClassVar[Optim] = Optim()
    needs_boundaries: ClassVar[bool] = False
    needs_slots: ClassVar[bool] = False  # labels in task order, equally many per task

    def __init__(self, stream: StreamInfo, *, replay_batch: int = 64) -> None:
        if replay_batch < 1:
            raise UserError(f"{self.name}: replay_batch must be at least 1, got {replay_batch}")
        if self.needs_boundaries and not stream.boundaries:
            raise UserError(
                f"{self.name} must be told where tasks end, and this stream does not tell: pass "
                "StreamInfo(boundaries=True) and call end_task(), or take er, derpp or er_ace, "
                "which need no boundaries"
            )
        if self.needs_slots and stream.classes_per_task is None:
            raise UserError(
                f"{self.name} must know the classes of each task, and this stream does not tell: "
                "pass StreamInfo(classes_per_task=...) with labels numbered in order of arrival, "
                "or take er, derpp or er_ace, which need no tasks"
            )
        self.stream = stream
        self.replay_batch = replay_batch

    @classmethod
    def own_settings(cls) -> dict[str, object]:
        """The settings that its constructor takes, with their defaults."""
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def settings(self) -> dict[str, object]:
        """What, beside the stream, decides this method's numbers; recorded in checkpoints."""
        return {k: _described(v) for k, v in vars(self).items() if k != "stream"}

    def check(self, batch: Group, progress: Progress) -> None:
        """Refuse a batch that this method cannot take now, before anything has changed."""
        if not self.needs_boundaries or self.stream.classes_per_task is None:
            return
        slots = self.slots(progress.task)
        stray = batch.y[(batch.y < slots.start) | (batch.y >= slots.stop)]
        if len(stray):
            raise UserError(
                f"{self.name}: label {int(stray[0])} is not of task {progress.task}, which holds "
                f"{slots.start} to {slots.stop - 1}: call end_task() where a task ends, or take "
                "er, derpp or er_ace, which need no tasks"
            )

    def slots(self, task: int) -> slice:
        """The labels of a task, where the stream numbers them in order of arrival."""
        assert self.stream.classes_per_task is not None
        return slice(task * self.stream.classes_per_task, (task + 1) * self.stream.classes_per_task)

    def equip(self, peer: Peer) -> None:
        """Give a new peer what this method needs it to have."""

    def end_task(self, peer: Peer) -> None:
        """Do what this method does for a peer at the end of a task."""

    @abstractmethod
    def draw(
        self, batch: Group, memory: Reservoir, progress: Progress, rng: torch.Generator
    ) -> D | None:
        """What this step trains on, the same for all peers; None: take no step this time."""

    @abstractmethod
    def loss(self, peer: Peer, draw: D) -> Outcome:
        """The loss of one peer on what was drawn."""

    @abstractmethod
    def groups(self, draw: D, memory: Reservoir, rng: torch.Generator) -> list[Group]:
        """The unaugmented images that peers discuss with each other in this step."""


def _described(value: object) -> object:
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return value if isinstance(value, int | float | str) else repr(value)


def images(x: Tensor) -> Tensor:
    """uint8 pixels as the networks see them: (B, 3, H, W) float in [0, 1]."""
    return x.float().div_(255)


def replayed(rows: Mapping[str, Tensor]) -> Group:
    """Rows of a memory as a group."""
    return Group(images(rows["x"]), rows["y"])


def joined(*groups: Group) -> Group:
    """One group of several, among all classes; those without a mix count as unmixed."""
    assert all(g.rivals is None for g in groups)
    x, y = torch.cat([g.x for g in groups]), torch.cat([g.y for g in groups])
    if all(g.mix is None for g in groups):
        return Group(x, y)
    mixes = [g.mix or Mix(g.y, torch.zeros_like(g.y, dtype=g.x.dtype)) for g in groups]
    others, share = (torch.cat(parts) for parts in zip(*mixes, strict=True))
    return Group(x, y, mix=Mix(others, share))


def classification_loss(logits: Tensor, group: Group) -> Tensor:
    """The cross-entropy that fits a group's labels. logits: (B, C)."""
    if group.mix is not None:
        return mixup_cross_entropy(logits, group.y, *group.mix)
    return cross_entropy_among(group.rivals, logits, group.y)


class Replay(NamedTuple):
    """What the plain replay methods draw: groups as they are, and as the method trains on them."""

    groups: list[Group]
    train: list[Group]


class ReplayMethod(Method[Replay]):
    """Cross-entropy on each group of what was drawn, summed; enough for ER and ER-ACE."""

    def loss(self, peer: Peer, draw: Replay) -> Outcome:
        """Sum over the groups of their classification losses."""
        answers = [Answer(g.x, peer.logits(g.x)) for g in draw.train]
        losses = [
            classification_loss(answer.logits, group)
            for answer, group in zip(answers, draw.train, strict=True)
        ]
        return Outcome(torch.stack(losses).sum(), answers)

    def groups(self, draw: Replay, memory: Reservoir, rng: torch.Generator) -> list[Group]:  # noqa: ARG002
        """The images that the method itself trains on."""
        return draw.groups
