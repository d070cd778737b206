"""The teachers by name; `peerlearn.learner.TEACHERS` finds them."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.learner.teachers.present import Frozen as Frozen
    from peerlearn.learner.teachers.present import Itself as Itself
    from peerlearn.learner.teachers.present import OtherPeers as OtherPeers
    from peerlearn.learner.teachers.slow import Shadow as Shadow
    from peerlearn.learner.teachers.slow import ShadowOfAll as ShadowOfAll
    from peerlearn.learner.teachers.slow import ShadowOfPeers as ShadowOfPeers

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            **dict.fromkeys(("Frozen", "Itself", "OtherPeers"), "present"),
            **dict.fromkeys(("Shadow", "ShadowOfAll", "ShadowOfPeers"), "slow"),
        },
    )
