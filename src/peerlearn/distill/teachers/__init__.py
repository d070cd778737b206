"""The teachers by name; `peerlearn.distill.TEACHERS` finds them."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.distill.teachers.ema import EMATeacher as EMATeacher
    from peerlearn.distill.teachers.ema import MeanPeerEMA as MeanPeerEMA
    from peerlearn.distill.teachers.ema import PeerEMA as PeerEMA
    from peerlearn.distill.teachers.present import OtherPeers as OtherPeers
    from peerlearn.distill.teachers.present import SelfTeacher as SelfTeacher
    from peerlearn.distill.teachers.present import UntrainedTeacher as UntrainedTeacher

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            **dict.fromkeys(("OtherPeers", "SelfTeacher", "UntrainedTeacher"), "present"),
            **dict.fromkeys(("EMATeacher", "MeanPeerEMA", "PeerEMA"), "ema"),
        },
    )
