"""Wrappers, by the name after the plus (`er+ccldc`): CCL-DC, its ablations, and EMA teachers."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from typing_extensions import override

from peerlearn.augment import Augmentation, ViewChain
from peerlearn.distill.distillation import (
    BaseWeight,
    Distillation,
    DistillWeight,
    LabelWeight,
    PeerCount,
    Wrapper,
    WrapperBase,
)
from peerlearn.distill.edges import (
    METHOD_BATCH,
    Direction,
    Edge,
    chain_edges,
    hard_to_easy,
    same_view,
)
from peerlearn.distill.teachers.ema import BroadcastSettings, EMASettings
from peerlearn.methods import METHODS
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


# ---- with EMA copies of the peers: weight averaging, MKD, and both beside peers


class EMA(WrapperBase):
    """The method as it is; an EMA copy of its network predicts.

    Temporal ensembles: Soutif-Cormerais et al., CoLLAs 2023, https://arxiv.org/abs/2306.16817

    >>> EMA().distillation().predict_with
    'ema'
    """

    name = "ema"
    predict_with = "ema"
    peers: PeerCount = 1
    label_weight: LabelWeight = 0.0
    shadow: EMASettings = EMASettings()

    @classmethod
    @override
    def preset(cls, method: str, profile: str, /) -> Mapping[str, Any]:
        return {}


class MKD(Wrapper):
    """One network taught by its EMA copy, on an augmented view (MKD).

    Momentum knowledge distillation: Michel et al., ICML 2024, https://arxiv.org/abs/2309.02870

    Args:
        view: by name, the augmentation of the view with labels.
        form: which side of the second edge sees the image: the student, as in their code, or the
            teacher, as in their formula.

    >>> MKD().edges()[0]
    Edge(student=0, teacher=1, by='shadow', weight=0.5)
    """

    name = "mkd"
    predict_with = "average"
    taught_by: ClassVar[str] = "shadow"
    peers: PeerCount = 1
    label_weight: LabelWeight = 1.0
    distill_weight: DistillWeight = 5.5
    base_weight: BaseWeight = 1.0
    view: Augmentation = setting(
        "full", "augmentation of the view with labels, with its default settings"
    )
    form: Literal["code", "paper"] = setting(
        "code", "side with the image itself in the second term: student (code), teacher (paper)"
    )
    shadow: EMASettings = EMASettings()

    @classmethod
    @override
    def preset(cls, method: str, profile: str, /) -> Mapping[str, Any]:
        own = method in METHODS and METHODS[method].is_plain_cross_entropy
        authors = {"shadow": {"start": "zero", "buffers": "own"}} if profile == "authors" else {}
        return {**({"base_weight": 0.0} if own else {}), **authors}

    @classmethod
    @override
    def optim(cls, method: str, profile: str) -> Mapping[str, Any]:
        if profile != "authors" or method == "ocm":
            return {}
        return {"weight_decay": 0.0, **({"lr": 1e-4} if method == "derpp" else {})}

    @override
    def edges(self) -> tuple[Edge, ...]:
        student, teacher = (0, 1) if self.form == "code" else (1, 0)
        by = self.taught_by
        return (Edge(student, teacher, by, weight=0.5), Edge(1, 1, by, weight=0.5))

    @override
    def teachers(self) -> dict[str, dict[str, Any]]:
        return {self.taught_by: self.shadow.model_dump()}

    @override
    def distillation(self, **fixed: Any) -> Distillation:
        chain = ViewChain(stages=1, first=self.view)
        return super().distillation(chain=chain, label_views=(1,), merge_groups=True, **fixed)


class MKDPair(MKD):
    """Two networks, each taught by the other's EMA copy.

    Our combination of MKD, https://arxiv.org/abs/2309.02870, and of the peers of CCL-DC,
    https://arxiv.org/abs/2312.00600; arguments as for MKD.

    >>> MKDPair().distillation().peers
    2
    """

    name = "mkd-pair"
    taught_by = "shadow_peer"
    peers: PeerCount = 2


class EMAChain(Wrapper):
    """One network taught by its EMA copy along the chain of CCL-DC.

    Our combination of MKD's teacher, https://arxiv.org/abs/2309.02870, and of the chain of CCL-DC,
    https://arxiv.org/abs/2312.00600.

    >>> EMAChain().edges()[-1]
    Edge(student=1, teacher=2, by='shadow', weight=1.0)
    """

    name = "ema-chain"
    predict_with = "average"
    peers: PeerCount = 1
    base_weight: BaseWeight = 1.0
    chain: ViewChain = ViewChain(stages=2)
    shadow: EMASettings = EMASettings(alpha=0.1)  # as it was measured

    @override
    def edges(self) -> tuple[Edge, ...]:
        return hard_to_easy(self.chain.stages, by="shadow")


class CCLDCEMA(Wrapper):
    """CCL-DC with a shorter chain, and one more edge from each peer's own EMA copy.

    Our combination of https://arxiv.org/abs/2312.00600 and https://arxiv.org/abs/2309.02870 (MKD).

    Args:
        shadow_weight: of the edge from the EMA copy, next to those from the peer.

    >>> CCLDCEMA().edges()[-1]
    Edge(student=0, teacher=1, by='shadow', weight=0.5)
    """

    name = "ccldc-ema"
    predict_with = "average"
    chain: ViewChain = ViewChain(stages=2)
    shadow_weight: float = setting(0.5, "weight of the EMA copy's edge among the others", ge=0)
    shadow: EMASettings = EMASettings()

    @override
    def edges(self) -> tuple[Edge, ...]:
        stages = self.chain.stages
        own = Edge(0, min(1, stages), by="shadow", weight=self.shadow_weight)
        return (*same_view(0), *hard_to_easy(stages), own)


class GWM(Wrapper):
    """Two peers and an EMA copy of their mean, which teaches them and is handed back to them.

    After the abstract of GWM-MCD, https://arxiv.org/abs/2508.08677, whose formulas we have not
    seen: this is our reading. Peers begin alike and train on draws of their own.

    >>> GWM().edges()[-1]
    Edge(student=0, teacher=0, by='shadow_all', weight=1.0)
    """

    name = "gwm"
    shadow: BroadcastSettings = BroadcastSettings()

    @override
    def edges(self) -> tuple[Edge, ...]:
        return same_view(0) + same_view(0, by="shadow_all")

    @override
    def teachers(self) -> dict[str, dict[str, Any]]:
        return {"shadow_all": self.shadow.model_dump()}

    @override
    def distillation(self, **fixed: Any) -> Distillation:
        return super().distillation(separate_draws=True, **fixed)
