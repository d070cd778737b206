"""Versions, machine and command of a run."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from peerlearn import __version__
from peerlearn.experiment.machine import Threads


def environment(threads: Threads, device: str, data: str) -> dict[str, Any]:
    """Versions, machine and command of this process, and where its images lie."""
    return {
        "peerlearn": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": threads.total,
        "peer_threads": threads.each,
        "device": device,
        "data": data,
        "commit": _commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _commit() -> str | None:
    """The commit of the sources, if they lie in a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
