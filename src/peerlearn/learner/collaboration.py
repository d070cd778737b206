"""How peers teach each other: lessons along edges between views."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self, get_args

import torch
from pydantic import Field, model_validator
from torch import Tensor

from peerlearn.augment import ViewChain
from peerlearn.errors import did_you_mean
from peerlearn.learner import TEACHERS
from peerlearn.losses import distill
from peerlearn.methods.interface import LabelledImages
from peerlearn.methods.replay import classification_loss
from peerlearn.settings import Settings, setting, with_present_names

METHOD_BATCH = -1  # the batch that a method itself trains on, instead of a view of the chain

Logits = Mapping[int, Tensor]  # (B, C) by view
Networks = Literal["peers", "ema", "average"]  # that can predict
PredictWith = Literal["peers", "ema", "average", "ncm"]
PREDICT_WITH: tuple[PredictWith, ...] = get_args(PredictWith)
Distance = Literal["euclidean", "cosine"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)


class Edge(NamedTuple):
    """One lesson: on view `student`, follow the answer of teacher `by` on view `teacher`.

    Args:
        student: the view that the student is shown. 0 is the image itself, later ones are harder.
        teacher: the view that the teacher is shown.
        by: the teacher's name: peer, self, frozen, shadow, shadow_peer, shadow_all, or one of
            your own.
        weight: of this lesson among the others.

    >>> Edge(student=0, teacher=1)
    Edge(student=0, teacher=1, by='peer', weight=1.0)
    """

    student: int
    teacher: int
    by: str = "peer"
    weight: float = 1.0


def same_view(*views: int, by: str = "peer", weight: float = 1.0) -> tuple[Edge, ...]:
    """Student and teacher look at the same view."""
    return tuple(Edge(view, view, by, weight) for view in views)


def hard_to_easy(stages: int, by: str = "peer") -> tuple[Edge, ...]:
    """The distillation chain: the teacher always has the harder view."""
    return tuple(Edge(view - 1, view, by) for view in range(1, stages + 1))


def easy_to_hard(stages: int, by: str = "peer") -> tuple[Edge, ...]:
    """The chain the other way round."""
    return tuple(Edge(view, view - 1, by) for view in range(1, stages + 1))


def number_of_peers(number: int) -> Any:
    """The setting `peers`, with this default."""
    return setting(number, "networks that learn together", ge=1, le=64)


def weight_of_labels(weight: float) -> Any:
    """The setting `label_weight`, with this default."""
    return setting(weight, "weight of the labels on every view (lambda1)", ge=0)


def weight_of_lessons(weight: float) -> Any:
    """The setting `lesson_weight`, with this default."""
    return setting(weight, "weight of the lessons (lambda2)", ge=0)


def weight_of_base(weight: float) -> Any:
    """The setting `base_weight`, with this default."""
    return setting(weight, "weight of the method's own loss", ge=0)


def softening(temperature: float) -> Any:
    """The setting `temperature`, with this default."""
    return setting(temperature, "by which answers are softened in a lesson (tau)", gt=0)


class Collaboration(Settings):
    """Who learns, from whom, on which views. The default is a baseline: one peer, no lessons.

    Args:
        peers: networks that learn, all on the same images.
        edges: the lessons. View 0 is the image itself, later ones are harder, METHOD_BATCH is the
            batch that the method trains on.
        label_weight: of the classification loss on every view (lambda1).
        lesson_weight: of the lessons (lambda2).
        temperature: by which answers are softened in a lesson.
        chain: makes the views.
        base_weight: of the method's own loss; 1, but for ER in the authors' code. With 0 a method
            whose loss is the labels' alone is not asked for it: those of the views take its place.
        label_views: the views on which labels are learnt; None: all.
        join_groups: learn what the method keeps apart as one group, among all classes.
        own_draws: let each peer train on a draw of its own; lessons are on the first one's.
        predict_with: the networks that predict unless others are asked for: the peers, their EMA
            copies, or the average of both.
        teachers: settings of teachers, by the teacher's name; slow ones may be without an edge.

    >>> Collaboration(peers=2, edges=same_view(0) + hard_to_easy(3), lesson_weight=1).student_views
    (0, 1, 2, 3)
    """

    peers: int = number_of_peers(1)
    label_weight: float = weight_of_labels(0.0)
    lesson_weight: float = weight_of_lessons(0.0)
    temperature: float = softening(4.0)
    edges: tuple[Edge, ...] = ()
    chain: ViewChain = ViewChain()
    base_weight: float = weight_of_base(1.0)
    label_views: tuple[int, ...] | None = None
    join_groups: bool = False
    own_draws: bool = False
    predict_with: Networks = "peers"
    teachers: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: Any) -> Any:
        return with_present_names(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _edges_can_be_followed(self) -> Self:
        heard = {edge.by for edge in self.edges}
        told = [name for name in self.teachers if name not in heard and not _is_slow(name)]
        if told:
            known = sorted(heard)
            raise ValueError(did_you_mean(f"no edge is by {told[0]!r}", told[0], known))
        for edge in self.edges:
            ends = (edge.student, edge.teacher)
            if not all(METHOD_BATCH <= view <= self.chain.stages for view in ends):
                raise ValueError(
                    f"{edge} names a view that a chain of {self.chain.stages} stages does not "
                    f"have; views are 0 to {self.chain.stages}. More come with "
                    "chain=ViewChain(stages=...), in a wrapper with a field `chain: ViewChain`"
                )
            if edge.by not in TEACHERS:
                raise ValueError(
                    did_you_mean(f"there is no teacher {edge.by!r}", edge.by, TEACHERS)
                )
            if METHOD_BATCH in ends and (
                ends != (METHOD_BATCH, METHOD_BATCH) or not TEACHERS[edge.by].answers_any_batch
            ):
                able = [name for name, teacher in TEACHERS.items() if teacher.answers_any_batch]
                raise ValueError(
                    f"{edge} is on the method's own batch, where only these teachers answer: "
                    f"{', '.join(able)}; take Edge(METHOD_BATCH, METHOD_BATCH, by={able[0]!r})"
                )
            if self.peers < (least := TEACHERS[edge.by].least_peers):
                raise ValueError(
                    f"teacher {edge.by!r} needs at least {least} peers, got {self.peers}; take "
                    f"peers={least}, or by='self'"
                )
        return self

    @model_validator(mode="after")
    def _views_are_there(self) -> Self:
        for view in self.label_views or ():
            if not 0 <= view <= self.chain.stages:
                raise ValueError(
                    f"label_views names view {view}; the chain has 0 to {self.chain.stages}"
                )
        return self

    @model_validator(mode="after")
    def _somebody_answers(self) -> Self:
        if self.predict_with != "peers" and not self.has_ema:
            raise ValueError(
                f"predict_with={self.predict_with!r} needs an EMA copy, which no teacher here has; "
                "take predict_with='peers', or teachers={'shadow': {}}"
            )
        heard = {edge.by for edge in self._followed}
        for name, told in self.teachers.items():
            if told.get("buffers") == "own" and name not in heard:
                raise ValueError(
                    f"buffers='own' needs images that teacher {name!r} is shown, and no lesson is "
                    "by it; take buffers='follow'"
                )
        return self

    @property
    def has_ema(self) -> bool:
        """Whether a teacher keeps EMA copies of the peers."""
        return any(map(_is_slow, self.teacher_names))

    @property
    def needs_logits(self) -> bool:
        """Whether a method must have a classifier that can teach or be taught."""
        return bool(self.edges or self.label_weight)

    @property
    def teacher_names(self) -> tuple[str, ...]:
        """All teachers that there are: of the edges, and slow ones that were told something."""
        return tuple(dict.fromkeys([*(edge.by for edge in self.edges), *self.teachers]))

    @property
    def method_batch_edges(self) -> tuple[Edge, ...]:
        """The edges on the method's own batch."""
        return tuple(edge for edge in self._followed if edge.student == METHOD_BATCH)

    @property
    def view_edges(self) -> tuple[Edge, ...]:
        """The edges between views of the chain."""
        return tuple(edge for edge in self._followed if edge.student != METHOD_BATCH)

    @property
    def _followed(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.weight and self.lesson_weight)

    @property
    def labelled_views(self) -> tuple[int, ...]:
        """The views on which labels are learnt."""
        if not self.label_weight:
            return ()
        return tuple(range(self.chain.stages + 1)) if self.label_views is None else self.label_views

    @property
    def student_views(self) -> tuple[int, ...]:
        """The views that every peer is shown: those with labels, of lessons, of peers who teach."""
        asked = {edge.student for edge in self.view_edges} | {*self.labelled_views}
        asked |= {e.teacher for e in self.view_edges if TEACHERS[e.by].reads_students}
        return tuple(sorted(asked))

    def views_asked_of(self, teacher: str) -> tuple[int, ...]:
        """The views on which somebody wants this teacher's answer."""
        return tuple(sorted({edge.teacher for edge in self.view_edges if edge.by == teacher}))


def _is_slow(teacher: str) -> bool:
    return teacher in TEACHERS and TEACHERS[teacher].slow


class CollaborationLoss(NamedTuple):
    """The collaborative part of one student's loss, its two sums unweighted."""

    labels: Tensor
    lessons: Tensor

    def weighted(self, c: Collaboration) -> Tensor:
        """lambda1 * labels + lambda2 * lessons."""
        return c.label_weight * self.labels + c.lesson_weight * self.lessons


def collaboration_loss(
    student: Logits, teachers: Mapping[str, Logits], group: LabelledImages, c: Collaboration
) -> CollaborationLoss:
    """What a student makes of a group. student[v], teachers[name][v]: logits (B, C) on view v."""
    zero = group.y.new_zeros((), dtype=torch.float32)
    labels = [classification_loss(student[view], group) for view in c.labelled_views]
    lessons = [
        edge.weight
        * distill(student[edge.student], teachers[edge.by][edge.teacher], temperature=c.temperature)
        for edge in c.view_edges
    ]
    return CollaborationLoss(torch.stack(labels).sum() if labels else zero, sum(lessons, zero))
