"""Leases: one process at a time works in a folder, also where several machines see it.

The owner of a folder holds the file `.lease.<number>` with the highest number there, and touches it
every few seconds. To take a folder over, one makes the file of the next number, which the file
system lets one process do. A lease that was given back is renamed to `.lease.<number>.free`. No
locks of the system are used: over a network many file systems have none that can be relied on.

An owner is taken for dead if its process is gone, which only processes of the same machine can see,
or if its file was not touched for `STALE` seconds by the clock of one who looks on; the clocks
of two machines are never compared. An owner that was only suspended finds out when it wakes: it
holds a lease as long as its file is there and none has a higher number.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

BEAT = 5.0  # seconds between two touches
STALE = 60.0  # seconds without a touch after which an owner is taken for dead
LOOK = 0.5  # seconds between two looks of who waits
TRIES = 5  # to read a file that comes and goes
COARSE = 2_000_000_000  # nanoseconds by which two file systems may round the time of a touch
_NAME, _FREE = ".lease.", ".free"
ENDED = "ended"
_MOST_BYTES = 4096


class Claim(NamedTuple):
    """A lease as others see it.

    Args:
        number: counts the owners of a folder.
        touched: when it was touched last, in nanoseconds of the file system's clock.
        free: whether it was given back.
        owner: host, pid and more of who holds it; empty if it died before it could say so.
    """

    number: int
    touched: int = 0
    free: bool = False
    owner: dict[str, Any] = {}  # noqa: RUF012

    @property
    def seems_alive(self) -> bool:
        """Whether somebody holds it, at a glance; to be shown, not to be relied on."""
        recent = abs(time.time_ns() - self.touched) < STALE * 1e9
        return recent and not self.free and not _gone(self.owner)

    @property
    def mark(self) -> tuple[int, int]:
        """The same for as long as nobody has touched it."""
        return self.number, self.touched

    def has(self, mark: tuple[int, int] | None) -> bool:
        """Whether another process saw this mark, perhaps over another file system."""
        return mark is not None and mark[0] == self.number and abs(mark[1] - self.touched) < COARSE

    def __str__(self) -> str:
        host, pid = self.owner.get("host", "an unknown host"), self.owner.get("pid", "?")
        return f"process {pid} on {host}"


class Watch:
    """Decides which owners are dead, by looking again and again."""

    def __init__(self) -> None:
        # by folder: its mark, when it was first seen, and when last
        self._seen: dict[Path, tuple[tuple[int, int], float, float]] = {}

    def available(self, folder: Path, claim: Claim) -> bool:
        """Whether a lease may be taken over: given back, or its owner is dead."""
        if claim.free or _gone(claim.owner):
            self._seen.pop(folder, None)
            return True
        return self.stale(folder, claim)

    def stale(self, folder: Path, claim: Claim) -> bool:
        """Whether a lease has not been touched for too long.

        Who has not looked for some time, perhaps because it was suspended as the owner was, begins
        anew.
        """
        now = time.monotonic()
        mark, since, last = self._seen.get(folder, (None, now, now))
        if mark != claim.mark or now - last > 2 * BEAT:
            since = now
        self._seen[folder] = (claim.mark, since, now)
        return now - since > STALE


def latest(folder: Path) -> Claim | None:
    """The lease with the highest number; None if there never was one, or no folder."""
    number = 0
    for _ in range(TRIES):
        try:
            found = _numbers(folder)
        except FileNotFoundError:
            return None
        if not found:
            return None
        number = max(found)
        with suppress(FileNotFoundError):  # given back, or removed by the next owner, meanwhile
            return _read(found[number], number)
        time.sleep(LOOK / 10)
    return Claim(number)  # it is listed, and is not there: whoever wants it waits


class Lease:
    """A folder that this process holds; see `leased`."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number
        self._lost, self._looked = False, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    @property
    def doubtful(self) -> bool:
        """Whether it is lost, or was not looked at for some time: the process was suspended."""
        return self._lost or time.monotonic() - self._looked > 2 * BEAT

    def held(self) -> bool:
        """Look whether the folder is still ours; to be asked before something is written."""
        try:
            os.utime(self._path)
            if max(_numbers(self._path.parent), default=0) == self._number:
                self._looked = time.monotonic()
                return True
        except FileNotFoundError:
            pass
        self._lost = True
        return False

    def release(self) -> None:
        """Give it back; the file stays, so that numbers never begin anew."""
        self._over.set()
        self._thread.join()
        with suppress(OSError):  # it was lost, or the disk was: others will find it stale
            os.replace(self._path, f"{self._path}{_FREE}")

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):  # a network that is away for a moment
                if not self.held():
                    return


