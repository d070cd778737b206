"""study.json: a search for settings, trial by trial."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from peerlearn.errors import UserError
from peerlearn.records.document import read_document, write_document
from peerlearn.records.schema import (
    LARGEST,
    MOST_NAMES,
    MOST_TASKS,
    Count,
    Number,
    Record,
    Value,
    Values,
)

STUDY_SCHEMA = 1
MOST_TRIALS = 10_000
MOST_STUDY_BYTES = 1 << 26  # above what so many trials of 100 tasks take
LONGEST_REASON = 500  # letters

State = Literal["done", "pruned", "failed", "running"]


def _share(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise ValueError(f"{value:g} is not between 0 and 1")
    return value


def _not_negative(value: float | None) -> float | None:
    if value is not None and value < 0:
        raise ValueError(f"{value:g} seconds are less than none")
    return value


def _known_start(values: Any) -> Any:
    """The values before the first that is not defined; what came after has no place in a curve."""
    if not isinstance(values, list):
        return values
    return values[: next((k for k, v in enumerate(values) if _undefined(v)), len(values))]


def _shares(values: Any) -> Any:
    """The shares that are defined; the sum of their parts may be a hair above 1."""
    if not isinstance(values, dict):
        return values
    known = {name: value for name, value in values.items() if not _undefined(value)}
    near = {name: 1.0 for name, v in known.items() if isinstance(v, float) and 1 < v < 1 + 1e-6}
    return known | near


def _undefined(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _line(text: str) -> str:
    """A reason in a line that is not too long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"


def _list_or_range(value: Any) -> Any:
    if not isinstance(value, list | dict | Range):
        raise ValueError("what was searched of a setting is neither a list nor a range")
    return value


_AA = Annotated[float, Field(ge=0, le=1)]
_Texts = Annotated[list[str], Field(max_length=MOST_NAMES, fail_fast=True)]


class Trial(Record):
    """One choice of settings, and what came of it.

    value: mean AA over the tuning seeds, in [0, 1]; None where it is not known, as of a trial that
    was stopped within the stream: AA after fewer tasks cannot be compared. running: mean AA after
    each task so far. settings: by dotted names; trials need not have the same ones. runs: the
    folders of its runs, relative to study.json. why: it was pruned or failed, in a line.
    """

    number: Count
    state: State
    value: Annotated[Number, AfterValidator(_share)] = None
    settings: Values = Field(default_factory=dict)
    running: Annotated[
        list[_AA], Field(max_length=MOST_TASKS, fail_fast=True), BeforeValidator(_known_start)
    ] = Field(default_factory=list)
    seconds: Annotated[Number, AfterValidator(_not_negative)] = None
    runs: _Texts = Field(default_factory=list)
    why: Annotated[str, AfterValidator(_line)] = ""


class Range(Record):
    """The numbers from low to high, evenly over their logarithms if `log`, on steps if `step`.

    whole: whether they are whole numbers.
    """

    low: Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
    high: Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
    log: bool = False
    step: Number = None
    whole: bool = False


Choices = Annotated[list[Value], Field(max_length=MOST_NAMES)]
Searched = Annotated[Choices | Range, BeforeValidator(_list_or_range)]
_Trials = Annotated[list[Trial], Field(max_length=MOST_TRIALS, fail_fast=True)]


class Study(Record):
    """study.json: what was searched, on which images, and every trial.

    space: what was searched, by dotted names. stream: the declared tuning stream, as texts and
    numbers. evaluation: a line that says what was not touched. wanted: trials asked for. best: the
    number of the best trial. importance: each setting's share; importance_by: how it was computed.
    """

    method: str
    data: str
    memory: Count
    metric: Literal["AA"] = "AA"
    search: Literal["grid", "tpe"]
    space: Annotated[dict[str, Searched], Field(max_length=MOST_NAMES)]
    stream: Values = Field(default_factory=dict)
    evaluation: str = ""
    trials: _Trials = Field(default_factory=list)
    wanted: Count
    best: Count | None = None
    importance: Annotated[
        dict[str, _AA], Field(max_length=MOST_NAMES), BeforeValidator(_shares)
    ] = Field(default_factory=dict)
    importance_by: str = ""
    peerlearn: str = ""
    command: _Texts = Field(default_factory=list)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len({trial.number for trial in self.trials}) < len(self.trials):
            raise ValueError("two trials have the same number")
        if self.best is not None and self.best_trial is None:
            raise ValueError(f"best is {self.best}, which is no trial with a result")
        return self

    @property
    def best_trial(self) -> Trial | None:
        """The trial that `best` names."""
        done = (t for t in self.trials if t.state == "done" and t.value is not None)
        return next((trial for trial in done if trial.number == self.best), None)


def read_study(path: Path) -> Study:
    """What a study.json says."""
    return read_document(path, Study, STUDY_SCHEMA, MOST_STUDY_BYTES, _damaged)


def write_study(path: Path, study: Study) -> None:
    """Write a study.json."""
    write_document(path, study, STUDY_SCHEMA)


def _damaged(path: Path, what: str) -> UserError:
    # the trials that it names are in folders beside it: those need not go
    return UserError(
        f"{path}: {what}; restore it, or delete the file and repeat its `peerlearn tune` command"
    )
