"""The model of a peer: a network, and what a method puts on its features."""

import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.nets.base import Network, classifier_of

SAFE_CHANNELS = 16

Precision = Literal["fp32", "bf16", "fp16"]
Layout = Literal["auto", "channels_last", "default"]
R = TypeVar("R")
M = TypeVar("M", bound=nn.Module)
Features = Callable[[Network, Tensor], Tensor]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class PeerModel(nn.Module):
    """A network with the head and the projection that some methods put on its features.

    Counts the images it is shown, which is what the methods cost.

    Args:
        net: a network that shows its features, see `peerlearn.nets.Network`.
        precision: of its arithmetic: fp32, bf16 or fp16.
        layout: of its images and weights in memory; `settle` decides what "auto" is.
        compile: whether its features are computed by what `torch.compile` makes of them.

    >>> from peerlearn import small_net
    >>> model = PeerModel(small_net(4))
    >>> model.logits(torch.rand(2, 3, 8, 8)).shape, model.forwards
    (torch.Size([2, 4]), 2)
    """

    def __init__(
        self,
        net: nn.Module,
        precision: Precision = "fp32",
        layout: Layout = "auto",
        *,
        compile: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(net, Network):
            raise UserError(
                f"network: {type(net).__name__} must offer features(x) and feature_dim; "
                "wrap an encoder as peerlearn.WithHead(encoder, feature_dim, num_classes)"
            )
        self.net = net
        self.head: nn.Module | None = None
        self.projection: nn.Linear | None = None
        self.precision = precision
        if layout not in get_args(Layout):
            raise UserError(f"layout must be auto, channels_last or default, got {layout!r:.60}")
        self.wanted = layout
        self.layout = torch.contiguous_format if layout == "default" else torch.channels_last
        self.compiles = compile
        self._features: Features = _features
        self.forwards = 0
        self.backwards = 0

    @property
    def feature_dim(self) -> int:
        """Length of a feature vector."""
        return int(self.net.feature_dim)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    def add_projection(self, most: int = 128) -> None:
        """Put a linear projection on the features; never wider than they are."""
        self.projection = nn.Linear(self.feature_dim, min(most, self.feature_dim))

    def use_head(self, head: nn.Module) -> None:
        """Answer with a head of the method's own, (B, D) -> (B, C), in place of the network's."""
        self.head = head

    def settle(self, device: torch.device) -> None:
        """Move to a device, with the memory layout that is fast there and safe; compile for it.

        In `channels_last`, the CPU's gradient of a strided 1x1 convolution of fewer than 16
        channels writes beyond its scratch memory for images from 46 pixels on, which may end the
        process: networks that have such a layer, or may have, keep the default layout there.
        """
        if device.type == "cpu" and any(map(_may_overrun, self.modules())):
            if self.wanted == "channels_last":
                raise UserError(
                    "layout channels_last may end the process: on a CPU it is not safe for "
                    f"strided 1x1 convolutions of fewer than {SAFE_CHANNELS} channels; take auto"
                )
            self.layout = torch.contiguous_format
        self.to(device, memory_format=self.layout)  # type: ignore[call-overload]
        if self.compiles:
            self._features = _compiled(device)

    def logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C), fp32."""
        classify = self._classifier() if self.compiles else self.head
        if classify is None:
            logits: Tensor = self._run(self.net, x)
        else:
            logits = self._run(lambda images: classify(self._features(self.net, images)), x)
        return logits.float()

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, D), fp32."""
        return self._run(lambda images: self._features(self.net, images), x).float()

    def answers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`logits(x)` and `features(x)`, of one forward unless the network has no `classify`."""
        classify = self._classifier()
        if classify is None:
            return self.logits(x), self.features(x)

        def both(images: Tensor) -> tuple[Tensor, Tensor]:
            features = self._features(self.net, images)
            kept = features.to(torch.float32, copy=True)  # classifiers may work in place
            return classify(features), kept

        logits, features = self._run(both, x)
        return logits.float(), features

    def _classifier(self) -> Callable[[Tensor], Tensor] | None:
        """What makes logits of features; None if that cannot be had apart."""
        return classifier_of(self.net) if self.head is None else self.head

    def project(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, P), fp32."""
        assert self.projection is not None, "the method's setup_peer() adds the projection"
        projected: Tensor = self.projection(features)
        return projected

    def moving_state(self) -> dict[str, Any]:
        """The part of its full state that a forward may move: all but weights that are learnt.

        A network that only answers has none that are learnt, and then moves its buffers alone.
        """
        state = self.state_dict(keep_vars=True)
        learns = any(t.requires_grad for t in state.values() if isinstance(t, Tensor))
        moved = {
            name: t
            for name, t in state.items()
            if not (isinstance(t, nn.Parameter) and (t.requires_grad or not learns))
        }
        return {**moved, "counts": [self.forwards, self.backwards]}

    def full_state(self) -> dict[str, Any]:
        """Its state and its counts."""
        return {**self.state_dict(), "counts": [self.forwards, self.backwards]}

    def load_full_state(self, state: dict[str, Any]) -> None:
        """Become the model whose `full_state()` this was."""
        self.forwards, self.backwards = state["counts"]
        self.load_state_dict({name: t for name, t in state.items() if name != "counts"})

    def _run(self, part: Callable[[Tensor], R], x: Tensor) -> R:
        if x.device != self.device:
            x = moved(x, self.device)
        self.forwards += len(x)
        self.backwards += len(x) if torch.is_grad_enabled() else 0
        dtype, low = _DTYPES[self.precision], self.precision != "fp32"
        # a forward casts each weight once; the cache for more belongs to all threads together
        with torch.autocast(x.device.type, dtype, enabled=low, cache_enabled=False):
            try:
                return part(x.contiguous(memory_format=self.layout))
            except ValueError as error:
                if len(x) == 1 and self.training:  # one value per channel has no variance
                    raise UserError(
                        f"network: cannot learn from a batch of one image of {tuple(x.shape[1:])} "
                        f"({error}); give two images or more, or larger ones"
                    ) from error
                raise


def _features(net: Network, images: Tensor) -> Tensor:
    """Takes the network along: copies and twins of a model must not compute with another's."""
    return net.features(images)


def _compiled(device: torch.device) -> Features:
    """`_features` by a compiler, on CUDA also recorded as a graph."""
    if device.type != "cuda":
        return torch.compile(_features)
    replayed = torch.compile(_features, mode="reduce-overhead")
    return lambda net, images: replayed(net, images).clone()  # the next replay writes over it


def _may_overrun(module: nn.Module) -> bool:
    """Whether a module has a convolution that is not safe; of a module of others nobody knows."""
    if isinstance(module, nn.Conv2d):
        few = module.in_channels // module.groups < SAFE_CHANNELS
        return few and max(module.kernel_size) == 1 and max(module.stride) > 1
    return any(
        weight.ndim == 4 and weight.shape[2:] == (1, 1) and weight.shape[1] < SAFE_CHANNELS
        for weight in module.parameters(recurse=False)
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
