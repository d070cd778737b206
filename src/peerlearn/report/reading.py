"""Run folders, read without torch: what a report shows, checked file by file."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from peerlearn.errors import UserError

Matrix = tuple[tuple[float, ...], ...]  # row i: accuracies on tasks 0 to i after task i
Metrics = Mapping[str, float | None]

SCHEMA = 1
METRICS = ("AA", "LA", "FM", "RF", "BWT", "anytime")
STATUSES = ("running", "done", "failed")
METHOD_ORDER = ("er", "derpp", "er_ace", "ocm", "gsa", "onpro")
DEEPEST_SETTING = 3  # lists within lists; also keeps aliases in a doctored file from exploding


class Step(NamedTuple):
    """One logged step: its position in the stream and its losses by name."""

    batch: int
    losses: Mapping[str, float]


class Cost(NamedTuple):
    """What a run took; None where it was not measured."""

    forward_per_image: float | None = None
    backward_per_image: float | None = None
    train_seconds: float | None = None
    eval_seconds: float | None = None
    peak_bytes: float | None = None
    kept_bytes: float | None = None  # images, extras and networks together


NO_COST = Cost()
MEASURED = (
    "forward_per_image",
    "backward_per_image",
    "train_seconds",
    "eval_seconds",
    "peak_bytes",
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run folder. Accuracies and metrics are in [0, 1]; None is "not defined"."""

    folder: Path
    data: str
    method: str
    memory: int
    seed: int
    status: str
    metrics: Metrics
    peer_metrics: tuple[Metrics, ...] = ()
    ncm_metrics: Metrics | None = None
    cost: Cost = NO_COST
    class_names: tuple[str, ...] = ()
    classes_per_task: int = 1
    ensemble: Matrix = ()
    memory_classes: tuple[tuple[int, ...], ...] = ()
    steps: tuple[Step, ...] = ()
    settings: Mapping[str, Any]
    origins: Mapping[str, str]
    environment: Mapping[str, Any]

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return self.status == "done"

    @property
    def accuracy_over_stream(self) -> list[float]:
        """AA after each task reached."""
        return [math.fsum(row) / len(row) for row in self.ensemble]

    def classes_of(self, task: int) -> str:
        """Return the names of a task's classes, in one line."""
        first = task * self.classes_per_task
        return ", ".join(self.class_names[first : first + self.classes_per_task])


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation, None for a single value.

    >>> mean_std([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def method_key(method: str) -> tuple[int, str, int, str]:
    """Sort key: the six methods as in the paper, each followed by its CCL-DC and the rest."""
    base, plus, extra = method.partition("+")
    place = METHOD_ORDER.index(base) if base in METHOD_ORDER else len(METHOD_ORDER)
    return place, base, (1 if extra == "ccldc" else 2) if plus else 0, extra


def read_runs(root: Path) -> list[Run]:
    """Return every run under `root`, sorted by data, memory, method and seed."""
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give the folder that `peerlearn run --out` wrote")
    files = root.rglob("summary.json")  # a run that is just starting has none yet
    folders = {file.parent for file in files if file.resolve().parent.name.startswith("seed")}
    if not folders:
        raise UserError(
            f"{root}: no runs in this folder; make some with `peerlearn run er er+ccldc "
            f"--data mini --memory 200 --out {root}`"
        )
    runs = [read_run(folder) for folder in folders]
    return sorted(runs, key=lambda r: (r.data, r.memory, method_key(r.method), r.seed, r.folder))


def read_run(folder: Path) -> Run:
    """Return the run that `folder` holds; one that has not finished may lack accuracies."""
    summary = _File(folder / "summary.json").checked()
    status = summary.text("status")
    if status not in STATUSES:
        raise summary.damaged(f"status is {status!r}, not one of {', '.join(STATUSES)}")
    config = _File(folder / "config.yaml").checked()
    accuracy = _File(folder / "accuracy.json", optional=status != "done")
    if accuracy.content:
        accuracy.checked()
    cost = summary.mapping("cost", optional=status != "done")
    kept = _mapping_or_empty(cost.get("kept_bytes"))
    kept_bytes = [summary.number(f"kept_bytes.{name}", value) for name, value in kept.items()]
    settings = config.mapping("settings")
    if _deeper_than(DEEPEST_SETTING, settings):
        raise config.damaged("a setting is nested too deeply")
    ncm = summary.content.get("ncm")
    return Run(
        folder=folder,
        data=summary.text("data"),
        method=summary.text("method"),
        memory=summary.whole("memory"),
        seed=summary.whole("seed"),
        status=status,
        metrics=_metrics(summary, summary.content),
        peer_metrics=tuple(_metrics(summary, peer) for peer in summary.items("peers")),
        ncm_metrics=None if ncm is None else _metrics(summary, ncm),
        cost=Cost(
            **{name: summary.number(name, cost.get(name)) for name in MEASURED},
            kept_bytes=sum(b for b in kept_bytes if b is not None) if kept_bytes else None,
        ),
        class_names=tuple(str(name) for name in accuracy.items("class_names")),
        classes_per_task=accuracy.whole("classes_per_task") if accuracy.content else 1,
        ensemble=_matrix(accuracy, accuracy.items("ensemble")),
        memory_classes=tuple(_counts(summary, row) for row in summary.items("memory_classes")),
        steps=_steps(folder / "steps.jsonl", optional=status != "done"),
        settings={str(name): value for name, value in settings.items()},
        origins={str(k): str(v) for k, v in config.mapping("origins", optional=True).items()},
        environment=_File(folder / "environment.json", optional=status != "done").content,
    )


class _File:
    """A JSON or YAML mapping that reports its faults with its path and what to do."""

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        self.path = path
        self.content: dict[str, Any] = {}
        try:
            text = path.read_text(encoding="utf-8")
            content = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
        except FileNotFoundError:
            if optional:
                return
            raise self.damaged("the file is missing") from None
        except (ValueError, RecursionError, yaml.YAMLError):
            raise self.damaged("the file is damaged") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; make it readable") from None
        if not isinstance(content, dict):
            raise self.damaged("the file holds no mapping")
        self.content = content

    def damaged(self, what: str) -> UserError:
        return _damaged(self.path, what)

    def checked(self) -> "_File":
        schema = self.content.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise UserError(
                f"{self.path}: schema {schema} is newer than {SCHEMA}; update peerlearn"
            )
        if schema != SCHEMA:
            raise self.damaged(f"schema is {schema!r}, not {SCHEMA}")
        return self

    def text(self, name: str) -> str:
        value = self.content.get(name)
        if not isinstance(value, str):
            raise self.damaged(f"{name} is {value!r:.60}, not a text")
        return value

    def whole(self, name: str) -> int:
        value = self.content.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.damaged(f"{name} is {value!r:.60}, not a whole number")
        return value

    def number(self, name: str, value: object) -> float | None:
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.damaged(f"{name} is {value!r:.60}, not a number")
        return float(value) if math.isfinite(value) else None

    def items(self, name: str) -> list[Any]:
        value = self.content.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.damaged(f"{name} is {value!r:.60}, not a list")
        return value

    def mapping(self, name: str, *, optional: bool = False) -> dict[str, Any]:
        value = self.content.get(name)
        if value is None and optional:
            return {}
        if not isinstance(value, dict):
            raise self.damaged(f"{name} is {value!r:.60}, not a mapping")
        return value


def _damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{path}: {what}; restore it, or delete {path.parent} "
        "and repeat its `peerlearn run` command"
    )


def _metrics(file: _File, content: object) -> Metrics:
    values = _mapping_or_empty(content)
    return {name: file.number(name, values.get(name)) for name in METRICS}


def _mapping_or_empty(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _matrix(file: _File, rows: list[Any]) -> Matrix:
    matrix = []
    for i, row in enumerate(rows):
        known = row[: i + 1] if isinstance(row, list) else []
        if len(known) <= i or any(a is not None for a in row[i + 1 :]):
            raise file.damaged(f"row {i} of an accuracy matrix needs {i + 1} numbers, then nulls")
        values = [file.number(f"row {i}", a) for a in known]
        if not all(a is not None and 0 <= a <= 1 for a in values):
            raise file.damaged(f"row {i} of an accuracy matrix is not between 0 and 1")
        matrix.append(tuple(a for a in values if a is not None))
    return tuple(matrix)


def _counts(file: _File, row: object) -> tuple[int, ...]:
    if not isinstance(row, list) or not all(isinstance(n, int) and n >= 0 for n in row):
        raise file.damaged("memory_classes must be lists of whole numbers")
    return tuple(row)


def _steps(path: Path, *, optional: bool) -> tuple[Step, ...]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        if optional:
            return ()
        raise _damaged(path, "the file is missing") from None
    steps = []
    for i, line in enumerate(lines):
        try:
            entry = json.loads(line)
            losses = {str(k): float(v) for k, v in entry["losses"].items() if v is not None}
            steps.append(Step(int(entry["batch"]), losses))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if i < len(lines) - 1:  # the last line may be half-written: the run was stopped there
                raise UserError(
                    f"{path}: line {i + 1} is damaged; delete that line to report without it"
                ) from None
    return tuple(steps)


def _deeper_than(limit: int, value: object) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return limit == 0 or any(_deeper_than(limit - 1, part) for part in inner)
