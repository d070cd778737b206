"""Distillation: how many peers learn, their teachers, views and weights."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from peerlearn.augment import ViewChain
from peerlearn.distill import TEACHERS
from peerlearn.distill.edges import METHOD_BATCH, Edge
from peerlearn.errors import did_you_mean
from peerlearn.settings import Settings, about, with_present_names

Networks = Literal["peers", "ema", "average"]  # that can predict


# settings of wrappers too, each of which has its own defaults
PeerCount = Annotated[int, about("networks that learn together", ge=1, le=64)]
LabelWeight = Annotated[float, about("weight of the labels on every view (lambda1)", ge=0)]
DistillWeight = Annotated[float, about("weight of the distillation (lambda2)", ge=0)]
BaseWeight = Annotated[float, about("weight of the method's own loss", ge=0)]
Temperature = Annotated[float, about("temperature of the distillation (tau)", gt=0)]


class Distillation(Settings):
    """The peers, the edges between them, and their views. The default is a baseline: one peer.

    Args:
        peers: networks that learn, all on the same images.
        edges: the terms of the distillation loss. View 0 is the image itself, later ones are
            harder, METHOD_BATCH is the batch that the method trains on.
        label_weight: of the classification loss on every view (lambda1).
        distill_weight: of the distillation loss (lambda2).
        temperature: divides the logits of student and teacher (tau).
        chain: makes the views.
        base_weight: of the method's own loss; 1, but for ER in the authors' code. With 0, a method
            whose own loss is plain cross-entropy is not asked for it: the labels on the views
            replace it.
        label_views: the views with a classification loss; None: all.
        merge_groups: join the groups that the method keeps apart, and let all classes compete.
        separate_draws: let each peer train on a draw of its own; edges are on the first one's.
        predict_with: the networks that predict unless others are asked for: the peers, their EMA
            copies, or the average of both.
        teachers: settings of teachers, by the teacher's name; EMA teachers may be without an edge.

    >>> from peerlearn.distill import hard_to_easy, same_view
    >>> Distillation(peers=2, edges=same_view(0) + hard_to_easy(3), distill_weight=1).student_views
    (0, 1, 2, 3)
    """

    peers: PeerCount = 1
    label_weight: LabelWeight = 0.0
    distill_weight: DistillWeight = 0.0
    temperature: Temperature = 4.0
    edges: tuple[Edge, ...] = ()
    chain: ViewChain = ViewChain()
    base_weight: BaseWeight = 1.0
    label_views: tuple[int, ...] | None = None
    merge_groups: bool = False
    separate_draws: bool = False
    predict_with: Networks = "peers"
    teachers: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: Any) -> Any:
        return with_present_names(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _check_edges(self) -> Self:
        named = {edge.by for edge in self.edges}
        unused = [name for name in self.teachers if name not in named and not _is_ema(name)]
        if unused:
            raise ValueError(did_you_mean(f"no edge is by {unused[0]!r}", unused[0], sorted(named)))
        for edge in self.edges:
            self._check_edge(edge)
        for view in self.label_views or ():
            if not 0 <= view <= self.chain.stages:
                raise ValueError(
                    f"label_views names view {view}; the chain has 0 to {self.chain.stages}"
                )
        return self

    def _check_edge(self, edge: Edge) -> None:
        ends = (edge.student, edge.teacher)
        if not all(METHOD_BATCH <= view <= self.chain.stages for view in ends):
            raise ValueError(
                f"{edge} names a view that a chain of {self.chain.stages} stages does not "
                f"have; views are 0 to {self.chain.stages}. More come with "
                "chain=ViewChain(stages=...), in a wrapper with a field `chain: ViewChain`"
            )
        if edge.by not in TEACHERS:
            raise ValueError(did_you_mean(f"there is no teacher {edge.by!r}", edge.by, TEACHERS))
        if METHOD_BATCH in ends and (
            ends != (METHOD_BATCH, METHOD_BATCH) or not TEACHERS[edge.by].sees_method_batch
        ):
            able = [name for name, teacher in TEACHERS.items() if teacher.sees_method_batch]
            raise ValueError(
                f"{edge} is on the method's own batch, where only these teachers answer: "
                f"{', '.join(able)}; take Edge(METHOD_BATCH, METHOD_BATCH, by={able[0]!r})"
            )
        if self.peers < (least := TEACHERS[edge.by].least_peers):
            raise ValueError(
                f"teacher {edge.by!r} needs at least {least} peers, got {self.peers}; take "
                f"peers={least}, or by='self'"
            )

    @model_validator(mode="after")
    def _check_ema(self) -> Self:
        if self.predict_with != "peers" and not self.has_ema:
            raise ValueError(
                f"predict_with={self.predict_with!r} needs an EMA copy, which no teacher here has; "
                "take predict_with='peers', or teachers={'shadow': {}}"
            )
        active = {edge.by for edge in self._active_edges}
        for name, settings in self.teachers.items():
            if settings.get("buffers") == "own" and name not in active:
                raise ValueError(
                    f"buffers='own' needs images that teacher {name!r} is shown, and no edge is "
                    "by it; take buffers='follow'"
                )
        return self

    @property
    def has_ema(self) -> bool:
        """Whether a teacher keeps EMA copies of the peers."""
        return any(map(_is_ema, self.teacher_names))

    @property
    def needs_logits(self) -> bool:
        """Whether the method must have a classifier that can teach or be taught."""
        return bool(self.edges or self.label_weight)

    @property
    def teacher_names(self) -> tuple[str, ...]:
        """All teachers: those of the edges, then EMA teachers that have settings only."""
        return tuple(dict.fromkeys([*(edge.by for edge in self.edges), *self.teachers]))

    @property
    def _active_edges(self) -> tuple[Edge, ...]:
        """The edges whose weight is not 0."""
        return tuple(edge for edge in self.edges if edge.weight and self.distill_weight)

    @property
    def method_batch_edges(self) -> tuple[Edge, ...]:
        """The active edges on the method's own batch."""
        return tuple(edge for edge in self._active_edges if edge.student == METHOD_BATCH)

    @property
    def view_edges(self) -> tuple[Edge, ...]:
        """The active edges between views of the chain."""
        return tuple(edge for edge in self._active_edges if edge.student != METHOD_BATCH)

    @property
    def labelled_views(self) -> tuple[int, ...]:
        """The views with a classification loss."""
        if not self.label_weight:
            return ()
        return tuple(range(self.chain.stages + 1)) if self.label_views is None else self.label_views

    @property
    def student_views(self) -> tuple[int, ...]:
        """The views that every peer sees, as a student or because a teacher reads its logits."""
        views = {edge.student for edge in self.view_edges} | {*self.labelled_views}
        views |= {e.teacher for e in self.view_edges if TEACHERS[e.by].reads_students}
        return tuple(sorted(views))


def _is_ema(teacher: str) -> bool:
    return teacher in TEACHERS and TEACHERS[teacher].is_ema
