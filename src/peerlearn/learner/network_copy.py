"""Copies of networks to predict with, which nothing that learns can change.

They are not deep copies, which modules that hold results or locks do not allow.
"""

import operator
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import nn

from peerlearn.devices import moved

M = TypeVar("M", bound=nn.Module)


def copy_network(model: M) -> M:
    """Return a network in evaluation mode with parameters and buffers of its own."""
    twin = share_network(model)
    for module in twin.modules():
        for name, own in module._parameters.items():
            if own is not None:
                module._parameters[name] = nn.Parameter(own.detach().clone(), own.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.detach().clone()
    return twin


def share_network(module: M) -> M:
    """Return a module in evaluation mode around the same tensors; what else it keeps is its own."""
    twins: dict[int, nn.Module] = {}
    twin = _plain_twin(module, twins)
    for one in twins.values():
        vars(one).update({name: _with_twins(kept, twins) for name, kept in vars(one).items()})
    return twin


@torch.no_grad()
def average_weights(copied: nn.Module, other: nn.Module) -> None:
    """Move a copy's weights half-way to those of a network built alike.

    What is not learnt stays: it may be infinite, and is the same there.
    """
    for module, theirs in zip(copied.modules(), other.modules(), strict=True):
        for name, own in module._parameters.items():
            other_own = theirs._parameters[name]
            if own is not None and own.requires_grad and other_own is not None:
                middle = own.lerp(moved(other_own, own.device), 0.5)
                module._parameters[name] = nn.Parameter(middle)


def _with_twins(kept: Any, twins: Mapping[int, nn.Module]) -> Any:
    """Return what a module keeps, or a list, tuple or dict of such (hooks), with twins inside."""
    if type(kept) in (list, tuple) and kept:
        items = [_of_twin(item, twins) for item in kept]
        return kept if all(map(operator.is_, items, kept)) else type(kept)(items)
    if type(kept) in (dict, OrderedDict) and kept:
        items = [_of_twin(item, twins) for item in kept.values()]
        same = all(map(operator.is_, items, kept.values()))
        return kept if same else type(kept)(zip(kept, items, strict=True))
    return _of_twin(kept, twins)


def _of_twin(kept: Any, twins: Mapping[int, nn.Module]) -> Any:
    """Return a module's twin; of its method, the twin's; of a partial, one that has those."""
    if isinstance(kept, nn.Module):
        return twins.get(id(kept), kept)
    if isinstance(kept, MethodType) and id(kept.__self__) in twins:
        return MethodType(kept.__func__, twins[id(kept.__self__)])
    if type(kept) is partial:
        args = [_of_twin(value, twins) for value in kept.args]
        named = {name: _of_twin(value, twins) for name, value in kept.keywords.items()}
        return partial(_of_twin(kept.func, twins), *args, **named)
    return kept


def _plain_twin(module: M, known: dict[int, nn.Module]) -> M:
    if id(module) in known:
        return known[id(module)]  # type: ignore[return-value]
    twin = known[id(module)] = module.__class__.__new__(module.__class__)
    twin.__dict__ = dict(
        vars(module),
        training=False,
        _parameters=dict(module._parameters),
        _buffers=dict(module._buffers),
        _modules={
            name: child and _plain_twin(child, known) for name, child in module._modules.items()
        },
    )
    return twin
