"""What a wrapper is: settings, and the lessons that they make."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from peerlearn.augment import ViewChain
from peerlearn.learner import WRAPPERS
from peerlearn.learner.collaboration import (
    Collaboration,
    Edge,
    Networks,
    number_of_peers,
    softening,
    weight_of_labels,
    weight_of_lessons,
)
from peerlearn.settings import Settings, fields_of, flatten, nest, present_name


def _weights(label: float, lesson: float, temperature: float) -> Mapping[str, float]:
    return {"label_weight": label, "lesson_weight": lesson, "temperature": temperature}


# lambda1, lambda2 and tau as the authors chose them on CIFAR-100 with 2000 images kept
WEIGHTS = {
    "er": _weights(0.5, 2, 4),
    "derpp": _weights(0.5, 1, 3),
    "er_ace": _weights(0.5, 1, 4),
    "ocm": _weights(0.25, 4, 4),
    "gsa": _weights(0.5, 1, 4),
    "onpro": _weights(0.25, 1, 4),
}


class WrapperBase(Settings):
    """What all wrappers share: fields are what one can be told, edges what it does.

    Args:
        peers: networks that learn together.
        label_weight: of the labels on every view (lambda1).

    One of your own has a `name` and `edges`; a field `chain: ViewChain` gives it harder views:

    >>> class Labels(WrapperBase):
    ...     name = "labels"
    ...     chain: ViewChain = ViewChain(stages=1)
    ...     def edges(self):
    ...         return ()
    >>> Labels(peers=1).collaboration().student_views
    (0, 1)
    """

    name: ClassVar[str]
    predict_with: ClassVar[Networks] = "peers"  # unless a learner is told otherwise

    peers: int = number_of_peers(2)
    label_weight: float = weight_of_labels(0.5)

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
        """Settings that are published for a method."""
        return WEIGHTS.get(method, {})

    @classmethod
    def authors(cls, _method: str, /) -> Mapping[str, Any]:
        """Settings that the authors' code has otherwise than their paper."""
        return {}

    @classmethod
    def published(cls, method: str, profile: str) -> dict[str, Any]:
        """The settings for a method, by the paper or by the authors' code."""
        found = dict(cls.preset(method))
        if profile == "authors":
            found |= cls.authors(method)
            found["chain"] = {**found.get("chain", {}), "aligned": True}  # every chain crops so
        return {name: value for name, value in found.items() if name in cls.model_fields}

    @classmethod
    def optim(cls, _method: str, _profile: str, /) -> Mapping[str, Any]:
        """Settings of the method's own optimizer that are published for this wrapper."""
        return {}

    @abstractmethod
    def edges(self) -> tuple[Edge, ...]:
        """The lessons."""

    def teachers(self) -> dict[str, dict[str, Any]]:
        """What its teachers are told, by the teacher's name."""
        return {}

    def collaboration(self) -> Collaboration:
        """What a learner is built with."""
        return self.collaborating()

    def collaborating(self, **fixed: Any) -> Collaboration:
        """The same, with more that nobody can choose. fixed: fields of `Collaboration`."""
        shared = {k: v for k, v in dict(self).items() if k in Collaboration.model_fields}
        return Collaboration(
            **{"chain": ViewChain(stages=0), **shared, **fixed},
            edges=self.edges(),
            teachers=self.teachers(),
            predict_with=self.predict_with,
        )


class Wrapper(WrapperBase):
    """Base of the wrappers with lessons; the weights are for methods without published ones.

    Args:
        lesson_weight: of the lessons (lambda2).
        temperature: by which answers are softened in a lesson (tau).

    >>> class FromItself(Wrapper):
    ...     name = "from_itself"
    ...     chain: ViewChain = ViewChain(stages=1)
    ...     def edges(self):
    ...         return (Edge(student=0, teacher=1, by="self"),)
    >>> FromItself(peers=1).collaboration().lesson_weight
    1.0
    """

    lesson_weight: float = weight_of_lessons(1.0)
    temperature: float = softening(4.0)


def collaboration_of(
    name: str, method: str, *, profile: str = "paper", **given: Any
) -> Collaboration:
    """The collaboration of a name such as "ccldc" with the published weights of a method.

    given: settings that are to be otherwise, such as lesson_weight=1 or chain=ViewChain(stages=2).

    >>> collaboration_of("ccldc", "er").lesson_weight
    2.0
    """
    wrapper = WRAPPERS[name]
    own = {k: v.model_dump() if isinstance(v, Settings) else v for k, v in given.items()}
    usual = {k: f.default for k, f in fields_of(wrapper).items() if not f.is_required()}
    values = {**usual, **flatten(wrapper.published(method, profile)), **flatten(own)}
    return wrapper(**nest(values)).collaboration()
