"""Devices: tensors moved between them, generators, and torch's modes put back."""

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from peerlearn.errors import UserError

# To the CPU the host has to wait. To MPS it had better: torch reads memory there that may be gone.
_WAITING = ("cpu", "mps")

T = TypeVar("T")


def moved(value: T, device: torch.device) -> T:
    """A tensor on a device; of tuples, lists, mappings and dataclasses all tensors within.

    Anything else stays what it is. On its way to an accelerator nobody waits for it: each plain
    `x.to("cuda")` would let the host wait until all that was asked before is done.

    >>> moved({"index": torch.arange(2), "name": "x"}, torch.device("meta"))
    {'index': tensor(..., device='meta', size=(2,), dtype=torch.int64), 'name': 'x'}
    """
    found: Any = value
    if isinstance(value, Tensor):
        found = value.to(device, non_blocking=device.type not in _WAITING)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        found = type(value)(*(moved(one, device) for one in value))
    elif isinstance(value, list | tuple):
        found = type(value)(moved(one, device) for one in value)
    elif isinstance(value, Mapping):
        found = {key: moved(one, device) for key, one in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.init]
        found = replace(value, **{name: moved(getattr(value, name), device) for name in names})
    return found  # type: ignore[no-any-return]


def generator(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose; no use of it shifts the draws of another."""
    digest = hashlib.sha256(f"{seed}: {purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def check_generator_state(name: str, state: torch.Tensor) -> None:
    """Refuse what is not the state of a generator, or one from which torch would read on."""
    try:
        torch.Generator().set_state(state)
    except RuntimeError:
        raise UserError(f"{name} is not the state of a generator") from None
    # numbers left of the present block of 624, and the place of the next: torch looks at each
    # alone, and would read beyond the block if they did not agree
    left, place = (int(state[at : at + 4].view(torch.int32)) for at in (8, 16))
    if left + place != 625 and (left, place) != (1, 0):
        raise UserError(f"{name} is not the state of a generator")


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
    before = torch.default_generator.get_state()
    try:
        with torch.random.fork_rng(devices=on_cuda) if on_cuda else nullcontext():
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
            for number, device in enumerate(on_cuda):  # not the same draws on each of them
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed + number)
            yield
    finally:
        torch.default_generator.set_state(before)


def global_states(*devices: torch.device) -> list[bytes]:
    """Where the global generators stand, of the CPU and of these devices."""
    states = [torch.default_generator.get_state()]
    states += [torch.cuda.get_rng_state(d) for d in dict.fromkeys(devices) if d.type == "cuda"]
    return [state.numpy().tobytes() for state in states]


class RestoreTorchModes:
    """A context that puts torch's modes of this thread back if what is done within raises.

    Torch switches a mode on in Python and off in Python. A Ctrl-C between the two, inside
    `torch.no_grad()` or `torch.autocast`, would leave the caller's process without gradients, or
    with an autocast cache that is never cleared.

    Args:
        devices: whose autocast is restored, beside that of the CPU.
    """

    def __init__(self, *devices: torch.device) -> None:
        self._kinds = {"cpu", *(device.type for device in devices)}

    def __enter__(self) -> Self:
        self._gradients = torch.is_grad_enabled()
        self._caches = torch.is_autocast_cache_enabled()
        self._autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in self._kinds
        ]
        self._nesting = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        torch.autocast_increment_nesting()
        while torch.autocast_decrement_nesting() > self._nesting:
            pass
        for device, enabled, dtype in self._autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self._caches)
        torch.set_grad_enabled(self._gradients)
