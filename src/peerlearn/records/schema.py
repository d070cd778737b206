"""What the files of a run hold."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SCHEMA = 2  # of config.yaml and summary.json; 1, with flat settings, can still be read
ACCURACY_SCHEMA = 1  # accuracy.json has not changed since
DEEPEST = 4  # settings within settings; also keeps aliases in a doctored file from exploding

Status = Literal["running", "done", "failed"]
Matrix = tuple[tuple[float, ...], ...]  # row i: accuracies on tasks 0 to i after task i

MACHINE = ("machine.device", "machine.threads")  # decide no row of a table
# where schema 1, which had flat settings, kept what now has a place of its own
OLD_NAMES = {
    "method": "method.name", "memory": "memory.size",
    **{name: f"stream.{name}" for name in
       ("tasks", "batch", "blur", "train_per_class", "test_per_class", "image_size")},
    **{name: f"net.{name}" for name in ("width", "stem", "pool", "normalise")},
    **{name: f"optim.{name}" for name in ("lr", "weight_decay", "beta2")},
    **{name: f"method.{name}" for name in ("replay_batch", "alpha", "beta", "similarity_weight")},
    **{name: f"collaboration.{name}" for name in
       ("peers", "label_weight", "lesson_weight", "temperature")},
    **{name: f"collaboration.chain.{name}" for name in
       ("stages", "ops", "magnitude", "per_sample")},
    **{name: f"machine.{name}" for name in ("device", "precision", "threads")},
}  # fmt: skip


def _finite(value: Any) -> Any:
    """JSON has no NaN: None stands for what is not defined."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """Part of a file; what a later version adds is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Config(Record):
    """config.yaml: which run this is, and every setting of it.

    variant: the settings that differ from the preset, by their short names; they name the folder.
    settings: all of them, by dotted names. origins: where each value comes from.
    fingerprint: tells one state of the data from another. plugins: whose code took part.
    """

    data: str
    method: str
    memory: Count
    seed: Count
    variant: dict[str, Any] = {}
    settings: dict[str, Any]
    origins: dict[str, str] = {}
    fingerprint: str = ""
    plugins: dict[str, str] = {}

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that decide numbers, the seed left out."""
        settings = {k: v for k, v in self.settings.items() if k not in (*MACHINE, "seed")}
        return {**settings, "data": self.data}  # wherever its folder lies


class Cost(Record):
    """What a run took; None where it was not measured."""

    forward_per_image: Number = None
    backward_per_image: Number = None
    train_seconds: Number = None
    eval_seconds: Number = None
    peak_bytes: Number = None
    kept_bytes: Number = None  # images, extras and networks together

    @model_validator(mode="before")
    @classmethod
    def _add_up(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("kept_bytes"), dict):
            kept = values["kept_bytes"].values()
            whole = all(isinstance(n, int | float) and not isinstance(n, bool) for n in kept)
            return {**values, "kept_bytes": float(sum(kept)) if whole else "not numbers"}
        return values


class Summary(Record):
    """summary.json: how far a run has come, its metrics and its cost."""

    status: Status
    data: str
    method: str
    memory: Count
    seed: Count
    metrics: dict[str, Number] = {}  # of the ensemble, by name
    peers: list[dict[str, Number]] = []
    ncm: dict[str, Number] | None = None
    cost: Cost = Cost()
    memory_classes: list[list[Count]] = []  # images kept of each class, after each task


def _triangle(rows: list[list[float | None]]) -> Matrix:
    matrix = []
    for i, row in enumerate(rows):
        known = [a for a in row[: i + 1] if a is not None]
        if len(known) != i + 1 or any(a is not None for a in row[i + 1 :]):
            raise ValueError(f"row {i} of an accuracy matrix needs {i + 1} numbers, then nulls")
        if not all(0 <= a <= 1 for a in known):
            raise ValueError(f"row {i} of an accuracy matrix is not between 0 and 1")
        matrix.append(tuple(known))
    return tuple(matrix)


Triangle = Annotated[list[list[Number]], AfterValidator(_triangle)]


class Accuracy(Record):
    """accuracy.json: the matrices; rows: after task i, columns: on task j."""

    class_names: list[str] = []
    classes_per_task: Annotated[int, Field(ge=1)] = 1
    ensemble: Triangle = []
    peers: list[Triangle] = []
    ncm: Triangle | None = None


class Step(Record):
    """A line of steps.jsonl: a logged step, its losses by name."""

    batch: Count
    losses: dict[str, Number]


def without_nan(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return _finite(value)
