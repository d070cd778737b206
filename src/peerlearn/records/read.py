"""Runs, read and checked file by file: from their folders, or from results files."""

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from peerlearn.errors import UserError
from peerlearn.files import MOST_BYTES, Unreadable, from_json, read_text
from peerlearn.metrics.along import Point
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.table import MAIN, summarise
from peerlearn.records.document import (
    MissingError,
    R,
    Refuse,
    brief,
    check_schema,
    checked,
    damaged,
    mapping_in,
    text_in,
)
from peerlearn.records.schema import (
    ACCURACY_SCHEMA,
    OLD_METRICS,
    OLD_NAMES,
    SCHEMA,
    Accuracy,
    Config,
    Cost,
    Matrix,
    MemoryClasses,
    Probe,
    Step,
    Summary,
)
from peerlearn.safe_yaml import MOST_YAML_BYTES, from_yaml
from peerlearn.settings import flatten

LONGEST_FILES = {  # in bytes; above what the longest run writes, and read within two seconds
    "config.yaml": MOST_YAML_BYTES,
    "summary.json": 1 << 23,
    "accuracy.json": 12_000_000,
    "environment.json": 1 << 20,
}
MOST_STEPS = 10_000  # lines of a log that are looked at, evenly spread over a longer one
SEED = re.compile(r"^((?:  )?seed: )(0|[1-9]\d{0,14})$", re.MULTILINE)  # as we write it
MARKS = (2**52 + 1, 2**52 + 2)
PREDICT_WITH = "predict_with"
ROUNDING = 1e-9  # metrics closer than this are equal


@dataclass(frozen=True)
class RunRecord:
    """One run. Accuracies and metrics are in [0, 1]; None is "not defined".

    Its settings and its summary are there; all else is read, and checked, when first asked for.
    folder: where its files are; of a run in a results file, that file and the run's place in it.
    answer: whose predictions, of `summary.answers`; "" for those that the run itself chose.
    parts: what a results file holds instead of files, by their names; None for a folder.
    """

    folder: Path
    config: Config
    summary: Summary
    answer: str = ""
    parts: Mapping[str, Any] | None = None

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
    def state(self) -> str:
        """Its status as a person should read it: nobody knows whether it is being worked on."""
        return {"running": "unfinished"}.get(self.summary.status, self.summary.status)

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """The ensemble's, by name."""
        return self.summary.answers[self.answer] if self.answer else self.summary.metrics

    @property
    def cost(self) -> Cost:
        """What it took."""
        return self.summary.cost

    @cached_property
    def accuracy(self) -> Accuracy:
        """The accuracy matrices; one that has not finished may lack them."""
        content = self.part("accuracy")
        there = content or self.done
        found = accuracy_in(self.folder / "accuracy.json", content) if there else Accuracy()
        if not self.answer:
            return found
        ncm = found.ncm if self.summary.ncm is not None else None
        own = found.answers.get(self.answer, ())
        return found.model_copy(update={"ensemble": own, "ncm": ncm})

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """Versions, machine and command."""
        return self.part("environment")

    @cached_property
    def memory_classes(self) -> list[list[int]]:
        """Images kept of each class, after each task: most of what summary.json holds."""
        return memory_classes_in(self.folder / "summary.json", self.part("summary"))

    @property
    def matrix(self) -> Matrix:
        """The ensemble's accuracies."""
        return self.accuracy.ensemble

    @property
    def accuracy_over_stream(self) -> list[float]:
        """AA after each task reached."""
        return [math.fsum(row) / len(row) for row in self.matrix]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The logged steps; a results file has none."""
        optional = not self.done or self.parts is not None
        return _lines(self.folder / "steps.jsonl", Step, optional=optional)

    @cached_property
    def probes(self) -> tuple[Probe, ...]:
        """What it was asked about itself on the way; nothing unless it was."""
        return read_probes(self.folder)

    @property
    def points(self) -> list[Point]:
        """Its accuracy along the stream, as far as that was asked for."""
        return points_in(self.probes)

    def part(self, name: str) -> dict[str, Any]:
        """What a JSON file of the run holds; nothing where a run under way lacks it."""
        if self.parts is not None:
            content: dict[str, Any] = self.parts[name]
            return content
        return _content(self.folder / f"{name}.json", optional=not self.done)

    def answered(self) -> "list[RunRecord]":
        """Return the run, and beside it the same run as each other predictor has it."""
        own = self.config.settings.get(PREDICT_WITH, "peers")
        names = [name for name in self.summary.answers if name != own]
        means = own == "ncm" and names == ["peers"]  # there are no other networks to take them of
        return [self, *(self._by(name, means=means) for name in names)]

    def _by(self, name: str, *, means: bool) -> "RunRecord":
        """Return the record of the run in which other networks had predicted.

        means: whether the run's nearest class means are of their features.
        """
        config = self.config.model_copy(
            update={
                "variant": {**self.config.variant, PREDICT_WITH: name},
                "settings": {**self.config.settings, PREDICT_WITH: name},
                "origins": {**self.config.origins, PREDICT_WITH: "flag"},
            }
        )
        summary = self.summary if means else self.summary.model_copy(update={"ncm": None})
        return replace(self, config=config, summary=summary, answer=name)

    def classes_of(self, task: int) -> str:
        """The names of a task's classes, in one line."""
        first, end = (self.accuracy.classes_until(k) for k in (task, task + 1))
        return ", ".join(self.accuracy.class_names[first:end])


