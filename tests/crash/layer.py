"""A layer under the program that counts what it does to a folder's files, and can stop it there."""

import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

CALLS = ("open", "write", "fsync", "replace", "truncate", "ftruncate", "unlink", "mkdir")
WAYS = ("before", "after", "half")  # half: only a write can be dead in the middle


class Layer:
    """Counts the calls of the system that touch a folder, and dies at one of them; for a `with`.

    A process that is killed, unlike a machine without power, loses nothing that it has written: an
    fsync is counted, and not done.

    Args:
        folder: whose files are meant.
        stop: the number of the call at which the process is killed, the first is 1; 0: at none.
        how: one of WAYS.
        stations: functions that are counted with the calls, each as its owner and its name.
    """

    def __init__(
        self,
        folder: Path,
        stop: int = 0,
        how: str = "before",
        stations: Iterable[tuple[Any, str]] = (),
    ) -> None:
        self.folder, self.stop, self.how = str(folder), stop, how
        self.calls: list[str] = []
        self._paths: dict[int, str] = {}  # of the files that are open
        self._patched = [(os, name) for name in (*CALLS, "close")] + list(stations)
        self._real = [getattr(owner, name) for owner, name in self._patched]

    def __enter__(self) -> Self:
        for (owner, name), real in zip(self._patched, self._real, strict=True):
            if owner is not os:
                wrapped = _function(partial(self._station, f"{owner.__name__}.{name}", real))
            elif name == "close":
                wrapped = partial(self._close, real)
            else:
                wrapped = partial(self._call, name, real)
            setattr(owner, name, wrapped)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        for (owner, name), real in zip(self._patched, self._real, strict=True):
            setattr(owner, name, real)

    def _call(self, name: str, real: Any, target: Any, *rest: Any, **named: Any) -> Any:
        path = self._paths.get(target) if isinstance(target, int) else os.fspath(target)
        if path is None or not path.startswith(self.folder):
            return real(target, *rest, **named)
        self.calls.append(f"{name} {os.path.relpath(path, self.folder)}")
        here = len(self.calls) == self.stop
        if here and self.how == "half":
            real(target, rest[0][: len(rest[0]) // 2])
        if here and self.how != "after":
            _die()
        try:
            result: Any = None if name == "fsync" else real(target, *rest, **named)
        finally:
            if here:
                _die()
        if name == "open":
            self._paths[result] = path
        return result

    def _close(self, real: Any, handle: int) -> None:
        self._paths.pop(handle, None)
        real(handle)

    def _station(self, name: str, real: Any, *given: Any, **named: Any) -> Any:
        self.calls.append(f"call {name}")
        here = len(self.calls) == self.stop
        if here and self.how == "before":
            _die()
        result = real(*given, **named)
        if here:
            _die()
        return result


def _function(call: Any) -> Any:
    """As a plain function, which a class binds to its objects."""
    return lambda *given, **named: call(*given, **named)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(1)
