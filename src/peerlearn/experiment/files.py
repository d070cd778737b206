"""What a run leaves on disk, each file replaced as a whole."""

import dataclasses
import fcntl
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from peerlearn.errors import UserError
from peerlearn.experiment.settings import (
    DATA,
    MACHINE,
    SCHEMA,
    Resolved,
    Settings,
    differences,
)
from peerlearn.runtime import available_threads


class RunFolder:
    """The folder of one run: runs/<data>/<method>/m<memory>/seed<k>."""

    def __init__(self, out: Path, settings: Settings) -> None:
        data = settings.data if settings.data in DATA else Path(settings.data).resolve().name
        place = (data, settings.method, f"m{settings.memory}", f"seed{settings.seed}")
        self.path = out.joinpath(*place)
        self.checkpoint = self.path / "checkpoint"
        self.steps = self.path / "steps.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; freed by the system when this one ends, however it does."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be written ({error.strerror}); choose another --out"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"{self.path}: another process is working on this run; wait for it, or "
                    "choose another --out"
                ) from None
            yield

    def read(self, name: str) -> Any:
        """A JSON or YAML file of the run, None if it is not there."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            text = path.read_text()
            return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(
                f"{path}: cannot be read ({error}); remove {self.path} to begin this run anew"
            ) from error

    def write(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        """Replace a file as a whole; a crash leaves the old one. Returns what it now holds."""
        content = _without_nan(content)
        if name.endswith(".yaml"):
            text = yaml.safe_dump(content, sort_keys=False)
        else:
            text = json.dumps(content, indent=1) + "\n"
        draft = self.path / f".{name}.new"
        try:
            with draft.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path / name)
        except OSError as error:
            raise self.unwritable(name, error) from error
        return content

    def unwritable(self, name: str, error: OSError) -> UserError:
        """What to say when a file cannot be written."""
        return UserError(
            f"{self.path / name}: cannot be written ({error.strerror}); free some space or "
            "choose another --out, and start the same command again"
        )

    def finished(self, wanted: Resolved) -> dict[str, Any] | None:
        """The summary of this run if it has come to its end, with the same settings."""
        self.settle(wanted)
        found = self.read("summary.json")
        done = isinstance(found, dict) and found.get("status") == "done"
        return found if done else None

    def claim(self, wanted: Resolved, data: str) -> Settings:
        """Write the settings of a new run; for an old one, see that it began with the same data.

        data: a fingerprint of the images. Returns the settings to use.
        """
        settings = self.settle(wanted)
        found = self.read("config.yaml")
        if found is None:
            content = {"schema": SCHEMA, "settings": dataclasses.asdict(settings)}
            self.write("config.yaml", content | {"origins": wanted.origins, "fingerprint": data})
        elif found.get("fingerprint") != data:
            raise UserError(
                f"{self.path}: holds a run on other images of {settings.data}; choose another "
                "--out, or remove that folder"
            )
        return settings

    def settle(self, wanted: Resolved) -> Settings:
        """The settings to use; those of a run that is there already must be the same.

        A run that is resumed keeps the device and threads with which it began, unless a flag gives
        others.
        """
        found = self.read("config.yaml")
        if found is None:
            return _with_threads(wanted.settings)
        theirs = found.get("settings", {}) if isinstance(found, dict) else {}
        differ = differences(wanted.settings, theirs)
        if differ:
            raise UserError(
                f"{self.path}: holds a run with other settings: {'; '.join(differ)}. Choose "
                "another --out, or remove that folder"
            )
        kept = {
            name: theirs[name]
            for name in MACHINE
            if name in theirs and wanted.origins[name] == "default"
        }
        return _with_threads(dataclasses.replace(wanted.settings, **kept))


def _with_threads(settings: Settings) -> Settings:
    """0 threads stand for as many as the machine offers; a run records how many that was."""
    if settings.threads < 0:
        raise UserError(f"--threads: must be 0 (all) or more, got {settings.threads}")
    return dataclasses.replace(settings, threads=settings.threads or available_threads())


def environment(threads: int, device: str) -> dict[str, Any]:
    """Versions, machine and command of this process."""
    import torch

    from peerlearn import __version__

    return {
        "peerlearn": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": threads,
        "device": device,
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


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: None stands for what is not defined."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return value
