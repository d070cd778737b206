"""What a network must offer, a way to give any encoder that, and a small one for tests."""

from collections.abc import Callable
from typing import Annotated, Protocol, cast, runtime_checkable

from torch import Tensor, nn

from peerlearn.settings import about


@runtime_checkable
class Network(Protocol):
    """A module that shows its features. Anything with these three will do.

    A class that writes its forward as `self.classify(self.features(x))`, and `classify` beside it,
    (B, feature_dim) -> (B, C), has features computed once where logits are asked for as well.
    """

    feature_dim: int

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, feature_dim)."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C) logits."""
        ...


def classifier_of(net: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """What makes a network's logits of its features; None if only its forward does.

    That is its method `classify` if the class that has its forward has one too: a forward that was
    overridden alone, or has hooks, may do something else.

    >>> classifier_of(nn.Linear(2, 2)) is None
    True
    """
    if "forward" in vars(net) or net._forward_hooks or net._forward_pre_hooks:
        return None
    owner = next(kind for kind in type(net).__mro__ if vars(kind).keys() & {"forward", "__call__"})
    return cast(Callable[[Tensor], Tensor], net.classify) if "classify" in vars(owner) else None


class WithHead(nn.Module):
    """Any encoder of your own with a linear classifier on top.

    Args:
        encoder: (B, 3, H, W) in [0, 1] -> (B, D).
        feature_dim: D.
        num_classes: outputs of the classifier.

    >>> import torch
    >>> encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> WithHead(encoder, feature_dim=8, num_classes=5)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 5])
    """

    def __init__(self, encoder: nn.Module, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.feature_dim = feature_dim
        self.head = nn.Linear(feature_dim, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D)."""
        features: Tensor = self.encoder(x)
        return features

    def classify(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C) logits."""
        logits: Tensor = self.head(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C) logits."""
        return self.classify(self.features(x))


class SmallNet(WithHead):
    """Two convolutions and a classifier: learns toy images in seconds, for tests and examples.

    Args:
        num_classes: outputs of the classifier.
        width: channels of the first layer; the second has twice as many.

    >>> SmallNet(num_classes=4, width=8).feature_dim
    16
    """

    name = "small"

    def __init__(
        self,
        num_classes: int,
        *,
        width: Annotated[int, about("channels of the first layer", ge=1, le=4096)] = 16,
    ) -> None:
        encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        super().__init__(encoder, 2 * width, num_classes)


def small_net(num_classes: int, width: int = 16) -> SmallNet:
    """A `SmallNet`, for short programs.

    >>> small_net(4).feature_dim
    32
    """
    return SmallNet(num_classes, width=width)
