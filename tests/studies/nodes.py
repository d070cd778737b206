"""A Ray cluster of two nodes on this machine, on loopback only."""

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from peerlearn.studies.cluster import LOOPBACK, QUIET

# Ray looks at these once, when it is imported
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def two_nodes(cpus: int, gpus: int = 0) -> Iterator[str]:
    """Start them, each with so many declared cores and devices; the address of the head."""
    before = dict(os.environ)
    # short: the names of sockets lie in it, and may have 107 letters
    place = Path(tempfile.mkdtemp(prefix="ray"))
    os.environ.update({**LOOPBACK, **QUIET, **TOKEN, "RAY_TMPDIR": str(place)})
    os.environ.pop("RAY_ADDRESS", None)
    from ray.cluster_utils import Cluster

    options = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": 100_000_000}
    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(**options, include_dashboard=False)
        yield cluster.address
    finally:
        cluster.shutdown()
        kill_nodes(place)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(place, ignore_errors=True)


def lose_a_node() -> None:
    """Kill the younger of the nodes with all that runs on it."""
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in _processes()}
    lost = [max(pid for pid, name in names.items() if name == "raylet")]
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in names}
    for pid in lost:
        lost += [child for child, parent in parents.items() if parent == pid]
    for pid in lost:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def lose_the_head() -> None:
    """Kill the process by which the nodes know of each other."""
    for pid in _processes():
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "gcs_server":
                os.kill(pid, signal.SIGKILL)


def ray_workers() -> list[int]:
    """The processes of the cluster in which our function is at work."""
    found = []
    for pid in _processes():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::on_node"):
                found.append(pid)
    return found


def kill_nodes(place: Path) -> None:
    """End every process of a cluster whose files lie there, and no other."""
    for pid in _processes(place):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _processes(place: Path | None = None) -> list[int]:
    """All processes of a cluster, by where its files lie."""
    own = f"RAY_TMPDIR={place or os.environ['RAY_TMPDIR']}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            pid = int(path.parent.name)
            if pid != os.getpid() and own in path.read_bytes().split(b"\0"):
                found.append(pid)
    return found
