"""CCL-DC and its ablations, by the name after the plus: `er+ccldc`, `gsa+sdc`, ..."""

from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import override

from peerlearn.augment import ViewChain
from peerlearn.learner.collaboration import (
    METHOD_BATCH,
    Collaboration,
    Edge,
    easy_to_hard,
    hard_to_easy,
    number_of_peers,
    same_view,
    weight_of_labels,
)
from peerlearn.learner.wrapper import Wrapper, WrapperBase
from peerlearn.settings import setting


class PeerWrapper(Wrapper):
    """Base of the wrappers with a lesson on a view that all peers have in common.

    Args:
        equal_view: which view that is: the image, or, as in the authors' code, the hardest.
        scale_base: whether lambda1 weighs the method's own loss too, as the authors' ER does.
    """

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
        weight = self.label_weight if self.scale_base else 1.0
        return self.collaborating(base_weight=weight)

    def in_common(self, stages: int) -> tuple[Edge, ...]:
        """The lesson on the view that peers have in common."""
        return same_view(stages if self.equal_view == "hardest" else 0)


class CCLDC(PeerWrapper):
    """Two peers, the teacher has the harder view (CCL-DC).

    Collaborative continual learning with a distillation chain: Wang et al., CVPR 2024,
    https://arxiv.org/abs/2312.00600

    Args:
        chain: makes the harder views.

    >>> CCLDC().collaboration().peers
    2
    """

    name = "ccldc"
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(self.chain.stages) + hard_to_easy(self.chain.stages)


class CCLDCEasyToHard(PeerWrapper):
    """Two peers, the teacher has the easier view.

    An ablation in Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    Args:
        chain: makes the harder views.

    >>> CCLDCEasyToHard().edges()[1]
    Edge(student=1, teacher=0, by='peer', weight=1.0)
    """

    name = "ccldc-easy-to-hard"
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(self.chain.stages) + easy_to_hard(self.chain.stages)


class CCLDCSameDifficulty(PeerWrapper):
    """Two peers, both have the same view.

    An ablation in Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    Args:
        chain: makes the harder views.

    >>> CCLDCSameDifficulty().edges()[1]
    Edge(student=1, teacher=1, by='peer', weight=1.0)
    """

    name = "ccldc-same-difficulty"
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(self.chain.stages) + same_view(*range(1, self.chain.stages + 1))


class CCL(PeerWrapper):
    """Two peers, the images themselves only.

    CCL-DC without its chain: Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    >>> CCL().edges()
    (Edge(student=0, teacher=0, by='peer', weight=1.0),)
    """

    name = "ccl"

    @override
    def edges(self) -> tuple[Edge, ...]:
        return self.in_common(stages=0)


class SDC(Wrapper):
    """One network that teaches itself, from its harder view.

    The chain of CCL-DC without a peer: Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    Args:
        chain: makes the harder views.

    >>> SDC().edges()[0]
    Edge(student=0, teacher=1, by='self', weight=1.0)
    """

    name = "sdc"
    peers: int = number_of_peers(1)
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return hard_to_easy(self.chain.stages, by="self")


class SDCEasyToHard(Wrapper):
    """One network that teaches itself, from its easier view.

    The chain of CCL-DC, reversed and without a peer: Wang et al., CVPR 2024,
    https://arxiv.org/abs/2312.00600

    Args:
        chain: makes the harder views.

    >>> SDCEasyToHard().edges()[0]
    Edge(student=1, teacher=0, by='self', weight=1.0)
    """

    name = "sdc-easy-to-hard"
    peers: int = number_of_peers(1)
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return easy_to_hard(self.chain.stages, by="self")


class Multiview(WrapperBase):
    """One network, labels on every view, no lessons.

    An ablation in Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    Args:
        chain: makes the harder views.

    >>> Multiview().collaboration().labelled_views
    (0, 1, 2, 3)
    """

    name = "multiview"
    peers: int = number_of_peers(1)
    chain: ViewChain = ViewChain()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return ()


class Untrained(Wrapper):
    """One network and a teacher that never learns.

    An ablation in Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    >>> Untrained().edges()[0].by
    'frozen'
    """

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