def read_runs(roots: Path | Iterable[Path]) -> list[RunRecord]:
    """Every run under some folders and in some results files, which end in .json.

    Sorted by data, memory, method and seed; folders come before files.
    """
    from peerlearn.records.results_file import read_results  # which builds on this module

    roots = [roots] if isinstance(roots, Path) else list(roots)
    folders: set[Path] = set()
    files: set[Path] = set()
    for root in roots:
        if root.suffix == ".json" and os.path.isfile(root):
            files.add(root)
            continue
        if not os.path.isdir(root):  # False also for what no system could name
            raise UserError(
                f"{root}: no such folder and no results file; give the folder that `peerlearn run "
                "--out` wrote, or the .json file that `peerlearn results export` wrote"
            )
        summaries = root.rglob("summary.json")  # a run that is just starting has none yet
        found = {file.parent for file in summaries if _name(file.parent).startswith("seed")}
        if not found:
            raise UserError(
                f"{root}: no runs in this folder; make some with `peerlearn run er er+ccldc "
                f"--data mini --memory 200 --out {root}`"
            )
        folders |= found
    configs = _Configs()
    runs = [RunRecord(folder, configs.read(folder), read_summary(folder)) for folder in folders]
    runs += [run for file in files for run in read_results(file)]
    return sorted(
        runs, key=lambda r: (r.data, r.memory, r.method, r.seed, r.parts is not None, r.folder)
    )


def _name(folder: Path) -> str:
    """The name of a folder, whatever link led to it."""
    return os.path.basename(os.path.realpath(folder))


def read_run(folder: Path) -> RunRecord:
    """The run that `folder` holds."""
    return RunRecord(folder, read_config(folder), read_summary(folder))


def read_accuracy(folder: Path, *, optional: bool = False) -> Accuracy:
    """What accuracy.json says; nothing for an optional one that is not there."""
    path = folder / "accuracy.json"
    content = _content(path, optional=optional)
    return accuracy_in(path, content) if content or not optional else Accuracy()


def accuracy_in(path: Path, content: Mapping[str, Any], refuse: Refuse = damaged) -> Accuracy:
    """What an accuracy.json of this content says."""
    check_schema(path, content, (ACCURACY_SCHEMA,), refuse)
    return checked(path, Accuracy, content, refuse)


def read_finished(folder: Path, tasks: int) -> Summary | None:
    """What summary.json says of a run that came to its end; None for any other.

    That it did must also show in accuracy.json: all tasks, and the same metrics.
    """
    try:
        summary = read_summary(folder)
    except MissingError:
        return None
    if summary.status != "done":
        return None
    accuracy, path = read_accuracy(folder), folder / "accuracy.json"
    if len(accuracy.ensemble) != tasks:
        raise damaged(path, f"{len(accuracy.ensemble)} of {tasks} tasks are there")
    if not consistent(summary, accuracy):
        raise damaged(path, "its accuracies are not those of summary.json")
    return summary


def consistent(summary: Summary, accuracy: Accuracy) -> bool:
    """Whether the metrics of a run are those of its matrices."""
    stated = [summary.metrics, *summary.peers, summary.ncm or {}]
    matrices = [accuracy.ensemble, *filter(None, accuracy.peers), accuracy.ncm or ()]
    names = {*summary.answers, *accuracy.answers}
    stated += [summary.answers.get(name, {}) for name in names]
    matrices += [accuracy.answers.get(name, ()) for name in names]
    return len(stated) == len(matrices) and all(map(_agree, stated, matrices))


def _agree(metrics: Mapping[str, float | None], matrix: Matrix) -> bool:
    """Whether the metrics of a matrix are these; None stands for NaN."""
    computed = summarise(AccuracyMatrix(matrix))
    known = {name: metrics.get(name) for name in computed if name in (*metrics, *MAIN)}
    return bool(computed) == bool(metrics) and all(
        math.isnan(computed[name]) if value is None else abs(computed[name] - value) < ROUNDING
        for name, value in known.items()
    )


def read_summary(folder: Path) -> Summary:
    """What summary.json says."""
    path = folder / "summary.json"
    return summary_in(path, _content(path))


