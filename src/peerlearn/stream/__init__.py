"""Streams: class-incremental and blurry data sets, and batches of your own."""

from peerlearn.stream.base import Batch, Stream, StreamInfo, Task
from peerlearn.stream.batches import BatchStream, BatchTask, UnknownLengthError
from peerlearn.stream.dataset import BlurryStream, ClassStream, ImageTask, class_order
from peerlearn.stream.iblurry import IBlurryStream, SiBlurryStream
from peerlearn.stream.schedules import GaussianStream, HalfNormalStream

__all__ = [
    "Batch",
    "BatchStream",
    "BatchTask",
    "BlurryStream",
    "ClassStream",
    "GaussianStream",
    "HalfNormalStream",
    "IBlurryStream",
    "ImageTask",
    "SiBlurryStream",
    "Stream",
    "StreamInfo",
    "Task",
    "UnknownLengthError",
    "class_order",
]
