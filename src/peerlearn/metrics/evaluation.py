"""Accuracy on a test set."""

from collections.abc import Callable

from torch import Tensor

from peerlearn.data.images import ImageSet
from peerlearn.errors import UserError


def accuracy(predict: Callable[[Tensor], Tensor], images: ImageSet, batch_size: int = 500) -> float:
    """The share of `images`, in [0, 1], whose label `predict` finds.

    predict: images (B, 3, H, W) uint8 -> labels (B,).

    >>> from peerlearn import toy_images
    >>> accuracy(lambda x: x.new_zeros(len(x)), toy_images(num_classes=4).test)
    0.25
    """
    if not len(images):
        raise UserError("accuracy of an empty image set is undefined; give at least one image")
    if batch_size < 1:
        raise UserError(f"accuracy: batch_size must be at least 1, not {batch_size}")
    correct = 0
    for x, y in zip(images.x.split(batch_size), images.y.split(batch_size), strict=True):
        labels = predict(x)
        if labels.shape != y.shape:
            raise UserError(
                f"predict must return labels {tuple(y.shape)}, not {tuple(labels.shape)}; "
                "take the argmax of logits"
            )
        correct += int((labels.to(y.device) == y).sum())
    return correct / len(images)
