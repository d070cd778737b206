"""Batches of what comes one by one."""

from collections.abc import Iterable, Iterator
from typing import Any

from peerlearn.errors import UserError

Batch = tuple[list[Any], list[Any]]  # images and their labels


def batched(pairs: Iterable[tuple[Any, Any]], size: int) -> Iterator[Batch]:
    """Pairs of an image and its label as batches; the last one may be smaller.

    >>> list(batched(zip("abc", [0, 1, 0]), size=2))
    [(['a', 'b'], [0, 1]), (['c'], [0])]
    """
    images: list[Any] = []
    labels: list[Any] = []
    for image, label in pairs:
        images.append(image)
        labels.append(label)
        if len(images) == size:
            yield images, labels
            images, labels = [], []
    if images:
        yield images, labels


def batch_size(batch: Any) -> int:
    """The number of images in a batch, refused if it is none.

    >>> batch_size(0)
    Traceback (most recent call last):
    peerlearn.errors.UserError: batch: must be a whole number of images from 1 on, got 0
    """
    if not hasattr(batch, "__index__") or isinstance(batch, bool) or batch < 1:
        raise UserError(f"batch: must be a whole number of images from 1 on, got {batch!r:.40}")
    return int(batch)
