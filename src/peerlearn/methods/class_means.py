"""Nearest class means: an image is of the class whose mean feature is nearest."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.devices import moved
from peerlearn.losses import class_means

PART = 10_000  # images whose features are held at a time
Distance = Literal["euclidean", "cosine"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)


class ClassMeans(NamedTuple):
    """The mean features of the classes that the memory holds.

    Args:
        classes: (K,), ascending.
        means: (K, D).
        distance: "euclidean", or "cosine": features and means are normalised to length 1.

    >>> means = ClassMeans(torch.tensor([2, 5]), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    >>> means.nearest(torch.tensor([[0.9, 0.8], [0.1, 0.0]]))
    tensor([5, 2])
    >>> means.logits(torch.tensor([[1.0, 0.0]]), num_classes=6)
    tensor([[-inf, -inf, -1., -inf, -inf, -1.]])
    """

    classes: Tensor
    means: Tensor
    distance: Distance = "euclidean"

    @classmethod
    def of_images(
        cls,
        x: Tensor,
        y: Tensor,
        features_of: Callable[[Tensor], Tensor],
        num_classes: int,
        distance: Distance,
    ) -> "ClassMeans":
        """Return the means of images x, (N, ...), with labels y, (N,) on the CPU.

        features_of: (B, ...) -> (B, D); the mean over all parts follows that of each part, so that
        no more than a part is held. Counting labels on the CPU waits for no device.
        """
        means, total = torch.zeros(()), y.new_zeros(num_classes)
        for part, labels in zip(x.split(PART), y.split(PART), strict=True):
            features = comparable(features_of(part), distance)
            found = class_means(features, moved(labels, features.device), num_classes)
            count = labels.bincount(minlength=num_classes)
            total += count
            share = moved(count / total.clamp(min=1), features.device)
            means = moved(means, features.device)
            means = means + (found - means) * share[:, None]
        held: Tensor = moved(y.unique(), means.device)
        return cls(held, comparable(means[held], distance), distance)

    def nearest(self, features: Tensor) -> Tensor:
        """Return the class of the nearest mean, (B,). features: (B, D)."""
        return self.classes[self._distances(features).argmin(dim=1)]

    def logits(self, features: Tensor, num_classes: int) -> Tensor:
        """Return minus the squared distance to each class mean, (B, C); -inf without a mean."""
        squared = self._distances(features).square()
        found = squared.new_full((len(squared), num_classes), -math.inf)
        return found.index_copy_(1, self.classes, -squared)

    def _distances(self, features: Tensor) -> Tensor:
        distances: Tensor = torch.cdist(comparable(features, self.distance), self.means)
        return distances


def comparable(features: Tensor, distance: Distance) -> Tensor:
    """Return features (N, D) as a distance compares them: for cosine, normalised to length 1."""
    return F.normalize(features, dim=1) if distance == "cosine" else features
