"""Randomness: a generator for every purpose, all from one seed."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def generator(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose; no use of it shifts the draws of another."""
    digest = hashlib.sha256(f"{seed}: {purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


@contextmanager
def private_randomness(rng: torch.Generator, *devices: torch.device) -> Iterator[None]:
    """Code that only knows the global generators (initialisation, dropout) draws from `rng`.

    devices: whose generators these are, beside that of the CPU. They belong to the whole process,
    so threads that ask for this take turns.
    """
    with _global_generators, _seeded(rng, *devices):
        yield


_global_generators = threading.RLock()


def _after_fork() -> None:
    """Another thread may have had the lock, and there is no such thread in the child."""
    global _global_generators
    _global_generators = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def _seeded(rng: torch.Generator, *devices: torch.device) -> Iterator[None]:
    seed = int(torch.randint(2**62, (), generator=rng))
    on_cuda = [device for device in dict.fromkeys(devices) if device.type == "cuda"]
    with torch.random.fork_rng(devices=on_cuda):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
        for number, device in enumerate(on_cuda):  # not the same draws on each of them
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed + number)
        yield


def global_states(*devices: torch.device) -> list[bytes]:
    """Where the global generators stand, of the CPU and of these devices."""
    states = [torch.default_generator.get_state()]
    states += [torch.cuda.get_rng_state(d) for d in dict.fromkeys(devices) if d.type == "cuda"]
    return [state.numpy().tobytes() for state in states]
