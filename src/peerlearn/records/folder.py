"""The folder of one run: the only place that writes its files."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from peerlearn.errors import UserError
from peerlearn.files import Log, Unreadable, from_json, read_bytes, read_text, replace_file
from peerlearn.leases import Lease, leased
from peerlearn.records.document import MissingError
from peerlearn.records.read import read_config, read_finished
from peerlearn.records.schema import ACCURACY_SCHEMA, SCHEMA, Config, Summary, without_nan
from peerlearn.settings import nest

LONGEST = 120  # characters of a variant's folder
LONGEST_NAME = 255  # of any folder


class Identity(Protocol):
    """What tells one run from another."""

    @property
    def data(self) -> str:
        """The data set."""

    @property
    def method(self) -> str:
        """The method, and after a plus its wrapper."""

    @property
    def memory(self) -> int:
        """Images kept for replay."""

    @property
    def seed(self) -> int:
        """The seed."""

    @property
    def variant(self) -> Mapping[str, Any]:
        """The settings that differ from the preset, by short names."""


def run_path(out: Path, run: Identity) -> Path:
    """The folder of a run: out/<data>/<method>/m<memory>[/<variant>]/seed<k>."""
    levels = [_safe(run.data), _safe(run.method), f"m{run.memory}"]
    levels += [variant_name(run.variant)] if run.variant else []
    return out.joinpath(*levels, f"seed{run.seed}")


def variant_name(variant: Mapping[str, Any]) -> str:
    """The settings of a variant as the name of a folder.

    >>> variant_name({"lr": 0.01, "stages": 2})
    'lr=0.01,stages=2'
    """
    exact = ",".join(f"{name}={shown(value)}" for name, value in variant.items())
    safe = re.sub(r"[^A-Za-z0-9._=,+-]", "-", exact)
    return safe if safe == exact and len(safe) <= LONGEST else _shortened(safe, exact)


def _shortened(safe: str, exact: str) -> str:
    """A name that is not too long, and still another one than what now looks alike."""
    digest = hashlib.sha256(exact.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{safe[: LONGEST - 9]}~{digest}"


def shown(value: Any) -> str:
    """A setting's value in a few characters."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, list | tuple):
        return "+".join(map(shown, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _safe(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9._+-]", "-", name)
    if len(safe) >= LONGEST_NAME:
        return _shortened(safe, name)
    return safe if safe.strip(".") else f"_{safe}"


class RunFolder:
    """A run's files, each replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.steps = path / "steps.jsonl"
        self.probes = path / "probes.jsonl"

    @contextmanager
    def locked(
        self, waiting: Callable[[], None], dead: tuple[int, int] | None = None
    ) -> Iterator[Lease]:
        """Keep other processes out, also those of other machines; see `leases`.

        waiting: called once if another process is at work here, before waiting for it; may raise.
        dead: as in `leased`.
        """
        with ExitStack() as held:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"{self.path}: cannot be written ({error.strerror}); choose another --out"
                ) from error
            try:
                lease = held.enter_context(leased(self.path, waiting, dead))
            except OSError as error:
                raise UserError(
                    f"{self.path}: cannot be locked ({error.strerror}); choose another --out"
                ) from error
            yield lease

    def config(self) -> Config | None:
        """What config.yaml says, None if it is not there."""
        try:
            return read_config(self.path)
        except MissingError:
            return None

    def finished(self, tasks: int) -> Summary | None:
        """What summary.json says of a run that came to its end, None for any other.

        A run that says so and has not all its accuracies is damaged; its checkpoint, which has
        them, makes it one that can be finished again.
        """
        try:
            return read_finished(self.path, tasks)
        except UserError:
            if self.has_checkpoint:
                return None
            raise

    @property
    def has_results(self) -> bool:
        """Whether a run has begun here."""
        return self.has_checkpoint or os.path.lexists(self.path / "summary.json")

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to go on from."""
        return os.path.lexists(self.checkpoint / "state.json")

    def summary_as_written(self) -> dict[str, Any]:
        """All of summary.json, for programs."""
        content: dict[str, Any] = from_json(read_text(self.path / "summary.json"))
        return content

    def write_config(self, config: Config) -> None:
        """Write the settings of a new run."""
        content = config.model_dump()
        content["settings"], content["schema"] = nest(content["settings"]), SCHEMA
        text = yaml.safe_dump({"schema": SCHEMA, **without_nan(content)}, sort_keys=False)
        self._write("config.yaml", text)

    def write_summary(
        self,
        config: Config,
        status: str,
        *,
        metrics: Mapping[str, Any],
        peers: Sequence[Mapping[str, Any]] = (),
        ncm: Mapping[str, Any] | None = None,
        answers: Mapping[str, Mapping[str, Any]] | None = None,
        along: Mapping[str, int] | None = None,
        cost: Mapping[str, Any],
        memory_classes: Sequence[Sequence[int]] = (),
    ) -> dict[str, Any]:
        """Write where the run stands; returns what the file now holds."""
        more = {name: v for name, v in (("answers", answers), ("along", along)) if v}
        return self._write_json("summary.json", {
            "schema": SCHEMA, "status": status, "data": config.data, "method": config.method,
            "memory": config.memory, "seed": config.seed, "variant": config.variant, **metrics,
            "peers": peers, "ncm": ncm, **more, "cost": cost, "memory_classes": memory_classes,
        })  # fmt: skip

    def write_accuracy(
        self,
        class_names: Sequence[str],
        classes_per_task: int,
        matrices: Mapping[str, Any],
        task_sizes: Sequence[int] = (),
    ) -> None:
        """Write the matrices: "ensemble", "peers", "ncm" and, of slow copies, "answers".

        task_sizes: classes at home in each task, where tasks differ in that.
        """
        head = {"class_names": class_names, "classes_per_task": classes_per_task}
        head |= {"task_sizes": list(task_sizes)} if task_sizes else {}
        self._write_json("accuracy.json", {"schema": ACCURACY_SCHEMA, **head, **matrices})

    def write_environment(self, facts: Mapping[str, Any]) -> None:
        """Write versions, machine and command."""
        self._write_json("environment.json", facts)

    def log(
        self, file: Log, batch: int, task: int, losses: Mapping[str, Any], seconds: float
    ) -> None:
        """Add a line to steps.jsonl, which the caller holds open."""
        line = {"batch": batch, "task": task, "losses": losses, "seconds": seconds}
        file.add(json.dumps(without_nan(line)))

    def log_probe(
        self, file: Log, batch: int, task: int, start: int, found: Mapping[str, Any]
    ) -> None:
        """Add a line to probes.jsonl, which the caller holds open."""
        file.add(json.dumps(without_nan({"batch": batch, "task": task, "start": start, **found})))

    def truncate_log(self, size: int) -> None:
        """Forget what was logged after the log had this size, and a line that was cut off."""
        self._truncate(self.steps, size)

    def truncate_probes(self, size: int) -> None:
        """The same for probes.jsonl."""
        self._truncate(self.probes, size)

    def _truncate(self, path: Path, size: int) -> None:
        try:
            if path.is_symlink():  # none of ours: it may lead anywhere
                raise Unreadable("is a link")
            whole = read_bytes(path).rfind(b"\n", 0, size) + 1
            os.truncate(path, whole)
        except FileNotFoundError:
            return
        except Unreadable as error:
            raise UserError(f"{path}: {error}; move it away") from None
        except OSError as error:
            raise self.unwritable(path.name, error) from error

    def _write_json(self, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = without_nan(content)
        self._write(name, json.dumps(plain, indent=1) + "\n")
        return plain

    def _write(self, name: str, text: str) -> None:
        try:
            replace_file(self.path / name, text)
        except OSError as error:
            raise self.unwritable(name, error) from error

    def unwritable(self, name: str, error: OSError) -> UserError:
        """What to say when a file cannot be written."""
        return UserError(
            f"{self.path / name}: cannot be written ({error.strerror}); free some space or "
            "choose another --out, and start the same command again"
        )
