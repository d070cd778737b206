"""Jobs: a run as it is sent to a process, on this machine or another."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from peerlearn import __version__
from peerlearn.data import DATASETS
from peerlearn.experiment.resolve import PRECISION, Given, Resolved, resolve
from peerlearn.files import user_path
from peerlearn.records.folder import RunFolder, run_path, variant_name
from peerlearn.studies.grid import Wish
from peerlearn.units import printable


class Place(NamedTuple):
    """What all jobs of a sweep share.

    Args:
        out: the folder of all runs.
        root: where data sets lie, if not in the usual places.
        plugins: files of others.
    """

    out: Path
    root: Path | None = None
    plugins: Sequence[Path] = ()


@dataclass(frozen=True)
class Job:
    """A run that is to be finished.

    Args:
        wish: what was asked for, and all its settings.
        place: where its files go and come from.
    """

    wish: Wish
    place: Place

    @property
    def run(self) -> Resolved:
        """All its settings."""
        return self.wish.run

    @property
    def key(self) -> str:
        """Its folder below that of all runs."""
        return run_path(Path(), self.run).as_posix()

    @property
    def folder(self) -> RunFolder:
        """Its files."""
        return RunFolder(self.place.out / self.key)

    @property
    def label(self) -> str:
        """The run in a few words."""
        run = self.run
        variant = f" {variant_name(run.variant)}" if run.variant else ""
        return printable(f"{run.method} {run.data} m{run.memory}{variant} seed {run.seed}")

    def spec(self) -> dict[str, Any]:
        """All that another process needs to know, as JSON can hold it."""
        auto = any(item.value == "auto" and "precision" in item.name for item in self.wish.given)
        return {
            "version": __version__,
            "key": self.key,
            "method": _absolute(self.wish.method),
            "given": [[*_portable(item)] for item in self.wish.given],
            "seed": self.wish.seed,
            "precision": self.run.values[PRECISION] if auto else None,
            "out": str(self.place.out.absolute()),
            "root": str(self.place.root.absolute()) if self.place.root else None,
            "plugins": [str(path.absolute()) for path in self.place.plugins],
            "command": sys.argv,  # for the record of the run
        }


def _portable(item: Given) -> Given:
    """A setting as every process understands it, wherever it works."""
    if item.name.replace("-", "_") != "data":
        return item._replace(value=_absolute(item.value))
    if str(item.value) in DATASETS:
        return item
    return item._replace(value=str(user_path(str(item.value)).absolute()))


def _absolute(value: Any) -> Any:
    """A part that is named by its file, file.py:Mine, with the whole path of that."""
    place, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return f"{user_path(place).absolute()}:{name}" if place.endswith(".py") else value


def resolved(spec: Mapping[str, Any]) -> Resolved:
    """The run that a job's `spec` means."""
    given = [Given(*item) for item in spec["given"]]
    run = resolve(spec["method"], given, seed=spec["seed"])
    return run.with_precision(spec["precision"]) if spec["precision"] else run
