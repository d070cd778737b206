"""A process for each run: started, listened to, asked to stop, and judged by how it ended."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from peerlearn.files import write_file

How = Literal["done", "stopped", "busy", "failed", "memory", "died"]
# exit codes that nobody else's code is likely to choose; all others: failed
CODES: dict[int, How] = {0: "done", 83: "memory", 84: "busy", 130: "stopped"}
WORKER = (sys.executable, "-m", "peerlearn.studies.worker")
LAST_WORDS = 1.0  # seconds in which what a process has said is still read when it has ended
TAIL = 50  # lines that are kept of what a process says
# all that a run may have in its folder, for those that are brought from elsewhere
_FILES = re.compile(
    r"(config\.yaml|(environment|accuracy|summary)\.json|steps\.jsonl"
    r"|checkpoint/(state\.json|tensors-[01]\.safetensors))"
)


class Ended(NamedTuple):
    """How a process ended.

    Args:
        how: done; stopped, because it was asked to; busy, because another process has the run;
            failed, with an error that would come again; memory, which did not suffice; died.
        said: its last lines.
        seconds: that it took.
        host: where it was.
        files: of the run's folder, if they are to be brought back.
    """

    how: How
    said: tuple[str, ...] = ()
    seconds: float = 0.0
    host: str = ""
    files: Mapping[str, bytes] | None = None

    @property
    def last_line(self) -> str:
        """The last line that it said."""
        return next((line.strip() for line in reversed(self.said) if line.strip()), "")


class Child:
    """A process that works on one run, and saves and stops when this one asks it to or dies.

    Args:
        spec: see `Job.spec`; goes to its standard input, which stays open as a sign of life.
        command: that is started.
        threads: its share of the cores.
        extra: further variables of its environment.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        command: Sequence[str] = WORKER,
        threads: int = 1,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.started = time.monotonic()
        self.stopped = False
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= {"OMP_NUM_THREADS": str(threads), **(extra or {})}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us, who then ask it to stop
            text=True,
            errors="replace",
        )
        with suppress(OSError):  # it died at once; how, will be seen
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({**spec, "share": threads}) + "\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait(self) -> Ended:
        """Listen until it ends."""
        tail: deque[str] = deque(maxlen=TAIL)
        listener = threading.Thread(target=self._listen, args=(tail,), daemon=True)
        listener.start()
        code = self._process.wait()
        listener.join(LAST_WORDS)  # a process of its own may hold the other end for ever
        self._close()
        seconds = time.monotonic() - self.started
        how = CODES.get(code, "failed") if code >= 0 else "died"
        if how == "died":
            why = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
            tail.append(f"ended by {_signal(-code)}{why}")
            if self.stopped:  # before it could save; nothing was lost that had been saved
                how = "stopped"
        return Ended(how, tuple(tail), seconds, socket.gethostname())

    def _listen(self, tail: deque[str]) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                tail.append(line.rstrip("\n"))

    def stop(self, *, now: bool = False) -> None:
        """Ask it to save and stop; a second time, or now, end it with all that it started."""
        if self.stopped or now:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.stopped = True
        self._close()

    def _close(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()


def lifeline() -> dict[str, Any]:
    """In the process itself: what it was sent; from now on it stops when its parent does."""
    spec: dict[str, Any] = json.loads(sys.stdin.readline())

    def listen() -> None:
        with suppress(OSError, ValueError):
            sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)  # saves and stops a run that is under way

    threading.Thread(target=listen, name="lifeline", daemon=True).start()
    return spec


def carried(folder: Path, *, whole: bool) -> dict[str, bytes]:
    """The files of a run, by their names. whole: with its checkpoint."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if _FILES.fullmatch(name) and (whole or not name.startswith("checkpoint/")):
            found[name] = path.read_bytes()
    return found


def lay_out(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a run that comes from elsewhere; the summary last, which says it is done.

    state.json comes before it: it is what makes a checkpoint valid.
    """
    late = ("checkpoint/state.json", "summary.json")
    for name in sorted(files, key=lambda name: (name in late and late.index(name) + 1, name)):
        if _FILES.fullmatch(name):  # nothing else, wherever its name leads
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.new")
            write_file(draft, files[name])
            os.replace(draft, path)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
