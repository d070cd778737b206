"""The process: settings that decide speed and no number, and what it has used."""

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_THREADS = torch.get_num_threads()  # before anybody changes it
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # from glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the next step instead of handing it back.

    Every step frees and allocates the same activations. Handed back to the system, each of their
    pages is zeroed and mapped anew in every step, which for the large batches of OCM and OnPro
    takes longer than the arithmetic. Threads share one store, for those of their own are always
    handed back. Acts on the whole process; returns whether it could be done (glibc only).
    """
    mallopt = _from_libc("mallopt")
    wanted = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_ARENA_MAX: 1}
    return mallopt is not None and all(mallopt(*one) for one in wanted.items())


def available_threads() -> int:
    """How many threads torch takes by itself on this machine, within the quota of a container."""
    with suppress(OSError, ValueError):  # without a quota it says "max"
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(_THREADS, -(-int(quota) // int(period))))
    return _THREADS


def reset_peak_memory() -> None:
    """Hand back freed memory and begin to measure the peak anew, where the system can (Linux)."""
    trim = _from_libc("malloc_trim")
    if trim is not None:
        trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak then is that of the whole process


def peak_memory() -> int:
    """The most memory that the process has held since the last reset, in bytes; 0 if unknown.

    Known on Linux and macOS, not on Windows.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        if resource is None:
            return 0
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peaks[0]) * 1024 if peaks else 0


def free_memory() -> int | None:
    """Bytes that the process may still take, by the system and by a container; None if unknown."""
    found = []
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    with suppress(OSError, ValueError):  # without a limit it says "max"
        limit, used = (Path(f"/sys/fs/cgroup/memory.{n}").read_text() for n in ("max", "current"))
        found.append(int(limit) - int(used) + _reclaimable())
    return min(found, default=None)


def _reclaimable() -> int:
    """Bytes of a container that hold files and are given up when somebody needs them."""
    lines = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def child_environment() -> dict[str, str]:
    """The environment of a child process that can import what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}


def _from_libc(name: str) -> Callable[..., int] | None:
    """A function of the C library; None where the system's has none of this name."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    found: Callable[..., int] | None = getattr(library, name, None)
    return found
