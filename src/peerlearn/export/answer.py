"""What is exported: the way from pixels to probabilities, of copies that share nothing."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from peerlearn.export.agreement import TRIPS
from peerlearn.methods.interface import images
from peerlearn.peer import PeerModel


class Logits(nn.Module):
    """A copy of a model's way to logits, in evaluation mode, which shares nothing with it."""

    def __init__(self, model: PeerModel) -> None:
        super().__init__()
        known: dict[int, Any] = {}
        self.net: Any = copied(model.net, known)
        self.head: nn.Module | None = copied(model.head, known)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C)."""
        logits: Tensor = self.net(x) if self.head is None else self.head(self.net.features(x))
        return logits.float()


class Answer(nn.Module):
    """What is exported: uint8 images -> the mean of the logits, and probabilities."""

    def __init__(self, networks: Sequence[nn.Module], temperature: float) -> None:
        super().__init__()
        self.networks, self.temperature = nn.ModuleList(networks), temperature
        self.training = False

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 3, H, W) uint8 -> (B, C), (B, C)."""
        x = pixels(images)
        logits = torch.stack([network(x) for network in self.networks]).mean(dim=0)
        return logits, (logits / self.temperature).softmax(dim=1)


def pixels(x: Tensor) -> Tensor:
    """uint8 pixels as networks see them here."""
    return images(x).contiguous(memory_format=torch.channels_last)  # the faster one on a CPU


def copied(value: Any, known: dict[int, Any]) -> Any:
    """A copy on the CPU, of modules in evaluation mode; what cannot be copied is shared.

    A deep copy would refuse modules that hold results or locks. known: copies, by what is copied.
    """
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, nn.Module):
        twin = known[id(value)] = object.__new__(type(value))
        state = {name: copied(own, known) for name, own in vars(value).items()}
        twin.__dict__ = {**state, "training": False}
        return twin
    if isinstance(value, Tensor):
        plain = value.detach().to("cpu", copy=True)
        is_parameter = isinstance(value, nn.Parameter)
        made = nn.Parameter(plain, requires_grad=False) if is_parameter else plain
        return known.setdefault(id(value), made)
    if type(value) is dict:
        return {name: copied(own, known) for name, own in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(own, known) for own in value)
    try:
        return copy.deepcopy(value, known)
    except TRIPS:
        return value
