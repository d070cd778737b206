"""The learner, how its peers collaborate, and the published combinations."""

from peerlearn.learner.collaboration import OWN, Collaboration, Edge, discuss
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.presets import PRESETS, build_learner, collaboration

__all__ = [
    "OWN",
    "PRESETS",
    "Collaboration",
    "Edge",
    "OnlineLearner",
    "build_learner",
    "collaboration",
    "discuss",
]
