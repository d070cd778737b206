"""Labelled image sets: by name, from folders, from arrays, or made on the spot."""

from peerlearn.data.checking import check
from peerlearn.data.cifar import cifar10, cifar100
from peerlearn.data.download import get
from peerlearn.data.embedded import mini
from peerlearn.data.folders import image_folder, imagenet100, tiny_imagenet
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.inmemory import arrays, huggingface
from peerlearn.data.sources import SOURCES, find, load
from peerlearn.data.toy import toy_images

__all__ = [
    "SOURCES",
    "Dataset",
    "ImageSet",
    "arrays",
    "check",
    "cifar10",
    "cifar100",
    "find",
    "get",
    "huggingface",
    "image_folder",
    "imagenet100",
    "load",
    "mini",
    "tiny_imagenet",
    "toy_images",
]
