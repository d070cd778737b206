"""A peer: one network that learns, with everything that is its alone."""

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from peerlearn.errors import UserError
from peerlearn.nets import Network

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def generator(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose; no use of it shifts the draws of another."""
    digest = hashlib.sha256(f"{seed}: {purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


@contextmanager
def private_randomness(rng: torch.Generator, device: torch.device) -> Iterator[None]:
    """Code that only knows the global generators (initialisation, dropout) draws from `rng`."""
    seed = int(torch.randint(2**62, (), generator=rng))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Optim:
    """AdamW, created once per peer and never reset."""

    lr: float = 5e-4
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise UserError(f"optimizer: lr must be a number above 0, got {self.lr}")
        if self.weight_decay < 0:
            raise UserError(f"optimizer: weight_decay must be 0 or more, got {self.weight_decay}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"optimizer: betas must lie in [0, 1), got {self.betas}")


class Brain(nn.Module):
    """A network, and the projection that some methods put on its features.

    Counts the images it is shown, which is what the methods cost.
    """

    def __init__(self, net: nn.Module, precision: Precision = "fp32") -> None:
        super().__init__()
        if not isinstance(net, Network):
            raise UserError(
                f"network: {type(net).__name__} must offer features(x) and feature_dim; "
                "wrap an encoder as peerlearn.WithHead(encoder, feature_dim, num_classes)"
            )
        self.net = net
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

    def logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, C), fp32."""
        return self._run(self.net, x)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> (B, D), fp32."""
        return self._run(self.net.features, x)

    def project(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, P), fp32."""
        assert self.projection is not None, "the method's equip() adds the projection"
        projected: Tensor = self.projection(features)
        return projected

    def _run(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        self.forwards += len(x)
        self.backwards += len(x) if torch.is_grad_enabled() else 0
        dtype = _DTYPES[self.precision]
        with torch.autocast(x.device.type, dtype=dtype, enabled=self.precision != "fp32"):
            return part(x.contiguous(memory_format=torch.channels_last)).float()


class Peer:
    """A network with its optimizer, its randomness and what its method keeps for it alone.

    Attributes:
        kept: tensors of the method's own, such as GSA's accumulators.
        snapshot: a frozen copy of an earlier self, if the method asks for one (OCM).
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        equip: Callable[["Peer"], None],
        optim: Optim,
        *,
        seed: int,
        index: int,
        device: torch.device,
        precision: Precision = "fp32",
    ) -> None:
        self.rng = generator(seed, f"peer {index}")
        self.kept: dict[str, Tensor] = {}
        self.snapshot: Brain | None = None
        with private_randomness(generator(seed, f"network {index}"), device):
            self.brain = Brain(build(), precision)
            equip(self)
        for brain in filter(None, (self.brain, self.snapshot)):
            brain.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.kept = {name: tensor.to(device) for name, tensor in self.kept.items()}
        self.optimizer = torch.optim.AdamW(
            self.brain.parameters(),
            lr=optim.lr,
            weight_decay=optim.weight_decay,
            betas=optim.betas,
            fused=True,
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def logits(self, x: Tensor) -> Tensor:
        """Its answers: (B, 3, H, W) in [0, 1] -> (B, C)."""
        return self.brain.logits(x)

    def take_snapshot(self) -> None:
        """Freeze a copy of the present self.

        The copy runs in training mode, on the statistics of each batch; the running statistics that
        it goes on to collect are never read.
        """
        if self.snapshot is None:
            self.snapshot = copy.deepcopy(self.brain).requires_grad_(False)
        self.snapshot.load_state_dict(self.brain.state_dict())

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a part of the loss."""
        self.scaler.scale(loss).backward()

    def step(self) -> None:
        """Follow the gradients gathered since the last step."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
