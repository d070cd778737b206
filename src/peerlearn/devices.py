"""Devices: how tensors come from one to another."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

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
