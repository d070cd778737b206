"""CCL-DC and its ablations, by the name after the plus: `er+ccldc`, `gsa+sdc`, ..."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import override

from peerlearn.augment import ViewChain
from peerlearn.distill.distillation import (
    Distillation,
    LabelWeight,
    PeerCount,
    Wrapper,
    WrapperBase,
)
from peerlearn.distill.edges import METHOD_BATCH, Direction, Edge, chain_edges, same_view
from peerlearn.settings import about, setting

ALONG = about("along the chain, from the teacher's view to the student's")


class CCL(Wrapper):
    """Two peers, the images themselves only (Eq. 9).

    CCL-DC without its chain: Wang et al., CVPR 2024, https://arxiv.org/abs/2312.00600

    Args:
        equal_view: the view that peers have in common; the hardest in the authors' code.
        scale_base: whether lambda1 weighs the method's own loss too, as the authors' ER does.

    >>> CCL().edges()
    (Edge(student=0, teacher=0, by='peer', weight=1.0),)
    """

    name = "ccl"
    equal_view: Literal["image", "hardest"] = setting(
        "image", "view that peers have in common: the image, or (authors) the last of the chain"
    )
    scale_base: bool = setting(
        False, "let lambda1 weigh the method's own loss too, as the authors' ER does"
    )

    @classmethod
    @override
    def preset(cls, method: str, profile: str, /) -> Mapping[str, Any]:
        authors = {"equal_view": "hardest", "scale_base": method == "er"}
        return {**super().preset(method, profile), **(authors if profile == "authors" else {})}

    @override
    def edges(self) -> tuple[Edge, ...]:
        return same_view(0)

    @override
    def distillation(self, **fixed: Any) -> Distillation:
        weight = self.label_weight if self.scale_base else 1.0
        return super().distillation(base_weight=weight, **fixed)


class CCLDC(CCL):
    """Two peers, the teacher has the harder view (CCL-DC).

    Collaborative continual learning with a distillation chain: Wang et al., CVPR 2024,
    https://arxiv.org/abs/2312.00600

    Args:
        direction: along the chain, from the teacher's view to the student's.

    >>> [(edge.student, edge.teacher) for edge in CCLDC().edges()]
    [(0, 0), (0, 1), (1, 2), (2, 3)]
    """

    name = "ccldc"
    chain: ViewChain = ViewChain()
    direction: Annotated[Direction, ALONG] = "hard-to-easy"

    @override
    def edges(self) -> tuple[Edge, ...]:
        common = self.chain.stages if self.equal_view == "hardest" else 0
        return same_view(common) + chain_edges(self.direction, self.chain.stages)  # Eq. 9, Eq. 10


class CCLDCEasyToHard(CCLDC):
    """Two peers, the teacher has the easier view: CCL-DC, easy-to-hard.

    An ablation of https://arxiv.org/abs/2312.00600, Table 7.

    >>> CCLDCEasyToHard().edges() == CCLDC(direction="easy-to-hard").edges()
    True
    """

    name = "ccldc-easy-to-hard"
    direction: Annotated[Direction, ALONG] = "easy-to-hard"


class CCLDCSameDifficulty(CCLDC):
    """Two peers, both have the same view: CCL-DC, same-difficulty.

    An ablation of https://arxiv.org/abs/2312.00600, Table 7.

    >>> CCLDCSameDifficulty().edges() == CCLDC(direction="same-difficulty").edges()
    True
    """

    name = "ccldc-same-difficulty"
    direction: Annotated[Direction, ALONG] = "same-difficulty"


class SDC(Wrapper):
    """One network that teaches itself, from its harder view.

    The chain of CCL-DC without a peer, https://arxiv.org/abs/2312.00600, Table 8.

    Args:
        direction: along the chain, from the teacher's view to the student's.

    >>> SDC().edges()[0]
    Edge(student=0, teacher=1, by='self', weight=1.0)
    """

    name = "sdc"
    peers: PeerCount = 1
    chain: ViewChain = ViewChain()
    direction: Annotated[Literal["hard-to-easy", "easy-to-hard"], ALONG] = "hard-to-easy"

    @override
    def edges(self) -> tuple[Edge, ...]:
        return chain_edges(self.direction, self.chain.stages, by="self")


class SDCEasyToHard(SDC):
    """One network that teaches itself, from its easier view: SDC, easy-to-hard.

    An ablation of https://arxiv.org/abs/2312.00600, Table 8.

    >>> SDCEasyToHard().edges() == SDC(direction="easy-to-hard").edges()
    True
    """

    name = "sdc-easy-to-hard"
    direction: Annotated[Literal["hard-to-easy", "easy-to-hard"], ALONG] = "easy-to-hard"


class Multiview(WrapperBase):
    """One network, labels on every view, no distillation.

    An ablation of https://arxiv.org/abs/2312.00600, Table 6.

    >>> Multiview().distillation().labelled_views
    (0, 1, 2, 3)
    """

    name = "multiview"
    peers: PeerCount = 1
    chain: ViewChain = ViewChain()


class Untrained(Wrapper):
    """One network and a teacher that never learns.

    An ablation of https://arxiv.org/abs/2312.00600, Table 2.

    >>> Untrained().edges()[0].by
    'frozen'
    """

    name = "untrained"
    peers: PeerCount = 1
    label_weight: LabelWeight = 0.0

    @classmethod
    @override
    def preset(cls, method: str, profile: str, /) -> Mapping[str, Any]:
        return {}  # its weight and temperature are not published

    @override
    def edges(self) -> tuple[Edge, ...]:
        return same_view(METHOD_BATCH, by="frozen")
