"""Nearest class means: an image is of the class whose mean feature is nearest."""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

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
