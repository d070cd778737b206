"""Peerlearn: online continual learning by peers that teach each other."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy

if TYPE_CHECKING:
    from peerlearn.augment import ViewChain as ViewChain
    from peerlearn.data import ImageSet as ImageSet
    from peerlearn.data import toy_images as toy_images
    from peerlearn.distill import Distillation as Distillation
    from peerlearn.distill import Edge as Edge
    from peerlearn.errors import UserError as UserError
    from peerlearn.learner import OnlineLearner as OnlineLearner
    from peerlearn.learner import build_learner as build_learner
    from peerlearn.live import OpenLearner as OpenLearner
    from peerlearn.methods import METHODS as METHODS
    from peerlearn.metrics import AccuracyMatrix as AccuracyMatrix
    from peerlearn.metrics import accuracy as accuracy
    from peerlearn.nets import ResNet18 as ResNet18
    from peerlearn.nets import WithHead as WithHead
    from peerlearn.nets import small_net as small_net
    from peerlearn.optim import SGD as SGD
    from peerlearn.optim import Adam as Adam
    from peerlearn.optim import AdamW as AdamW
    from peerlearn.stream import Batch as Batch
    from peerlearn.stream import BatchStream as BatchStream
    from peerlearn.stream import BlurryStream as BlurryStream
    from peerlearn.stream import ClassStream as ClassStream
    from peerlearn.stream import StreamInfo as StreamInfo

__version__ = "0.1.0"

# Looked up at first use: the command shows its help, a table or a page without importing torch.
_HOMES = {
    "METHODS": "methods",
    "AccuracyMatrix": "metrics",
    "Adam": "optim",
    "AdamW": "optim",
    "Batch": "stream",
    "BatchStream": "stream",
    "BlurryStream": "stream",
    "ClassStream": "stream",
    "Distillation": "distill",
    "Edge": "distill",
    "ImageSet": "data",
    "OnlineLearner": "learner",
    "OpenLearner": "live",
    "ResNet18": "nets",
    "SGD": "optim",
    "StreamInfo": "stream",
    "UserError": "errors",
    "ViewChain": "augment",
    "WithHead": "nets",
    "accuracy": "metrics",
    "build_learner": "learner",
    "small_net": "nets",
    "toy_images": "data",
}
__all__ = list(_HOMES)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(__name__, _HOMES)
