"""A small network for tests and examples."""

from typing import Annotated

from torch import nn

from peerlearn.nets.base import WithHead
from peerlearn.settings import about


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
