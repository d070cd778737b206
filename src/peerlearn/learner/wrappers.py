"""The published ways to collaborate, by the name after the plus: `er+ccldc`, `gsa+sdc`, ..."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import override

from peerlearn.augment import ViewChain
from peerlearn.learner import WRAPPERS
from peerlearn.learner.collaboration import (
    METHOD_BATCH,
    Collaboration,
    Edge,
    Lessons,
    easy_to_hard,
    hard_to_easy,
    number_of_peers,
    same_view,
    softening,
    weight_of_labels,
    weight_of_lessons,
)
from peerlearn.settings import Settings, setting


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
    """What all wrappers share: fields are what one can be told, edges what it does."""

    name: ClassVar[str]

    peers: int = number_of_peers(2)
    label_weight: float = weight_of_labels(0.5)

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
        found = {**cls.preset(method), **(cls.authors(method) if profile == "authors" else {})}
        return {name: value for name, value in found.items() if name in cls.model_fields}

    @abstractmethod
    def edges(self) -> tuple[Edge, ...]:
        """The lessons."""

    def teachers(self) -> dict[str, dict[str, Any]]:
        """What its teachers are told, by the teacher's name."""
        return {}

    def collaboration(self) -> Collaboration:
        """What a learner is built with."""
        lessons = {
            name: getattr(self, name) for name in Lessons.model_fields if hasattr(self, name)
        }
        chain = getattr(self, "chain", ViewChain(stages=0))
        return Collaboration(edges=self.edges(), chain=chain, teachers=self.teachers(), **lessons)


class Wrapper(WrapperBase):
    """Base of the wrappers with lessons; the weights are for methods without published ones."""

    lesson_weight: float = weight_of_lessons(1.0)
    temperature: float = softening(4.0)


class PeerWrapper(Wrapper):
    """Base of the wrappers with a lesson on a view that all peers have in common."""

    equal_view: Literal["image", "hardest"] = setting(
        "image", "view that peers have in common: the image, or (authors) the last of the chain"
    )
    scale_base: bool = setting(
        False, "let lambda1 weigh the method's own loss too, as the authors' ER does"
    )

    @classmethod
    @override
    def authors(cls, method: str, /) -> Mapping[str, Any]:
        return {"equal_view": "hardest", "scale_base": method == "er"}

    @override
    def collaboration(self) -> Collaboration:
        made = super().collaboration()
        weight = self.label_weight if self.scale_base else 1.0
        return made.model_copy(update={"base_weight": weight})

    def in_common(self, stages: int) -> tuple[Edge, ...]:
        """The lesson on the view that peers have in common."""
        return same_view(stages if self.equal_view == "hardest" else 0)


class CCLDC(PeerWrapper):
    """Two peers, the teacher has the harder view (CCL-DC).

    Wang et al., CVPR 2024, arXiv 2312.00600.

    >>> CCLDC().collaboration().peers
    2
    """

    name = "ccldc"
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(self.chain.stages) + hard_to_easy(self.chain.stages)


class CCLDCEasyToHard(PeerWrapper):
    """Two peers, the teacher has the easier view."""

    name = "ccldc-easy-to-hard"
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(self.chain.stages) + easy_to_hard(self.chain.stages)


class CCLDCSameDifficulty(PeerWrapper):
    """Two peers, both have the same view."""

    name = "ccldc-same-difficulty"
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(self.chain.stages) + same_view(*range(1, self.chain.stages + 1))


class CCL(PeerWrapper):
    """Two peers, the images themselves only."""

    name = "ccl"

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(stages=0)


class SDC(Wrapper):
    """One network that teaches itself, from its harder view."""

    name = "sdc"
    peers: int = number_of_peers(1)
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return hard_to_easy(self.chain.stages, by="self")


class SDCEasyToHard(Wrapper):
    """One network that teaches itself, from its easier view."""

    name = "sdc-easy-to-hard"
    peers: int = number_of_peers(1)
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return easy_to_hard(self.chain.stages, by="self")


class Multiview(WrapperBase):
    """One network, labels on every view, no lessons."""

    name = "multiview"
    peers: int = number_of_peers(1)
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return ()


class Untrained(Wrapper):
    """One network and a teacher that never learns."""

    name = "untrained"
    peers: int = number_of_peers(1)
    label_weight: float = weight_of_labels(0.0)

    @classmethod
    @override
    def preset(cls, method: str) -> Mapping[str, Any]:
        return {}  # its weight and temperature are not published

    @override
    def edges(self) -> tuple[Edge, ...]:
        return same_view(METHOD_BATCH, by="frozen")


def collaboration_of(
    name: str, method: str, *, profile: str = "paper", **given: Any
) -> Collaboration:
    """The collaboration of a name such as "ccldc" with the published weights of a method.

    given: settings that are to be otherwise, such as lesson_weight=1 or chain=ViewChain(stages=2).

    >>> collaboration_of("ccldc", "er").lesson_weight
    2.0
    """
    wrapper = WRAPPERS[name]
    return wrapper(**{**wrapper.published(method, profile), **given}).collaboration()
