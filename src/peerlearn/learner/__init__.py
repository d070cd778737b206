"""The learner, its predictors, and how it is built."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.learner.build import build_learner as build_learner
    from peerlearn.learner.online import OnlineLearner as OnlineLearner
    from peerlearn.learner.predictor import Predictor as Predictor

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {"OnlineLearner": "online", "Predictor": "predictor", "build_learner": "build"},
    )
