"""What each run gets of a machine; no torch, which the nodes of a cluster do not need for it."""

import re
from typing import Any, NamedTuple, Self

from peerlearn.errors import UserError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Share(NamedTuple):
    """What each run gets of a machine.

    Args:
        cpu: cores; a run takes at most so many threads.
        gpu: devices, or a part of one.
        memory: bytes; 0: not known.
    """

    cpu: int = 1
    gpu: float = 0.0
    memory: int = 0

    def __str__(self) -> str:
        parts = [f"{self.cpu} cores", f"{self.gpu:g} devices" if self.gpu else ""]
        parts.append(f"{self.memory / 2**30:.3g} GiB of memory" if self.memory else "")
        return " and ".join(part for part in parts if part)

    @classmethod
    def parse(cls, text: str) -> Self:
        """A share as a person writes it.

        >>> Share.parse("cpu=2,gpu=0.25,memory=4G")
        Share(cpu=2, gpu=0.25, memory=4294967296)
        """
        found: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if name not in cls._fields or not equals or name in found:
                raise UserError(f"--per-run: {part!r:.40} is none of cpu=2, gpu=0.25, memory=4G")
            found[name] = _amount(name, value)
        return cls(**found)


def _amount(name: str, text: str) -> float:
    form = {"cpu": r"(\d+)()", "gpu": r"(\d*\.?\d+)()", "memory": r"(\d*\.?\d+)([KMGT]?)(?:i?B)?"}
    match = re.fullmatch(form[name], text)
    number = float(match[1]) * _UNITS[match[2]] if match else 0.0
    lowest, highest = {"cpu": (1, 4096), "gpu": (0.01, 64), "memory": (1, 2**50)}[name]
    if not lowest <= number <= highest:
        raise UserError(f"--per-run: {name}={text!s:.40} must be from {lowest} to {highest}")
    if name == "gpu" and number > 1 and not number.is_integer():
        raise UserError(f"--per-run: gpu={text} must be a part of one device, or whole devices")
    return number if name == "gpu" else int(number)
