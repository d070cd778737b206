"""A peer: one model that learns, with everything that is its alone."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from peerlearn.peer.model import Layout, PeerModel, Precision
from peerlearn.peer.optimizers import Optimizer
from peerlearn.peer.torch_state import generator, private_randomness

State = dict[str, Any]  # dotted names; tensors, and what JSON can hold


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
