"""The learner, how its peers collaborate, and the published combinations."""

from peerlearn.learner.collaboration import OWN, Collaboration, Edge, discuss
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.presets import COLLABORATIONS, build_learner, collaboration

__all__ = [
    "COLLABORATIONS",
    "OWN",
    "Collaboration",
    "Edge",
    "OnlineLearner",
    "build_learner",
    "collaboration",
    "discuss",
]
