"""What a network must offer, a way to give any encoder that, and a small one for tests."""

from typing import Annotated, Protocol, runtime_checkable

from torch import Tensor, nn

from peerlearn.settings import about


@runtime_checkable
class Network(Protocol):
    """A module that shows its features. Anything with these three will do."""

    feature_dim: int

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, feature_dim)."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C) logits."""
        ...


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

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C) logits."""
        logits: Tensor = self.head(self.features(x))
        return logits


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
