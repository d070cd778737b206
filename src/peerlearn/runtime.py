"""Settings of the process that decide speed and no number."""

import ctypes
import sys

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
