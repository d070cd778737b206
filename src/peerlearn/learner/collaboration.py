"""How peers teach each other: lessons along edges between views."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from peerlearn.augment import ViewChain
from peerlearn.errors import UserError
from peerlearn.losses import distill
from peerlearn.methods.base import Group, classification_loss

Teacher = Literal["peer", "self", "frozen"]

OWN = -1  # the view that a method itself trains on, instead of one of the chain


class Edge(NamedTuple):
    """One lesson: on view `student`, follow the teacher's answer on view `teacher`."""

    student: int
    teacher: int


def level(*views: int) -> tuple[Edge, ...]:
    """Student and teacher look at the same view."""
    return tuple(Edge(view, view) for view in views)


def hard_to_easy(stages: int) -> tuple[Edge, ...]:
    """The distillation chain: the teacher always has the harder view."""
    return tuple(Edge(view - 1, view) for view in range(1, stages + 1))


def easy_to_hard(stages: int) -> tuple[Edge, ...]:
    """The chain the other way round."""
    return tuple(Edge(view, view - 1) for view in range(1, stages + 1))


@dataclass(frozen=True)
class Collaboration:
    """Who learns, from whom, on which views. The default is a baseline: one peer, no lessons.

    Attributes:
        peers: networks that learn, all on the same images.
        edges: the lessons. View 0 is the image itself, later ones are harder, OWN is the batch that
            the method trains on.
        label_weight: of the classification loss on every view (lambda1).
        lesson_weight: of the lessons (lambda2).
        temperature: by which answers are softened in a lesson.
        teacher: the mean of the other peers, the student itself, or a network that never learns.
        chain: makes the views.
        base_weight: of the method's own loss; 1, but for ER in the authors' code.
    """

    peers: int = 1
    edges: tuple[Edge, ...] = ()
    label_weight: float = 0.0
    lesson_weight: float = 0.0
    temperature: float = 4.0
    teacher: Teacher = "peer"
    chain: ViewChain = field(default_factory=ViewChain)
    base_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.peers < 1:
            raise UserError(f"collaboration: peers must be at least 1, got {self.peers}")
        for edge in self.edges:
            if not all(OWN <= view <= self.chain.stages for view in edge):
                raise UserError(
                    f"collaboration: {edge} names a view that a chain of {self.chain.stages} "
                    f"stages does not have; views are 0 to {self.chain.stages}"
                )
            if OWN in edge and (edge != (OWN, OWN) or self.teacher != "frozen"):
                raise UserError(
                    f"collaboration: {edge} is on the method's own batch, where only a frozen "
                    "teacher answers: take teacher='frozen' and Edge(OWN, OWN)"
                )
        if self.teacher not in ("peer", "self", "frozen"):
            raise UserError(
                f"collaboration: teacher must be peer, self or frozen, got {self.teacher!r}"
            )
        if self.edges and self.teacher == "peer" and self.peers < 2:
            raise UserError(
                "collaboration: teacher 'peer' needs at least 2 peers, got 1; "
                "take peers=2, or teacher='self'"
            )
        if self.temperature <= 0:
            raise UserError(f"collaboration: temperature must be above 0, got {self.temperature}")
        if min(self.label_weight, self.lesson_weight, self.base_weight) < 0:
            raise UserError("collaboration: weights must be 0 or more")

    @property
    def own_lessons(self) -> int:
        """How many edges are on the method's own batch."""
        return self.edges.count(Edge(OWN, OWN)) if self.lesson_weight else 0

    @property
    def view_edges(self) -> tuple[Edge, ...]:
        """The edges between views of the chain."""
        return tuple(edge for edge in self.edges if OWN not in edge) if self.lesson_weight else ()

    @property
    def looks_at_views(self) -> bool:
        """Whether the chain is used at all."""
        return bool(self.label_weight or self.view_edges)


class Discussion(NamedTuple):
    """The collaborative part of one student's loss, its two sums unweighted."""

    labels: Tensor
    lessons: Tensor

    def weighted(self, c: Collaboration) -> Tensor:
        """lambda1 * labels + lambda2 * lessons."""
        return c.label_weight * self.labels + c.lesson_weight * self.lessons


def discuss(
    student: Sequence[Tensor], teacher: Sequence[Tensor], group: Group, c: Collaboration
) -> Discussion:
    """What a student makes of a group. student[v], teacher[v]: logits (B, C) on view v."""
    labels = torch.stack([classification_loss(logits, group) for logits in student]).sum()
    lessons = [distill(student[s], teacher[t], temperature=c.temperature) for s, t in c.view_edges]
    return Discussion(labels, sum(lessons, labels.new_zeros(())))
