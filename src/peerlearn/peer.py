"""Peers: a network with what its method puts on it, its optimizer and its randomness."""

import copy
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from peerlearn.devices import generator, moved, private_randomness
from peerlearn.errors import UserError
from peerlearn.nets.base import Network, classifier_of, tensors_of
from peerlearn.nets.processor import SAFE_CHANNELS, Precision, may_overrun
from peerlearn.optim.optimizers import Optimizer

Layout = Literal["auto", "channels_last", "default"]
State = dict[str, Any]  # dotted names; tensors, and what JSON can hold
R = TypeVar("R")
Features = Callable[[Network, Tensor], Tensor]
_CONTAINERS = {OrderedDict, dict, list, set}  # of a module's attributes
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
        if device.type == "cpu" and any(map(may_overrun, self.modules())):
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


class Peer:
    """A model with its optimizer, its randomness and what its method keeps for it alone.

    Args:
        build: makes its network.
        setup: the method's `setup_peer`.
        optim: how it follows its gradients.
        seed: of the learner.
        index: its number among the peers, which gives it randomness of its own.
        device: where it runs.
        precision: of its arithmetic: fp32, bf16 or fp16.
        layout: of images and weights in memory: auto, channels_last or default.
        compile: whether its networks are compiled.

    Attributes:
        device: where it is, and what its method shows it.
        buffers: tensors of the method's own, such as GSA's accumulators.
        previous: a copy of the model as it was earlier, if the method asks for one (OCM).

    >>> from peerlearn import AdamW, small_net
    >>> usual = {"seed": 0, "index": 0, "device": torch.device("cpu")}
    >>> peer = Peer(lambda: small_net(4), lambda peer: None, AdamW(), **usual)
    >>> peer.backward(peer.logits(torch.rand(2, 3, 8, 8)).square().mean())
    >>> peer.step()
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        setup: Callable[["Peer"], None],
        optim: Optimizer,
        *,
        seed: int,
        index: int,
        device: torch.device,
        precision: Precision = "fp32",
        layout: Layout = "auto",
        compile: bool = False,
    ) -> None:
        self.device = device
        self.rng = generator(seed, f"peer {index}")
        self.buffers: dict[str, Tensor] = {}
        self.previous: PeerModel | None = None
        with private_randomness(generator(seed, f"network {index}"), device):
            self.model = PeerModel(build(), precision, layout, compile=compile)
            setup(self)
        for model in self.networks:
            model.settle(device)
        self.buffers = {name: tensor.to(device) for name, tensor in self.buffers.items()}
        self.optimizer = optim.build(self.model.parameters())
        self.optimizer.register_step_post_hook(_count_write)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    @property
    def networks(self) -> list[PeerModel]:
        """All its models: the one that learns, and the previous one if it is kept."""
        return [model for model in (self.model, self.previous) if model is not None]

    def logits(self, x: Tensor) -> Tensor:
        """Its answers: (B, 3, H, W) in [0, 1] -> (B, C)."""
        return self.model.logits(x)

    def keep_previous(self) -> None:
        """Keep a copy of the model as it is now, which takes no gradient.

        The copy runs in training mode, on the statistics of each batch; the running statistics that
        it goes on to collect are never read.
        """
        if self.previous is None:
            self.previous = copy.deepcopy(self.model).requires_grad_(False)
        self.previous.load_state_dict(self.model.state_dict())

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a part of the loss."""
        self.scaler.scale(loss).backward()

    def step(self) -> None:
        """Follow the gradients gathered since the last step."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def moving_state(self) -> State:
        """The part of its state that moves before it takes a step."""
        return {
            "rng": self.rng.get_state(),
            **prefixed("model", self.model.moving_state()),
            **(prefixed("snapshot", self.previous.moving_state()) if self.previous else {}),
            **prefixed("buffers", self.buffers),
        }

    def state_dict(self) -> State:
        """All that outlives a step."""
        return {
            "rng": self.rng.get_state(),
            "scaler": self.scaler.state_dict(),
            **prefixed("model", self.model.full_state()),
            **(prefixed("snapshot", self.previous.full_state()) if self.previous else {}),
            **prefixed("buffers", self.buffers),
            **prefixed("optimizer", self._moments()),
        }

    def load_state_dict(self, state: State) -> None:
        """Become the peer whose `state_dict()` this was."""
        self.rng.set_state(state["rng"])
        self.scaler.load_state_dict(state["scaler"])
        self.model.load_full_state(part("model", state))
        snapshot = part("snapshot", state)
        if snapshot and self.previous is None:
            self.keep_previous()
        if self.previous is not None and snapshot:
            self.previous.load_full_state(snapshot)
        else:
            self.previous = None
        self.buffers = {name: t.to(self.device) for name, t in part("buffers", state).items()}
        self._load_moments(part("optimizer", state))

    def _moments(self) -> State:
        """What the optimizer has gathered, nothing before the first step, and its options."""
        state = self.optimizer.state_dict()
        moments: State = {
            f"{number}.{name}": value
            for number, values in state["state"].items()
            for name, value in values.items()
        }
        return moments | {"groups": [_options(group) for group in state["param_groups"]]}

    def _load_moments(self, moments: State) -> None:
        """Give every moment the memory layout of its parameter, so that a step rounds as before."""
        state: dict[int, State] = {}
        parameters = list(self.model.parameters())
        options = moments.pop("groups")
        for key, value in moments.items():
            number, _, name = key.partition(".")
            parameter = parameters[int(number)]
            moment = value.clone() if isinstance(value, Tensor) else value
            if isinstance(value, Tensor) and value.ndim and value.shape == parameter.shape:
                moment = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
            state.setdefault(int(number), {})[name] = moment
        groups = self.optimizer.state_dict()["param_groups"]
        whole = [
            {**{name: group[name] for name in group.keys() - _options(group).keys()}, **saved}
            for group, saved in zip(groups, options, strict=True)
        ]
        self.optimizer.load_state_dict({"state": state, "param_groups": whole})


def _count_write(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Let torch count that an optimizer has written, which it does not for a fused one."""
    torch.autograd.graph.increment_version(optimizer.param_groups[0]["params"][0])


