"""Labelled image sets: by name, from folders, from arrays, or made on the spot."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.data.checking import check as check
    from peerlearn.data.cifar import cifar10 as cifar10
    from peerlearn.data.cifar import cifar100 as cifar100
    from peerlearn.data.download import get as get
    from peerlearn.data.embedded import mini as mini
    from peerlearn.data.folders import image_folder as image_folder
    from peerlearn.data.folders import imagenet100 as imagenet100
    from peerlearn.data.folders import tiny_imagenet as tiny_imagenet
    from peerlearn.data.images import Dataset as Dataset
    from peerlearn.data.images import ImageSet as ImageSet
    from peerlearn.data.inmemory import arrays as arrays
    from peerlearn.data.inmemory import huggingface as huggingface
    from peerlearn.data.sources import Archive as Archive
    from peerlearn.data.sources import Protocol as Protocol
    from peerlearn.data.sources import Source as Source
    from peerlearn.data.sources import find as find
    from peerlearn.data.sources import load as load
    from peerlearn.data.toy import toy_images as toy_images

DATASETS: "Registry[type[Source]]" = Registry(
    "dataset", "peerlearn.data.sources", "peerlearn.data.sources:Source"
)

# Looked up at first use: data sets are listed and found without importing torch.
_HOMES = {
    "Archive": "sources",
    "Dataset": "images",
    "ImageSet": "images",
    "Protocol": "sources",
    "Source": "sources",
    "arrays": "inmemory",
    "check": "checking",
    "cifar10": "cifar",
    "cifar100": "cifar",
    "find": "sources",
    "get": "download",
    "huggingface": "inmemory",
    "image_folder": "folders",
    "imagenet100": "folders",
    "load": "sources",
    "mini": "embedded",
    "tiny_imagenet": "folders",
    "toy_images": "toy",
}
__all__ = ["DATASETS", *_HOMES]

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(__name__, _HOMES)
