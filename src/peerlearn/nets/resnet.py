"""ResNet-18 for images of 32, 64 and 224 pixels."""

from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn.settings import about, settings_of

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

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
    """ResNet-18 with a linear classifier.

    He et al., CVPR 2016, https://arxiv.org/abs/1512.03385

    Args:
        num_classes: outputs of the classifier, fixed from the start.
        width: channels of the first stage; 64 is the full network, 16 or 32 a slim one.
        stem: "3x3" for 32 and 64 pixels; "7x7" with stride 2 and a max-pool for 224.
        pool: "global" average, or the averages of the four quarters ("2x2", Tiny-ImageNet).
        normalise: ImageNet's mean and deviation, inside the network, so that augmentation always
            sees [0, 1].

    >>> ResNet18(10, width=16).features(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """

    name = "resnet18"

    def __init__(
        self,
        num_classes: int,
        *,
        width: Annotated[
            int, about("channels of the first stage; 64 is the full ResNet-18", ge=1, le=4096)
        ] = 64,
        stem: Annotated[Stem, about("first layers: 3x3 for 32 and 64 pixels, 7x7 for 224")] = "3x3",
        pool: Annotated[Pool, about("last pooling")] = "global",
        normalise: Annotated[
            bool, about("subtract ImageNet's mean and divide by its deviation")
        ] = False,
    ) -> None:
        super().__init__()
        settings_of(ResNet18)(width=width, stem=stem, pool=pool, normalise=normalise)
        self.normalise = normalise
        self.mean = nn.Buffer(torch.tensor(IMAGENET_MEAN).view(3, 1, 1), persistent=False)
        self.std = nn.Buffer(torch.tensor(IMAGENET_STD).view(3, 1, 1), persistent=False)
        self.stem = _stem(stem, width)
        stages = []
        inside = width
        for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
            outside = factor * width
            stages += [Block(inside, outside, stride), Block(outside, outside, 1)]
            inside = outside
        self.stages = nn.Sequential(*stages)
        self.cells = 1 if pool == "global" else 2
        self.feature_dim = inside * self.cells**2
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D), what the classifier sees."""
        if self.normalise:
            x = (x - self.mean) / self.std
        y = self.stages(self.stem(x))
        return F.adaptive_avg_pool2d(y, self.cells).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C) logits."""
        logits: Tensor = self.head(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, C) logits."""
        return self.classify(self.features(x))


def _stem(kind: Stem, width: int) -> nn.Sequential:
    if kind == "3x3":
        conv = nn.Conv2d(3, width, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    conv = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True), pool)
