"""What a wrapper is: settings, and the edges between peers that they stand for."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from peerlearn.augment import ViewChain
from peerlearn.distill import WRAPPERS
from peerlearn.distill.distillation import (
    Distillation,
    DistillWeight,
    LabelWeight,
    Networks,
    PeerCount,
    Temperature,
)
from peerlearn.distill.edges import Edge
from peerlearn.distill.teachers.base import TeacherSettings
from peerlearn.settings import Settings, fields_of, flatten, nest, present_name

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

    A field `chain: ViewChain` gives it harder views:

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
        """Understand a field `answer`, the old way to say what predicts."""
        if "answer" in cls.model_fields:
            old = cls.model_fields["answer"].default
            cls.predict_with = present_name("answer", old)[1]
            text = f'wrapper {cls.__name__}: write predict_with = "{cls.predict_with}", not a field'
            warnings.warn(f"{text} `answer`", DeprecationWarning, stacklevel=2)

    @classmethod
    def preset(cls, method: str) -> Mapping[str, Any]:
        """Return the settings that are published for a method."""
        return WEIGHTS.get(method, {})

    @classmethod
    def authors(cls, _method: str, /) -> Mapping[str, Any]:
        """Return the settings in which the authors' code differs from their paper."""
        return {}

    @classmethod
    def published(cls, method: str, profile: str) -> dict[str, Any]:
        """Return the settings for a method, by the paper or by the authors' code."""
        found = dict(cls.preset(method))
        if profile == "authors":
            found |= cls.authors(method)
            found["chain"] = {**found.get("chain", {}), "aligned": True}  # every chain crops so
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
