"""Peerlearn: online continual learning by peers that teach each other."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peerlearn.augment import ViewChain as ViewChain
    from peerlearn.blurry import BatchStream as BatchStream
    from peerlearn.blurry import BlurryStream as BlurryStream
    from peerlearn.data import ImageSet as ImageSet
    from peerlearn.data import toy_images as toy_images
    from peerlearn.errors import UserError as UserError
    from peerlearn.learner import Collaboration as Collaboration
    from peerlearn.learner import Edge as Edge
    from peerlearn.learner import OnlineLearner as OnlineLearner
    from peerlearn.learner import build_learner as build_learner
    from peerlearn.methods import METHODS as METHODS
    from peerlearn.metrics import AccuracyMatrix as AccuracyMatrix
    from peerlearn.metrics import accuracy as accuracy
    from peerlearn.nets import ResNet18 as ResNet18
    from peerlearn.nets import WithHead as WithHead
    from peerlearn.nets import small_net as small_net
    from peerlearn.peer import Optim as Optim
    from peerlearn.stream import Batch as Batch
    from peerlearn.stream import ClassStream as ClassStream
    from peerlearn.stream import StreamInfo as StreamInfo

__version__ = "0.1.0"

# Looked up at first use: the command shows its help, a table or a page without importing torch.
_HOMES = {
    "METHODS": "methods",
    "AccuracyMatrix": "metrics",
    "Batch": "stream",
    "BatchStream": "blurry",
    "BlurryStream": "blurry",
    "ClassStream": "stream",
    "Collaboration": "learner",
    "Edge": "learner",
    "ImageSet": "data",
    "OnlineLearner": "learner",
    "Optim": "peer",
    "ResNet18": "nets",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'peerlearn' has no attribute {name!r}")
    return getattr(import_module(f"peerlearn.{_HOMES[name]}"), name)
