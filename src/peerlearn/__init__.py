"""Peerlearn: online continual learning by peers that teach each other."""

from peerlearn.augment import ViewChain
from peerlearn.data import ImageSet, toy_images
from peerlearn.errors import UserError
from peerlearn.learner import Collaboration, Edge, OnlineLearner, build_learner
from peerlearn.methods import METHODS
from peerlearn.metrics import AccuracyMatrix, accuracy
from peerlearn.nets import ResNet18, WithHead, small_net
from peerlearn.peer import Optim
from peerlearn.stream import Batch, ClassStream, StreamInfo

__all__ = [
    "METHODS",
    "AccuracyMatrix",
    "Batch",
    "ClassStream",
    "Collaboration",
    "Edge",
    "ImageSet",
    "OnlineLearner",
    "Optim",
    "ResNet18",
    "StreamInfo",
    "UserError",
    "ViewChain",
    "WithHead",
    "accuracy",
    "build_learner",
    "small_net",
    "toy_images",
]
