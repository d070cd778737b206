"""ResNet-18 for images of 32, 64 and 224 pixels."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn.errors import UserError

Stem = Literal["3x3", "7x7"]
Pool = Literal["global", "2x2"]


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is the input itself where shapes allow."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inside, H, W) -> (B, outside, H / stride, W / stride)."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    """ResNet-18 with a linear classifier on its features.

    Args:
        num_classes: outputs of the classifier, fixed from the start.
        width: channels of the first stage; 64 is the full network, 16 or 32 a slim one.
        stem: "3x3" for 32 and 64 pixels; "7x7" with stride 2 and a max-pool for 224.
        pool: "global" average, or the averages of the four quarters ("2x2", Tiny-ImageNet).
        mean, std: normalise pixels inside the network, so that augmentation always sees [0, 1].
    """

    def __init__(
        self,
        num_classes: int,
        *,
        width: int = 64,
        stem: Stem = "3x3",
        pool: Pool = "global",
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
    ) -> None:
        super().__init__()
        if width < 1 or num_classes < 1:
            raise UserError(f"ResNet18: {width=} and {num_classes=} must be at least 1")
        self.normalise = tuple(mean) != (0.0, 0.0, 0.0) or tuple(std) != (1.0, 1.0, 1.0)
        self.mean = nn.Buffer(torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.std = nn.Buffer(torch.tensor(std).view(3, 1, 1), persistent=False)
        self.stem = _stem(stem, width)
        stages = []
        inside = width
        for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
            outside = factor * width
            stages += [Block(inside, outside, stride), Block(outside, outside, 1)]
            inside = outside
        self.stages = nn.Sequential(*stages)
        if pool not in ("global", "2x2"):
            raise UserError(f"ResNet18: pool must be 'global' or '2x2', got {pool!r}")
        self.cells = 1 if pool == "global" else 2
        self.feature_dim = inside * self.cells**2
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D), what the classifier sees."""
        if self.normalise:
            x = (x - self.mean) / self.std
        y = self.stages(self.stem(x))
        return F.adaptive_avg_pool2d(y, self.cells).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C) logits."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _stem(kind: Stem, width: int) -> nn.Sequential:
    if kind == "3x3":
        conv = nn.Conv2d(3, width, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    if kind == "7x7":
        conv = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True), pool)
    raise UserError(f"ResNet18: stem must be '3x3' or '7x7', got {kind!r}")
