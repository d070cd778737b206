"""What an image costs a network is counted, layer by layer."""

import torch
from torch import Tensor, nn

from peerlearn.nets.flops import forward_flops
from peerlearn.nets.resnet import ResNet18


def by_hand(net: nn.Module, x: Tensor) -> int:
    """Two operations for each multiplication in convolutions and linear layers."""
    total = 0

    def count(part: nn.Module, _: object, y: Tensor) -> None:
        nonlocal total
        if isinstance(part, nn.Conv2d):
            each = part.in_channels // part.groups * part.kernel_size[0] * part.kernel_size[1]
            total += 2 * y[0].numel() * each
        elif isinstance(part, nn.Linear):
            total += 2 * part.in_features * part.out_features

    for part in net.modules():
        part.register_forward_hook(count)
    net.eval()(x)
    return total


def test_every_layer_of_a_network_is_counted() -> None:
    for net, shape in (
        (ResNet18(10, width=16), (3, 32, 32)),
        (ResNet18(200, width=4, pool="2x2"), (3, 64, 64)),
        (ResNet18(100, width=2, stem="7x7", normalise=True), (3, 224, 224)),
    ):
        assert forward_flops(net, shape) == by_hand(net, torch.zeros(1, *shape))


def test_counting_leaves_a_network_as_it_was() -> None:
    net = ResNet18(10, width=2)
    net.head.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    forward_flops(net, (3, 32, 32))
    assert net.training
    assert not net.head.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
