"""The replay methods by name."""

from typing import TYPE_CHECKING, Any

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.losses import LabelledImages as LabelledImages
    from peerlearn.losses import Mix as Mix
    from peerlearn.losses import classification_loss as classification_loss
    from peerlearn.losses import joined as joined
    from peerlearn.methods.derpp import DERPP as DERPP
    from peerlearn.methods.er import ER as ER
    from peerlearn.methods.er import Replay as Replay
    from peerlearn.methods.er import ReplayMethod as ReplayMethod
    from peerlearn.methods.er_ace import ERACE as ERACE
    from peerlearn.methods.gsa import GSA as GSA
    from peerlearn.methods.interface import ForwardOutput as ForwardOutput
    from peerlearn.methods.interface import Method as Method
    from peerlearn.methods.interface import MethodSettings as MethodSettings
    from peerlearn.methods.interface import Progress as Progress
    from peerlearn.methods.interface import StepOutput as StepOutput
    from peerlearn.methods.interface import replayed as replayed
    from peerlearn.methods.mir import MIR as MIR
    from peerlearn.methods.ocm import OCM as OCM
    from peerlearn.methods.onpro import OnPro as OnPro
    from peerlearn.methods.pcr import PCR as PCR
    from peerlearn.methods.rar import RAR as RAR
    from peerlearn.methods.references import Finetune as Finetune
    from peerlearn.methods.references import Joint as Joint

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
            "Mix": "interface",
            "OCM": "ocm",
            "OnPro": "onpro",
            "StepOutput": "interface",
            "PCR": "pcr",
            "Progress": "interface",
            "RAR": "rar",
            "Replay": "er",
            "ReplayMethod": "er",
            "classification_loss": "interface",
            "joined": "interface",
            "replayed": "interface",
        },
    )