@contextmanager
def leased(
    folder: Path,
    waiting: Callable[[], None] | None = None,
    dead: tuple[int, int] | None = None,
    look: float = 0.0,
) -> Iterator[Lease]:
    """Hold a folder, waiting for whoever holds it now.

    waiting: called once if another process holds it, before waiting for that one; it may raise.
    dead: the mark of a claim whose owner somebody else has watched for long enough. look: seconds
    between two looks, for what is held for moments only.
    """
    watch, told = Watch(), False
    while True:
        claim = latest(folder)
        if claim is None or claim.has(dead) or watch.available(folder, claim):
            if lease := _take(folder, claim.number + 1 if claim else 1):
                break
        elif not told:
            told = True
            if waiting is not None:
                waiting()
        time.sleep(look or (LOOK if told else LOOK / 10))
    try:
        yield lease
    finally:
        lease.release()


def _take(folder: Path, number: int) -> Lease | None:
    """Become the owner; None if another process was faster."""
    path = folder / f"{_NAME}{number}"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    try:
        os.write(handle, json.dumps(_myself()).encode())
    except OSError:  # a full disk: nobody shall wait for us
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    found = _numbers(folder)
    # while we were making it, another may have had this number and given it back
    if max(found) > number or os.path.lexists(f"{path}{_FREE}"):
        path.unlink(missing_ok=True)
        return None
    for other, old in found.items():
        if other < number:
            with suppress(OSError):  # of another user, in a folder where only owners may remove
                old.unlink()
    return Lease(path, number)


def _numbers(folder: Path) -> dict[int, Path]:
    """The files of all leases in a folder, by number."""
    found = {}
    for name in os.listdir(folder):
        number = name.removeprefix(_NAME).removesuffix(_FREE)
        if name.startswith(_NAME) and number.isdecimal():
            found[int(number)] = folder / name
    return found


def _read(path: Path, number: int) -> Claim:
    free = path.name.endswith(_FREE)
    try:  # NFS asks its server when a file is opened
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except PermissionError:  # of another user, who lets nobody read
        return Claim(number, path.stat().st_mtime_ns, free)
    try:
        touched = os.fstat(handle).st_mtime_ns
        try:
            owner = json.loads(os.read(handle, _MOST_BYTES))
        except (ValueError, RecursionError):
            owner = {}  # died between the two calls that make it
    finally:
        os.close(handle)
    return Claim(number, touched, free, owner if type(owner) is dict else {})


def _myself() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "system": _system(), "started": _started(pid)}


def _gone(owner: dict[str, Any]) -> bool:
    """Whether an owner is known to be dead: a process that would be visible here, and is not."""
    pid = owner.get("pid")
    if not owner.get("system") or owner["system"] != _system() or type(pid) is not int:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        pass
    started = _started(pid)
    return started == ENDED or (bool(started) and started != owner.get("started"))


@cache
def _system() -> str:
    """The boot of the machine, and which of its processes can be seen; "" where not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot; `ENDED`; "" if that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()  # a name may hold anything
    return ENDED if fields[0] in (b"Z", b"X") else fields[19].decode()
