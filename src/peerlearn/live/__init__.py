"""A stream of one's own: any images, any labels, classes that nobody announced."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.live.labels import Label as Label
    from peerlearn.live.labels import LabelMap as LabelMap
    from peerlearn.live.learner import OpenLearner as OpenLearner
    from peerlearn.live.signals import Details as Details
    from peerlearn.live.signals import disagreement as disagreement

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            "Details": "signals",
            "Label": "labels",
            "LabelMap": "labels",
            "OpenLearner": "learner",
            "disagreement": "signals",
        },
    )
