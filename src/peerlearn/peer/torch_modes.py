"""Torch's modes of a thread: whether it records gradients, whether and how it autocasts."""

from typing import Self

import torch


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
