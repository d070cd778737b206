"""The wrappers by name; `peerlearn.distill.WRAPPERS` finds them."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.distill.wrappers.ccldc import CCL as CCL
    from peerlearn.distill.wrappers.ccldc import CCLDC as CCLDC
    from peerlearn.distill.wrappers.ccldc import SDC as SDC
    from peerlearn.distill.wrappers.ccldc import CCLDCEasyToHard as CCLDCEasyToHard
    from peerlearn.distill.wrappers.ccldc import CCLDCSameDifficulty as CCLDCSameDifficulty
    from peerlearn.distill.wrappers.ccldc import Multiview as Multiview
    from peerlearn.distill.wrappers.ccldc import SDCEasyToHard as SDCEasyToHard
    from peerlearn.distill.wrappers.ccldc import Untrained as Untrained
    from peerlearn.distill.wrappers.ema import CCLDCEMA as CCLDCEMA
    from peerlearn.distill.wrappers.ema import EMA as EMA
    from peerlearn.distill.wrappers.ema import GWM as GWM
    from peerlearn.distill.wrappers.ema import MKD as MKD
    from peerlearn.distill.wrappers.ema import EMAChain as EMAChain
    from peerlearn.distill.wrappers.ema import MKDPair as MKDPair

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            **dict.fromkeys(
                (
                    "CCL",
                    "CCLDC",
                    "CCLDCEasyToHard",
                    "CCLDCSameDifficulty",
                    "Multiview",
                    "SDC",
                    "SDCEasyToHard",
                    "Untrained",
                ),
                "ccldc",
            ),
            **dict.fromkeys(("CCLDCEMA", "EMA", "EMAChain", "GWM", "MKD", "MKDPair"), "ema"),
        },
    )
