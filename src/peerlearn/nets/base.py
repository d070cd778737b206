"""What a network must offer, a way to give any encoder that, and copies of networks."""

import inspect
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn

from peerlearn.devices import moved
from peerlearn.errors import UserError

M = TypeVar("M", bound=nn.Module)


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


def network_of(net: Callable[..., nn.Module], num_classes: int) -> Callable[[], nn.Module]:
    """A function that makes a network for so many classes, of one that can for any number."""
    try:
        inspect.signature(net).bind(num_classes)
    except TypeError as error:
        raise UserError(
            f"net: where classes are not announced it takes their number, and this one does not "
            f"({error}); give such as lambda n: small_net(n)"
        ) from error
    except ValueError:  # not every function has a signature
        pass
    return partial(net, num_classes)


def check_net(net: Any) -> None:
    """Refuse what makes no network."""
    if isinstance(net, nn.Module) or not callable(net):
        raise UserError(
            f"net: give a function that makes a network, such as lambda: small_net(10), or "
            f"lambda n: small_net(n) where classes are not announced; got {type(net).__name__}"
        )


# ---- copies to predict with, which nothing that learns can change; not deep ones, which modules
# ---- that hold results or locks do not allow


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
        own = vars(one)
        for name, kept in own.items():  # most are numbers, and dicts of hooks are empty
            holds = type(kept) in _MAY_HOLD_MODULES and kept and name not in _HAS_OWN
            if holds or isinstance(kept, nn.Module):
                own[name] = _with_twins(kept, twins)
    return twin


_HAS_OWN = {"_parameters", "_buffers", "_modules"}  # a twin has these already
_MAY_HOLD_MODULES = {list, tuple, dict, OrderedDict, MethodType, partial}


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
    if type(kept) is tuple and {*map(type, kept)} == {int}:  # the size of a kernel, a stride
        return kept
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


def tensors_of(network: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of all modules, one that is shared several times."""
    places = (place for m in network.modules() for place in (m._parameters, m._buffers))
    return [tensor for place in places for tensor in place.values() if tensor is not None]
