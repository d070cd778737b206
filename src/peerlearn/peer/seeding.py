"""Randomness: a generator for every purpose, all from one seed."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