def _options(group: Mapping[str, Any]) -> State:
    """The options of a group of parameters, such as a learning rate that a schedule has moved."""
    plain = (bool, int, float, str, list, tuple, type(None))
    return {k: v for k, v in group.items() if k != "params" and isinstance(v, plain)}


def prefixed(prefix: str, state: Mapping[str, Any]) -> State:
    """A part's state under its name in the whole."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def part(prefix: str, state: Mapping[str, Any]) -> State:
    """What `prefixed` put there."""
    start = f"{prefix}."
    return {name[len(start) :]: value for name, value in state.items() if name.startswith(start)}


class Fingerprint:
    """What networks are made of at one moment, and how often each of their tensors was written.

    It tells whether a snapshot is still of the present state, also after a change by hand. Torch
    counts changes in place and by `load_state_dict`, but not values written by NumPy or `.data`.

    Args:
        networks: whose modules, with their attributes, parameters and buffers, are looked at.
        rows: further tensors, such as the columns of a memory.
    """

    def __init__(self, networks: Iterable[PeerModel], rows: Iterable[Tensor] = ()) -> None:
        models = [*networks]
        self._modules = [module for model in models for module in model.modules()]
        places = ((one._parameters, one._buffers, one._modules) for one in self._modules)
        self._places: list[Mapping[str, object]] = [place for own in places for place in own]
        inner = (vars(module) for module in self._modules if module not in models)
        self._attributes = [(own, _kept(own)) for own in inner]  # as they are and were
        self._of_models = [(vars(model), _kept(vars(model))) for model in models]
        self.tensors = [*map(tensors_of, models)]
        self._aliases = [tensor.detach() for tensor in chain(*self.tensors)]
        self._rows = [*rows]
        self._parts = self._present()  # kept, so that no other object can be taken for them
        self.renew()

    def renew(self) -> None:
        """Take the tensors as often as they have been written by now."""
        self._versions = [*map(_writes, self._parts)]

    def is_current(self) -> bool:
        """Return whether all has the same parts still, and no tensor has been written since."""
        return [*map(_writes, self._parts)] == self._versions and self.has_same_parts()

    def has_same_parts(self) -> bool:
        """Return whether nothing has been replaced, and no attribute of a module has changed."""
        now = self._present()
        if len(now) != len(self._parts) or not all(map(operator.is_, now, self._parts)):
            return False
        try:
            same = all(own == before for own, before in self._attributes)
            same = same and all(_uncounted(own) == before for own, before in self._of_models)
            return same and all(map(Tensor.is_set_to, chain(*self.tensors), self._aliases))
        except (RuntimeError, TypeError, ValueError):  # arrays, which are not compared as a whole
            return False

    def _present(self) -> list[object]:
        """Return parts of modules, the classes of these, and which of their tensors are learnt."""
        found = [part for place in self._places for part in place.values()]
        learnt = [tensor.requires_grad for own in self.tensors for tensor in own]
        return [*found, *map(type, self._modules), *learnt, *self._rows]


def _uncounted(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without counts of images."""
    return {k: v for k, v in attributes.items() if k not in ("forwards", "backwards")}


def _kept(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same as they are now; hooks that are added later are not in them."""
    now = _uncounted(attributes).items()
    return {name: copy.copy(v) if type(v) in _CONTAINERS else v for name, v in now}


def _writes(part: object) -> object:
    """Return how often a tensor has been written; equal to nothing where that is not counted."""
    if not isinstance(part, Tensor):
        return None
    return object() if part.is_inference() else part._version
