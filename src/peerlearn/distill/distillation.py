"""Distillation: how many peers learn, their teachers, views and weights; bases of wrappers."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from peerlearn.augment import ViewChain
from peerlearn.distill import TEACHERS, WRAPPERS
from peerlearn.distill.edges import METHOD_BATCH, Edge
from peerlearn.distill.teachers.base import TeacherSettings
from peerlearn.errors import UserError, did_you_mean
from peerlearn.settings import (
    Settings,
    about,
    fields_of,
    flatten,
    nest,
    present_name,
    with_present_names,
)

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
        edges: the terms of the distillation loss.
        label_weight: of the classification loss on every view (lambda1).
        distill_weight: of the distillation loss (lambda2).
        temperature: divides the logits of student and teacher (tau).
        chain: makes the views.
        base_weight: of the method's own loss. With 0, one that is plain cross-entropy is not
            computed: the labels on the views replace it.
        label_views: the views with a classification loss; None: all.
        merge_groups: join the groups that the method keeps apart, and let all classes compete.
        separate_draws: let each peer train on a draw of its own; edges are on the first one's.
        predict_with: what predicts: the peers, their EMA copies, or the average of both.
        teachers: settings of teachers, by name; EMA teachers may be without an edge.

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
        is_shown = edge.student == edge.teacher and TEACHERS[edge.by].sees_method_batch
        if METHOD_BATCH in ends and not is_shown:
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
        active = {edge.by for edge in self.active_edges}
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
    def active_edges(self) -> tuple[Edge, ...]:
        """The edges whose weight is not 0."""
        return tuple(edge for edge in self.edges if edge.weight and self.distill_weight)

    @property
    def method_batch_edges(self) -> tuple[Edge, ...]:
        """The active edges on the method's own batch."""
        return tuple(edge for edge in self.active_edges if edge.student == METHOD_BATCH)

    @property
    def view_edges(self) -> tuple[Edge, ...]:
        """The active edges between views of the chain."""
        return tuple(edge for edge in self.active_edges if edge.student != METHOD_BATCH)

    @property
    def labelled_views(self) -> tuple[int, ...]:
        """The views with a classification loss."""
        views = range(self.chain.stages + 1) if self.label_views is None else self.label_views
        return tuple(views) if self.label_weight else ()

    @property
    def student_views(self) -> tuple[int, ...]:
        """The views that every peer sees, as a student or because a teacher reads its logits."""
        views = {edge.student for edge in self.view_edges} | {*self.labelled_views}
        views |= {edge.teacher for edge in self.view_edges if TEACHERS[edge.by].reads_students}
        return tuple(sorted(views))


def _is_ema(teacher: str) -> bool:
    return teacher in TEACHERS and TEACHERS[teacher].is_ema


# lambda1, lambda2 and tau as the authors chose them on CIFAR-100 with 2000 images kept
WEIGHTS: Mapping[str, Mapping[str, float]] = {
    method: {"label_weight": lambda1, "distill_weight": lambda2, "temperature": tau}
    for method, lambda1, lambda2, tau in (
        ("er", 0.5, 2, 4),
        ("derpp", 0.5, 1, 3),
        ("er_ace", 0.5, 1, 4),
        ("ocm", 0.25, 4, 4),
        ("gsa", 0.5, 1, 4),
        ("onpro", 0.25, 1, 4),
    )
}


