"""The memory layout: fast where it is safe."""

import multiprocessing
from functools import partial

import pytest
import torch
from torch import nn

from peerlearn import StreamInfo, build_learner
from peerlearn.nets import ResNet18
from peerlearn.peer import PeerModel

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("width", "layout"),
    [(1, torch.contiguous_format), (8, torch.contiguous_format), (15, torch.contiguous_format),
     (16, torch.channels_last), (64, torch.channels_last)],
)  # fmt: skip
def test_few_channels_keep_the_default_layout(width: int, layout: torch.memory_format) -> None:
    model = PeerModel(ResNet18(10, width=width))
    model.settle(CPU)
    assert model.layout == layout
    assert model.net.stages[2].conv1.weight.is_contiguous(memory_format=layout)


def test_a_net_without_strided_pointwise_convolutions_is_always_fast() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 4, 1), nn.Flatten())
    net.feature_dim, net.features = 4, net.forward  # type: ignore[assignment]
    model = PeerModel(net)
    model.settle(CPU)
    assert model.layout == torch.channels_last


@pytest.mark.parametrize(("width", "size"), [(4, 48), (4, 64), (8, 48), (8, 64)])
def test_a_step_on_larger_images_does_not_end_the_process(width: int, size: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=take_steps, args=(width, size))
    process.start()
    process.join()
    assert process.exitcode == 0


def take_steps(width: int, size: int) -> None:
    net = partial(ResNet18, 4, width=width)
    learner = build_learner("derpp", StreamInfo(num_classes=4), net, memory=8)
    x = torch.randint(0, 256, (10, 3, size, size), dtype=torch.uint8)
    for _ in range(2):
        learner.learn(x, torch.arange(10) % 4)
