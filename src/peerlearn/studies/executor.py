"""What carries jobs out: the interface, and processes of this machine."""

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Protocol

from peerlearn.errors import UserError
from peerlearn.runtime import available_threads, free_memory
from peerlearn.studies.process import WORKER, Child, Ended
from peerlearn.studies.share import Share

LEAST_MEMORY = 600 << 20  # bytes that a run takes, of which nothing is known: torch and a small net


class Executor(Protocol):
    """Carries jobs out, side by side, each in a process of its own."""

    jobs: int  # at once, as far as is known

    def room(self) -> bool:
        """Whether another job can be started now."""

    def start(self, key: str, spec: Mapping[str, Any]) -> None:
        """Begin a job. key: by which it is known. spec: see `Job.spec`."""

    def ended(self, seconds: float) -> dict[str, Ended]:
        """Those that have ended since the last call, by key; waits so long for the first."""

    def stop(self, key: str, *, now: bool = False) -> None:
        """Ask a job to save and stop, or end it now; it ends as any other."""

    def close(self) -> None:
        """No more jobs are to come; those under way end at once, what they have saved stays."""


class Processes:
    """Processes of this machine.

    Args:
        jobs: at once, at most; 0: as many as cores, devices and memory bear.
        share: of each.
        command: that does a job.
        devices: that can be shared out.
    """

    def __init__(
        self,
        jobs: int = 0,
        share: Share | None = None,
        command: Sequence[str] = WORKER,
        devices: int = 0,
    ) -> None:
        self.share = share or Share()
        self.jobs = jobs or max(available_threads() // self.share.cpu, 1)
        self._command = command
        self._devices = _slots(self.share.gpu, devices)
        if self._devices:
            self.jobs = min(self.jobs, len(self._devices))
        self._children: dict[str, Child] = {}
        self._device: dict[str, str] = {}
        self._futures: dict[Future[Ended], str] = {}
        self._pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="child")
        self._peak = self.share.memory or LEAST_MEMORY

    def __str__(self) -> str:
        threads = f"{self.share.cpu} thread{'s' if self.share.cpu > 1 else ''} each"
        return f"{self.jobs} at once on this machine, {threads}"

    def room(self) -> bool:
        """Whether there is a core for another run, and as much memory as the largest has taken.

        What those under way have not taken yet is theirs as well.
        """
        if len(self._futures) >= self.jobs:
            return False
        held = [_memory_of(child.pid) for child in self._children.values()]
        self._peak = max([self._peak, *(peak for _, peak in held)])
        promised = sum(max(self._peak - now, 0) for now, _ in held)
        free = free_memory()
        return not self._futures or free is None or free - promised > self._peak

    def start(self, key: str, spec: Mapping[str, Any]) -> None:
        """Begin a job."""
        device = self._devices[0] if self._devices else ""
        extra = {"CUDA_VISIBLE_DEVICES": device} if device else {}
        child = Child(spec, self._command, self.share.cpu, extra)
        if device:
            self._device[key] = self._devices.pop(0)
        self._children[key] = child
        self._futures[self._pool.submit(child.wait)] = key

    def ended(self, seconds: float) -> dict[str, Ended]:
        """Those that have ended."""
        done, _ = wait(self._futures, seconds, FIRST_COMPLETED)
        found = {}
        for future in done:
            key = self._futures.pop(future)
            del self._children[key]
            if key in self._device:
                self._devices.append(self._device.pop(key))
            found[key] = future.result()
        return found

    def stop(self, key: str, *, now: bool = False) -> None:
        """Ask a job to save and stop, or end it now."""
        if key in self._children:
            self._children[key].stop(now=now)

    def close(self) -> None:
        """End all that is left."""
        for child in self._children.values():
            child.stop(now=True)
        self._pool.shutdown()


def _slots(gpu: float, devices: int) -> list[str]:
    """Which devices each of the runs that fit sees: one slot for each, those of a device apart."""
    if not gpu:
        return []
    if devices < gpu:
        raise UserError(f"--per-run: gpu={gpu:g}, and {devices} are here; take less, or --ray")
    if gpu > 1:
        whole = int(gpu)
        return [
            ",".join(map(str, range(first, first + whole)))
            for first in range(0, devices - whole + 1, whole)
        ]
    return [str(device) for _ in range(int(1 / gpu + 1e-9)) for device in range(devices)]


def _memory_of(pid: int) -> tuple[int, int]:
    """What memory a process holds now, and held at the most, in bytes; 0 if unknown."""
    found = {"VmRSS": 0, "VmHWM": 0}
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for name, _, rest in (line.partition(":") for line in file):
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]
