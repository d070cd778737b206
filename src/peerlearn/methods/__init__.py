"""The replay methods by name."""

from typing import TYPE_CHECKING, Any

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.methods.derpp import DERPP as DERPP
    from peerlearn.methods.er import ER as ER
    from peerlearn.methods.er_ace import ERACE as ERACE
    from peerlearn.methods.gsa import GSA as GSA
    from peerlearn.methods.interface import ForwardOutput as ForwardOutput
    from peerlearn.methods.interface import LabelledImages as LabelledImages
    from peerlearn.methods.interface import Method as Method
    from peerlearn.methods.interface import MethodSettings as MethodSettings
    from peerlearn.methods.interface import Progress as Progress
    from peerlearn.methods.interface import StepOutput as StepOutput
    from peerlearn.methods.mir import MIR as MIR
    from peerlearn.methods.ocm import OCM as OCM
    from peerlearn.methods.onpro import OnPro as OnPro
    from peerlearn.methods.pcr import PCR as PCR
    from peerlearn.methods.rar import RAR as RAR
    from peerlearn.methods.references import Finetune as Finetune
    from peerlearn.methods.references import Joint as Joint
    from peerlearn.methods.replay import Replay as Replay
    from peerlearn.methods.replay import ReplayMethod as ReplayMethod
    from peerlearn.methods.replay import classification_loss as classification_loss
    from peerlearn.methods.replay import joined as joined
    from peerlearn.methods.replay import replayed as replayed

METHODS: "Registry[type[Method[Any]]]" = Registry(
    "method", __name__, "peerlearn.methods.interface:Method"
)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            "ForwardOutput": "interface",
            "DERPP": "derpp",
            "ER": "er",
            "Finetune": "references",
            "ERACE": "er_ace",
            "GSA": "gsa",
            "Joint": "references",
            "LabelledImages": "interface",
            "Method": "interface",
            "MethodSettings": "interface",
            "MIR": "mir",
            "OCM": "ocm",
            "OnPro": "onpro",
            "StepOutput": "interface",
            "PCR": "pcr",
            "Progress": "interface",
            "RAR": "rar",
            "Replay": "replay",
            "ReplayMethod": "replay",
            "classification_loss": "replay",
            "joined": "replay",
            "replayed": "replay",
        },
    )
