"""The wrappers by name; `peerlearn.learner.WRAPPERS` finds them."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.learner.wrappers.ccldc import CCL as CCL
    from peerlearn.learner.wrappers.ccldc import CCLDC as CCLDC
    from peerlearn.learner.wrappers.ccldc import SDC as SDC
    from peerlearn.learner.wrappers.ccldc import CCLDCEasyToHard as CCLDCEasyToHard
    from peerlearn.learner.wrappers.ccldc import CCLDCSameDifficulty as CCLDCSameDifficulty
    from peerlearn.learner.wrappers.ccldc import Multiview as Multiview
    from peerlearn.learner.wrappers.ccldc import SDCEasyToHard as SDCEasyToHard
    from peerlearn.learner.wrappers.ccldc import Untrained as Untrained
    from peerlearn.learner.wrappers.slow import CCLDCEMA as CCLDCEMA
    from peerlearn.learner.wrappers.slow import EMA as EMA
    from peerlearn.learner.wrappers.slow import GWM as GWM
    from peerlearn.learner.wrappers.slow import MKD as MKD
    from peerlearn.learner.wrappers.slow import EMAChain as EMAChain
    from peerlearn.learner.wrappers.slow import MKDPair as MKDPair

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
            **dict.fromkeys(
                ("CCLDCEMA", "EMA", "EMAChain", "GWM", "MKD", "MKDPair"),
                "slow",
            ),
        },
    )
