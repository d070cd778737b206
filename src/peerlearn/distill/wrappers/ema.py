"""Wrappers with EMA copies of the peers: weight averaging, MKD, and both beside peers."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

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
from peerlearn.distill.edges import Edge, hard_to_easy, same_view
from peerlearn.distill.teachers.ema import BroadcastSettings, EMASettings
from peerlearn.methods import METHODS
from peerlearn.settings import setting


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
