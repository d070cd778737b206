"""How an augmentation gets its name, and how a setting holds the name of one."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args

import torch
from pydantic import AfterValidator
from pydantic.fields import FieldInfo
from torch import Tensor

from peerlearn.augment import AUGMENTATIONS
from peerlearn.settings import Choices

Augment = Callable[[Tensor, torch.Generator], Tensor]
F = TypeVar("F", bound=Callable[..., Tensor])


def augmentation(function: F) -> F:
    """Mark a function as an augmentation that is known by the function's name.

    It takes images, (B, 3, H, W) in [0, 1], and the generator that it draws from, and returns new
    images of the same shape. Its keyword-only arguments are its settings; each has a default.

    >>> @augmentation
    ... def darker(x, rng, *, least: float = 0.5):
    ...     return x * (least + (1 - least) * torch.rand(len(x), 1, 1, 1, generator=rng))
    >>> darker.name, darker.kind
    ('darker', 'augmentation')
    """
    marked: Any = function
    marked.name, marked.kind = marked.__name__, AUGMENTATIONS.kind
    return function


# the type of a setting that holds the name of an augmentation
Augmentation = Annotated[str, AfterValidator(AUGMENTATIONS.known), Choices(AUGMENTATIONS)]


def names_augmentation(field: FieldInfo | None) -> bool:
    """Whether a field holds the name of an augmentation."""
    if field is None:
        return False
    kinds = (field.annotation, *get_args(field.annotation))  # of `Augmentation | None` the parts
    notes = [*field.metadata, *(n for kind in kinds for n in getattr(kind, "__metadata__", ()))]
    return any(isinstance(one, Choices) and one.names is AUGMENTATIONS for one in notes)
