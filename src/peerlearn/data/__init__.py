"""Labelled image sets: from official files, or made on the spot."""

from peerlearn.data.cifar import cifar10, cifar100
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.toy import toy_images

__all__ = ["Dataset", "ImageSet", "cifar10", "cifar100", "toy_images"]
