"""The model of a peer: a network, and what a method puts on its features."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from peerlearn.errors import UserError
from peerlearn.nets.base import Network

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class PeerModel(nn.Module):
    """A network with the head and the projection that some methods put on its features.

    Counts the images it is shown, which is what the methods cost.

    Args:
        net: a network that shows its features, see `peerlearn.nets.Network`.
        precision: of its arithmetic: fp32, bf16 or fp16.

    >>> from peerlearn import small_net
    >>> model = PeerModel(small_net(4))
    >>> model.logits(torch.rand(2, 3, 8, 8)).shape, model.forwards
    (torch.Size([2, 4]), 2)
    """

    def __init__(self, net: nn.Module, precision: Precision = "fp32") -> None:
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
        self.forwards = 0
        self.backwards = 0

    @property
    def feature_dim(self) -> int:
        """Length of a feature vector."""
        return int(self.net.feature_dim)

    def add_projection(self, most: int = 128) -> None:
        """Put a linear projection on the features; never wider than they are."""
        self.projection = nn.Linear(self.feature_dim, min(most, self.feature_dim))

    def use_head(self, head: nn.Module) -> None:
        """Answer with a head of the method's own, (B, D) -> (B, C), in place of the network's."""
        self.head = head

    def logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C), fp32."""
        if self.head is None:
            return self._run(self.net, x)
        head = self.head
        return self._run(lambda images: head(self.net.features(images)), x)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, D), fp32."""
        return self._run(self.net.features, x)

    def project(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, P), fp32."""
        assert self.projection is not None, "the method's setup_peer() adds the projection"
        projected: Tensor = self.projection(features)
        return projected

    def full_state(self) -> dict[str, Any]:
        """Its state and its counts."""
        return {**self.state_dict(), "counts": [self.forwards, self.backwards]}

    def load_full_state(self, state: dict[str, Any]) -> None:
        """Become the model whose `full_state()` this was."""
        self.forwards, self.backwards = state["counts"]
        self.load_state_dict({name: t for name, t in state.items() if name != "counts"})

    def _run(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        self.forwards += len(x)
        self.backwards += len(x) if torch.is_grad_enabled() else 0
        dtype = _DTYPES[self.precision]
        with torch.autocast(x.device.type, dtype=dtype, enabled=self.precision != "fp32"):
            return part(x.contiguous(memory_format=torch.channels_last)).float()
