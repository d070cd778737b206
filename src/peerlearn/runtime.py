"""The process: settings that decide speed and no number, and what it has used."""

import ctypes
import resource
import sys
from pathlib import Path

import torch

_THREADS = torch.get_num_threads()  # before anybody changes it
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the next step instead of handing it back.

    Every step frees and allocates the same activations. Handed back to the system, each of their
    pages is zeroed and mapped anew in every step, which for the large batches of OCM and OnPro
    takes longer than the arithmetic. Acts on the whole process; returns whether it could be done
    (glibc only).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))


def available_threads() -> int:
    """How many threads torch takes by itself on this machine."""
    return _THREADS


def reset_peak_memory() -> None:
    """Hand back freed memory and begin to measure the peak anew, where the system can (Linux)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform != "win32" else None
    if trim is not None:
        trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak then is that of the whole process


def peak_memory() -> int:
    """The most memory that the process has held since the last reset, in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peaks[0]) * 1024 if peaks else 0
