"""What an image costs a network, counted and not measured."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def forward_flops(net: nn.Module, image_shape: Sequence[int]) -> int:
    """Operations of a forward pass of one image: two for each multiplication with a weight.

    Convolutions and products of matrices are counted, all else is neglected. The network is as it
    was before.

    >>> forward_flops(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), (3, 2, 2))
    120
    """
    training = {name: part.training for name, part in net.named_modules()}
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    counter = FlopCounterMode(display=False)
    net.eval()
    try:
        with torch.no_grad(), counter:
            net(torch.zeros(1, *image_shape, device=device))
    finally:
        for name, part in net.named_modules():
            part.training = training[name]
    return counter.get_total_flops()
