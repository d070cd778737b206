"""Augmentations of image batches, by name: draw the parameters, then apply them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.augment.naming import Augment as Augment
    from peerlearn.augment.naming import Augmentation as Augmentation
    from peerlearn.augment.naming import augmentation as augmentation
    from peerlearn.augment.rotation import rot16 as rot16
    from peerlearn.augment.rotation import rot16_labels as rot16_labels
    from peerlearn.augment.strategies import ViewChain as ViewChain
    from peerlearn.augment.strategies import crop_flip as crop_flip
    from peerlearn.augment.strategies import crop_flip_shared as crop_flip_shared
    from peerlearn.augment.strategies import crop_grey_mirrored as crop_grey_mirrored
    from peerlearn.augment.strategies import flip_grey_crop as flip_grey_crop
    from peerlearn.augment.strategies import full as full
    from peerlearn.augment.strategies import full_aligned as full_aligned
    from peerlearn.augment.strategies import none as none

AUGMENTATIONS: Registry[Callable[..., Any]] = Registry(
    "augmentation", "peerlearn.augment.strategies", None
)

# the function `randaugment` is left out: here the name is that of the module of its operations
_HOMES = {
    "Augment": "naming",
    "Augmentation": "naming",
    "ViewChain": "strategies",
    "augmentation": "naming",
    "crop_flip": "strategies",
    "crop_flip_shared": "strategies",
    "crop_grey_mirrored": "strategies",
    "flip_grey_crop": "strategies",
    "full": "strategies",
    "full_aligned": "strategies",
    "none": "strategies",
    "rot16": "rotation",
    "rot16_labels": "rotation",
}
__all__ = ["AUGMENTATIONS", *_HOMES]

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(__name__, _HOMES)
