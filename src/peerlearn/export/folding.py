"""Batch-norms that become part of the convolutions before them."""

import copy
from collections import Counter
from typing import NamedTuple

from torch import Tensor, fx, nn

from peerlearn.export.agreement import TRIPS, brief, close, distance


class Folding(NamedTuple):
    """What became of the batch-norms of a network."""

    folded: int
    left: int
    why: str = ""  # none was folded


def folded(network: nn.Module, x: Tensor) -> tuple[nn.Module, Folding]:
    """A network whose batch-norms are part of the convolutions before them, if that can be had.

    x: images on which it must answer the same.
    """
    try:
        traced = fx.GraphModule(network, fx.Tracer().trace(network))
        count = _fold(traced)
        expected = network(x)
        off = distance(traced(x), expected)
    except TRIPS as error:
        return network, Folding(0, _batch_norms(network), f"cannot be traced: {brief(error)}")
    if not close(off, expected):
        return network, Folding(0, _batch_norms(network), f"would answer otherwise, by {off:.1g}")
    return traced, Folding(count, _batch_norms(traced))


def _fold(traced: fx.GraphModule) -> int:
    """Fold what can be folded, in place; how many batch-norms that were."""
    calls = Counter(node.target for node in traced.graph.nodes)
    modules = dict(traced.named_modules())
    count = 0
    for node in [*traced.graph.nodes]:
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        conv, norm = modules[str(before.target)], modules[str(node.target)]
        once = calls[before.target] == len(before.users) == 1
        if once and _can_fold(conv, norm):
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            traced.set_submodule(str(before.target), fold(conv, norm))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
            count += 1
    traced.delete_all_unused_submodules()
    traced.recompile()
    return count


def _can_fold(conv: nn.Module, norm: nn.Module) -> bool:
    hooked = any(own._forward_hooks or own._forward_pre_hooks for own in (conv, norm))
    plain = type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d
    return plain and not hooked and norm.running_var is not None


def fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """The convolution that does what a convolution and a batch-norm in evaluation mode do.

    >>> import torch
    >>> conv, norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4).eval()
    >>> x = torch.rand(2, 3, 5, 5)
    >>> torch.allclose(fold(conv, norm)(x), norm(conv(x)), atol=1e-6)
    True
    """
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scale = (variance.double() + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = -mean.double() if conv.bias is None else conv.bias.double() - mean
    bias = shift * scale + (0 if norm.bias is None else norm.bias.double())
    weight = conv.weight.double() * scale[:, None, None, None]
    folded = copy.copy(conv)
    folded._parameters = {
        name: nn.Parameter(own.detach().to(conv.weight.dtype), requires_grad=False)
        for name, own in {"weight": weight, "bias": bias}.items()
    }
    return folded


def _batch_norms(module: nn.Module) -> int:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return sum(isinstance(own, kinds) for own in module.modules())