def summary_in(path: Path, content: Mapping[str, Any], refuse: Refuse = damaged) -> Summary:
    """What a summary.json of this content says."""
    check_schema(path, content, (1, SCHEMA), refuse)
    known = Summary.model_fields.keys() | {"schema", "variant", "memory_classes"}
    content = {OLD_METRICS.get(name, name): value for name, value in content.items()}
    metrics = {name: value for name, value in content.items() if name not in known}
    there = {name: value for name, value in content.items() if value is not None}
    classes = _width(content.get("memory_classes"))
    return checked(path, Summary, {**there, "metrics": metrics, "classes": classes}, refuse)


def memory_classes_in(
    path: Path, content: Mapping[str, Any], refuse: Refuse = damaged
) -> list[list[int]]:
    """What a summary.json of this content says of the memory."""
    rows = content.get("memory_classes") or []
    return checked(path, MemoryClasses, {"memory_classes": rows}, refuse).memory_classes


def _width(rows: object) -> int:
    """The length of the last row of a table, 0 if there is none."""
    last = rows[-1] if isinstance(rows, list) and rows else None
    return len(last) if isinstance(last, list) else 0


def read_config(folder: Path) -> Config:
    """What config.yaml says."""
    path = folder / "config.yaml"
    return config_in(path, _content(path))


def config_in(path: Path, content: Mapping[str, Any], refuse: Refuse = damaged) -> Config:
    """What a config.yaml of this content says."""
    check_schema(path, content, (1, SCHEMA), refuse)
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise refuse(path, f"settings is {brief(settings)}, not a mapping")
    if content["schema"] == 1:
        content = _from_schema_1(content)
    return checked(path, Config, {**content, "settings": flatten(content["settings"])}, refuse)


class _Configs:
    """Settings of many runs: files that differ in nothing but the seed are parsed once.

    The seed stands in two lines, its own and that of the settings. A text whose two seeds have
    become marks is parsed; if the marks come out as the two seeds, any other number would too.
    """

    def __init__(self) -> None:
        self._known: dict[str, Config | None] = {}

    def read(self, folder: Path) -> Config:
        """What config.yaml says, as `read_config` does."""
        path = folder / "config.yaml"
        try:
            text = read_text(path, LONGEST_FILES[path.name])
        except (OSError, ValueError):
            return read_config(folder)  # which says what is wrong
        seeds = [int(seed) for _, seed in SEED.findall(text)]
        if len(seeds) != len(MARKS):
            return read_config(folder)
        marks = iter(MARKS)
        masked = SEED.sub(lambda line: f"{line[1]}{next(marks)}", text)
        if masked not in self._known:
            self._known[masked] = self._parsed(path, masked)
        config = self._known[masked]
        if config is None:
            return read_config(folder)
        own, other = seeds
        return config.model_copy(
            update={"seed": own, "settings": {**config.settings, "seed": other}}
        )

    def _parsed(self, path: Path, masked: str) -> Config | None:
        try:
            content = from_yaml(masked)
            config = config_in(path, content) if isinstance(content, dict) else None
        except (Unreadable, UserError):
            return None
        return config if config and (config.seed, config.settings.get("seed")) == MARKS else None


def _from_schema_1(content: Mapping[str, Any]) -> dict[str, Any]:
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


def read_probes(folder: Path, most: int = MOST_STEPS) -> tuple[Probe, ...]:
    """What probes.jsonl says, at most so many lines; nothing if it is not there."""
    return _lines(folder / "probes.jsonl", Probe, optional=True, most=most)


def points_in(probes: Iterable[Probe]) -> list[Point]:
    """The points along the stream among the lines of probes.jsonl."""
    return [
        Point(
            line.images,
            line.grid,
            line.pool,
            tuple(line.tasks),
            None if line.classes is None else tuple(line.classes),
            line.prequential,
            line.recent,
        )
        for line in probes
        if line.images is not None
    ]


def _content(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The mapping in a file of a run; an empty one for an optional file that is not there."""
    return mapping_in(path, LONGEST_FILES[path.name], optional=optional)


def _lines(
    path: Path, model: type[R], *, optional: bool, most: int = MOST_STEPS
) -> tuple[R, ...]:
    try:
        text = text_in(path, MOST_BYTES, optional=optional) or ""
    except UnicodeDecodeError as error:
        raise _damaged_line(path, error.object.count(b"\n", 0, error.start)) from None
    except Unreadable as error:
        raise UserError(f"{path}: {error}; make it a plain file with fewer lines") from None
    lines = text.split("\n")[:-1]  # the last may be half-written: the run was stopped there
    found = []
    for i in range(0, len(lines), 1 + len(lines) // most):
        try:
            found.append(model.model_validate(from_json(lines[i])))
        except (Unreadable, ValidationError):
            raise _damaged_line(path, i) from None
    return tuple(found)


def _damaged_line(path: Path, place: int) -> UserError:
    return UserError(f"{path}: line {place + 1} is damaged; delete that line to report without it")
