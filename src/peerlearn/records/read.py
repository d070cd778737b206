"""Run folders, read and checked file by file."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from peerlearn.errors import UserError
from peerlearn.records.schema import (
    ACCURACY_SCHEMA,
    DEEPEST,
    OLD_NAMES,
    SCHEMA,
    Accuracy,
    Config,
    Cost,
    Matrix,
    Record,
    Step,
    Summary,
)
from peerlearn.settings import flatten

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class RunRecord:
    """One run folder. Accuracies and metrics are in [0, 1]; None is "not defined"."""

    folder: Path
    config: Config
    summary: Summary
    accuracy: Accuracy = field(default_factory=Accuracy)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> str:
        """The data set."""
        return self.config.data

    @property
    def method(self) -> str:
        """The method, and after a plus its wrapper."""
        return self.config.method

    @property
    def memory(self) -> int:
        """Images kept for replay."""
        return self.config.memory

    @property
    def seed(self) -> int:
        """The seed."""
        return self.config.seed

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return self.summary.status == "done"

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """The ensemble's, by name."""
        return self.summary.metrics

    @property
    def cost(self) -> Cost:
        """What it took."""
        return self.summary.cost

    @property
    def matrix(self) -> Matrix:
        """The ensemble's accuracies."""
        return tuple(tuple(a for a in row if a is not None) for row in self.accuracy.ensemble)

    @property
    def accuracy_over_stream(self) -> list[float]:
        """AA after each task reached."""
        return [math.fsum(row) / len(row) for row in self.matrix]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The logged steps, read when first asked for."""
        return _steps(self.folder / "steps.jsonl", optional=not self.done)

    def classes_of(self, task: int) -> str:
        """The names of a task's classes, in one line."""
        first = task * self.accuracy.classes_per_task
        return ", ".join(self.accuracy.class_names[first : first + self.accuracy.classes_per_task])


def read_runs(roots: Path | Iterable[Path]) -> list[RunRecord]:
    """Every run under some folders, sorted by data, memory, method and seed."""
    roots = [roots] if isinstance(roots, Path) else list(roots)
    folders: set[Path] = set()
    for root in roots:
        if not root.is_dir():
            raise UserError(
                f"{root}: no such folder; give the folder that `peerlearn run --out` wrote"
            )
        files = root.rglob("summary.json")  # a run that is just starting has none yet
        found = {file.parent for file in files if file.resolve().parent.name.startswith("seed")}
        if not found:
            raise UserError(
                f"{root}: no runs in this folder; make some with `peerlearn run er er+ccldc "
                f"--data mini --memory 200 --out {root}`"
            )
        folders |= found
    runs = [read_run(folder) for folder in folders]
    return sorted(runs, key=lambda r: (r.data, r.memory, r.method, r.seed, r.folder))


def read_run(folder: Path) -> RunRecord:
    """The run that `folder` holds; one that has not finished may lack accuracies."""
    summary = read_summary(folder)
    done = summary.status == "done"
    content = _content(folder / "accuracy.json", optional=not done)
    accuracy = Accuracy()
    if content:
        _check_schema(folder / "accuracy.json", content, (ACCURACY_SCHEMA,))
        accuracy = _checked(folder / "accuracy.json", Accuracy, content)
    return RunRecord(
        folder=folder,
        config=read_config(folder),
        summary=summary,
        accuracy=accuracy,
        environment=_content(folder / "environment.json", optional=not done),
    )


def read_summary(folder: Path) -> Summary:
    """What summary.json says."""
    path = folder / "summary.json"
    content = _content(path)
    _check_schema(path, content, (1, SCHEMA))
    known = Summary.model_fields.keys() | {"schema", "variant"}
    metrics = {name: value for name, value in content.items() if name not in known}
    there = {name: value for name, value in content.items() if value is not None}
    return _checked(path, Summary, {**there, "metrics": metrics})


def read_config(folder: Path) -> Config:
    """What config.yaml says."""
    path = folder / "config.yaml"
    content = _content(path)
    _check_schema(path, content, (1, SCHEMA))
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise _damaged(path, f"settings is {settings!r:.60}, not a mapping")
    if _deeper_than(DEEPEST, settings):
        raise _damaged(path, "a setting is nested too deeply")
    if content["schema"] == 1:
        content = _from_schema_1(content)
    content["settings"] = flatten(content["settings"])
    return _checked(path, Config, content)


def _from_schema_1(content: dict[str, Any]) -> dict[str, Any]:
    """Flat settings put where they belong; what a flag or a file gave stands for the variant."""
    flat, origins = content["settings"], content.get("origins")
    origins = origins if isinstance(origins, dict) else {}
    identity = {name: flat.get(name) for name in ("data", "method", "memory", "seed")}
    machine = ("device", "threads")
    variant = {
        name: value
        for name, value in flat.items()
        if origins.get(name) in ("flag", "file") and name not in (*identity, *machine)
    }
    settings = {OLD_NAMES.get(name, name): value for name, value in flat.items()}
    base, plus, wrapper = str(identity["method"]).partition("+")
    settings |= {"method.name": base} | ({"collaboration.name": wrapper} if plus else {})
    settings |= {"net.name": "resnet18", "optim.name": "adamw", "memory.name": "reservoir"}
    return {
        **identity,
        "variant": variant,
        "settings": settings,
        "origins": {OLD_NAMES.get(name, name): origin for name, origin in origins.items()},
        "fingerprint": content.get("fingerprint", ""),
    }


def _content(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The mapping in a JSON or YAML file; an empty one for an optional file that is not there."""
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
    except FileNotFoundError:
        if optional:
            return {}
        raise _damaged(path, "the file is missing") from None
    except (ValueError, RecursionError, yaml.YAMLError):
        raise _damaged(path, "the file is damaged") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it readable") from None
    if not isinstance(content, dict):
        raise _damaged(path, "the file holds no mapping")
    return {str(name): value for name, value in content.items()}


def _check_schema(path: Path, content: Mapping[str, Any], known: tuple[int, ...]) -> None:
    schema = content.get("schema")
    if isinstance(schema, int) and schema > max(known):
        raise UserError(f"{path}: schema {schema} is newer than {max(known)}; update peerlearn")
    if schema not in known:
        raise _damaged(path, f"schema is {schema!r:.60}, not {max(known)}")


def _checked(path: Path, model: type[R], content: Mapping[str, Any]) -> R:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(str(part) for part in fault["loc"] if part != "metrics")
        if fault["type"] == "value_error":
            raise _damaged(path, str(fault["ctx"]["error"])) from None
        kinds = {"string": "a text", "int": "a whole number", "float": "a number"}
        kinds |= {"list": "a list", "dict": "a mapping", "model": "a mapping"}
        want = kinds.get(fault["type"].partition("_")[0], "")
        if fault["type"] == "literal_error":
            want = f"one of {fault['ctx']['expected']}".replace("'", "").replace(" or ", ", ")
        elif fault["type"].startswith("greater"):
            want = "a whole number"
        got = None if fault["type"] == "missing" else fault["input"]
        raise _damaged(path, f"{name} is {got!r:.60}, not {want or 'what it should be'}") from None


def _damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{path}: {what}; restore it, or delete {path.parent} "
        "and repeat its `peerlearn run` command"
    )


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
            steps.append(Step.model_validate_json(line))
        except ValidationError:
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