class WrapperBase(Settings):
    """Base of all wrappers; the base itself is enough for one that has labels and no edges.

    Args:
        peers: networks that learn together.
        label_weight: of the labels on every view (lambda1).
        chain: if a wrapper has this field: makes the harder views.
        base_weight: likewise: of the method's own loss.
        shadow: likewise: how EMA copies follow.

    >>> class Labels(WrapperBase):
    ...     name = "labels"
    ...     chain: ViewChain = ViewChain(stages=1)
    >>> Labels(peers=1).distillation().student_views
    (0, 1)
    """

    name: ClassVar[str]
    predict_with: ClassVar[Networks] = "peers"  # the default of its learners

    peers: PeerCount = 2
    label_weight: LabelWeight = 0.5

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Understand a field `answer`, the old way to say what predicts; refuse `authors`."""
        if "authors" in vars(cls):
            raise UserError(f"wrapper {cls.__name__}: write preset(method, profile), not authors()")
        if "answer" in cls.model_fields:
            old = cls.model_fields["answer"].default
            cls.predict_with = present_name("answer", old)[1]
            text = f'wrapper {cls.__name__}: write predict_with = "{cls.predict_with}", not a field'
            warnings.warn(f"{text} `answer`", DeprecationWarning, stacklevel=2)

    @classmethod
    def preset(cls, method: str, _profile: str, /) -> Mapping[str, Any]:
        """Return the settings for a method, by the paper or by the authors' code."""
        return WEIGHTS.get(method, {})

    @classmethod
    def published(cls, method: str, profile: str) -> dict[str, Any]:
        """Return the preset, without what is no setting here; every chain of the authors aligns."""
        found = dict(cls.preset(method, profile))
        if profile == "authors":
            found["chain"] = {**found.get("chain", {}), "aligned": True}
        return {name: value for name, value in found.items() if name in cls.model_fields}

    @classmethod
    def optim(cls, _method: str, _profile: str, /) -> Mapping[str, Any]:
        """Return the settings of the method's own optimizer that are published for this wrapper."""
        return {}

    def edges(self) -> tuple[Edge, ...]:
        """Return the edges, one for each term of the distillation loss."""
        return ()

    def teachers(self) -> dict[str, dict[str, Any]]:
        """Return the settings of its teachers, by name: those in the field of a teacher's name."""
        own = {name: value for name, value in self if isinstance(value, TeacherSettings)}
        return {name: value.model_dump() for name, value in own.items()}

    def distillation(self, **fixed: Any) -> Distillation:
        """Return what a learner is built with. fixed: fields that are not settings of this class.

        A wrapper with such fields overrides it: `super().distillation(separate_draws=True)`.
        """
        shared = {k: v for k, v in dict(self).items() if k in Distillation.model_fields}
        return Distillation(
            **{"chain": ViewChain(stages=0), **shared, **fixed},
            edges=self.edges(),
            teachers=self.teachers(),
            predict_with=self.predict_with,
        )


class Wrapper(WrapperBase):
    """Base of the wrappers with edges; its weights are for methods without published ones.

    Args:
        distill_weight: of the distillation loss (lambda2).
        temperature: divides the logits of student and teacher (tau).

    >>> class FromItself(Wrapper):
    ...     name = "from_itself"
    ...     chain: ViewChain = ViewChain(stages=1)
    ...     def edges(self):
    ...         return (Edge(student=0, teacher=1, by="self"),)
    >>> FromItself(peers=1).distillation().distill_weight
    1.0
    """

    distill_weight: DistillWeight = 1.0
    temperature: Temperature = 4.0

    @abstractmethod
    @override
    def edges(self) -> tuple[Edge, ...]: ...


def distillation_of(
    name: str, method: str, *, profile: str = "paper", **given: Any
) -> Distillation:
    """Return the distillation of a name such as "ccldc" with the published weights of a method.

    given: settings that are to be otherwise, such as distill_weight=1 or chain=ViewChain(stages=2).

    >>> distillation_of("ccldc", "er").distill_weight
    2.0
    """
    wrapper = WRAPPERS[name]
    own = {k: v.model_dump() if isinstance(v, Settings) else v for k, v in given.items()}
    usual = {k: f.default for k, f in fields_of(wrapper).items() if not f.is_required()}
    values = {**usual, **flatten(wrapper.published(method, profile)), **flatten(own)}
    return wrapper(**nest(values)).distillation()
