"""What the files of a run hold."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from peerlearn.settings import OLD_PREDICT_WITH, with_present_names

SCHEMA = 2  # of config.yaml and summary.json; 1, with flat settings, can still be read
ACCURACY_SCHEMA = 1  # accuracy.json has not changed since
MOST_TASKS = 300  # rows of a matrix
MOST_CLASSES = 25_000
MOST_NAMES = 1000  # of metrics or settings
MOST_LOSSES = 100
LARGEST = 1e100  # beyond all that is measured, and its square is still a number

Status = Literal["running", "done", "failed"]
Matrix = tuple[tuple[float, ...], ...]  # row i: accuracies on tasks 0 to i after task i

PROBES = ("probes.current_loss", "probes.disagreement")
EVALUATION = tuple(f"evaluation.{name}" for name in ("evaluate_every", "probe", "prequential"))
# decide no row of a table
MACHINE = (
    *(f"machine.{name}" for name in ("device", "layout", "compile", "threads", "peer_threads")),
    *PROBES,
    *EVALUATION,
)
# settings that came when runs had been recorded already, and what those had
LATER = {
    "predict_with": "peers",
    "ncm_distance": "euclidean",
    "stream.images": "all",
    "stream.epochs": 1,
    "stream.name": "class",
    "realtime": False,
    "realtime_store": False,
    "budget": None,
    "rehearse": 0,
    "rehearse_every": 0,
    "collaboration.chain.first": None,
    "collaboration.chain.aligned": False,
    "method.aligned_crop": False,
}
DIRECTION = "collaboration.direction"  # came later too; by wrapper, the only one that there was
DIRECTIONS = {
    "ccldc": "hard-to-easy",
    "ccldc-easy-to-hard": "easy-to-hard",
    "ccldc-same-difficulty": "same-difficulty",
    "sdc": "hard-to-easy",
    "sdc-easy-to-hard": "easy-to-hard",
}
OLD_METRICS = {"anytime": "AIA"}  # whose name was another one before
# where schema 1, which had flat settings, kept what now has a place of its own
OLD_NAMES = {
    "method": "method.name", "memory": "memory.size",
    **{name: f"stream.{name}" for name in
       ("tasks", "batch", "blur", "train_per_class", "test_per_class", "image_size")},
    **{name: f"net.{name}" for name in ("width", "stem", "pool", "normalise")},
    **{name: f"optim.{name}" for name in ("lr", "weight_decay", "beta2")},
    **{name: f"method.{name}" for name in ("replay_batch", "alpha", "beta", "similarity_weight")},
    **{name: f"collaboration.{name}" for name in
       ("peers", "label_weight", "distill_weight", "temperature")},
    "lesson_weight": "collaboration.distill_weight",
    **{name: f"collaboration.chain.{name}" for name in
       ("stages", "ops", "magnitude", "per_sample")},
    **{name: f"machine.{name}" for name in ("device", "precision", "threads")},
}  # fmt: skip


def _finite(value: Any) -> Any:
    """JSON has no NaN: None stands for what is not defined."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _few(values: Any) -> Any:
    """Refuse a mapping that nobody would read, before each part of it is looked at."""
    if isinstance(values, dict) and len(values) > MOST_NAMES:
        raise ValueError(f"there are over {MOST_NAMES} names in a mapping")
    return values


def _plain(value: Any) -> Any:
    """A setting as our own files have it; YAML knows dates, sets and bytes as well."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _plain(part) for name, part in value.items()}
    if not isinstance(value, str | int | float | None):
        kind = type(value).__name__
        raise ValueError(f"a setting is a {kind}, not a text, a number, a truth or a list")
    return _finite(value)


def _present(answers: Any) -> Any:
    """Accuracies by the present names of the networks that predict."""
    if not isinstance(answers, dict):
        return answers
    return {OLD_PREDICT_WITH.get(name, name): value for name, value in _few(answers).items()}


def as_stored(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept by networks that predict under the names that files have had so far."""
    stored = {new: old for old, new in OLD_PREDICT_WITH.items()}
    return {stored.get(name, name): value for name, value in answers.items()}


Number = Annotated[
    Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | None, BeforeValidator(_finite)
]
Count = Annotated[int, Field(ge=0, le=2**53)]
Share = Annotated[float, Field(ge=0, le=1)]
Numbers = Annotated[dict[str, Number], BeforeValidator(_few)]
Texts = Annotated[dict[str, str], BeforeValidator(_few)]
Value = Annotated[Any, AfterValidator(_plain)]
Values = Annotated[dict[str, Value], BeforeValidator(_few)]


def later_settings(method: str) -> dict[str, Any]:
    """Return the settings that came when runs of a method had been recorded, as those had them."""
    wrapper = method.partition("+")[2]
    return {**LATER, DIRECTION: DIRECTIONS[wrapper]} if wrapper in DIRECTIONS else LATER


class Record(BaseModel):
    """Part of a file; what a later version adds is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Config(Record):
    """config.yaml: which run this is, and every setting of it.

    variant: the settings that differ from the preset, by their short names; they name the folder.
    settings: all of them, by dotted names. origins: where each value comes from.
    fingerprint: tells one state of the data from another, by every pixel. old_fingerprint: what
    earlier versions had instead, without pixels. plugins: whose code took part.
    """

    data: str
    method: str
    memory: Count
    seed: Count
    variant: Values = {}
    settings: Values
    origins: Texts = {}
    fingerprint: str = ""
    old_fingerprint: str = ""
    plugins: Texts = {}

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: Any) -> Any:
        """Settings of before by their present names."""
        if not isinstance(values, dict):
            return values
        keys = ("settings", "variant", "origins")
        named = {k: values[k] for k in keys if isinstance(values.get(k), dict)}
        return {**values, **{k: with_present_names(some) for k, some in named.items()}}

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that decide numbers, the seed left out."""
        settings = {k: v for k, v in self.settings.items() if k not in (*MACHINE, "seed")}
        groups = {name.rpartition(".")[0] for name in settings}
        later = later_settings(self.method)
        later = {name: v for name, v in later.items() if name.rpartition(".")[0] in groups}
        return {**later, **settings, "data": self.data}  # wherever its folder lies


class Cost(Record):
    """What a run took; None where it was not measured."""

    forward_per_image: Number = None
    backward_per_image: Number = None
    train_seconds: Number = None
    eval_seconds: Number = None
    peak_bytes: Number = None
    kept_bytes: Number = None  # images, extras and networks together
    flops: Number = None  # of all passes while learning, a backward one as two forward ones
    relative: Number = None  # k: computing of a step, in steps of ER on the same batch and replay
    updates_per_image: Number = None  # steps over images of the stream
    image_flops: Number = None  # of one image in one network, forward

    @model_validator(mode="before")
    @classmethod
    def _add_up(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("kept_bytes"), dict):
            kept = values["kept_bytes"].values()
            whole = all(isinstance(n, int | float) and not isinstance(n, bool) for n in kept)
            return {**values, "kept_bytes": sum(map(float, kept)) if whole else "not numbers"}
        return values


def _even(rows: list[list[int]]) -> list[list[int]]:
    if len(set(map(len, rows))) > 1:
        raise ValueError("memory_classes has rows of different lengths")
    return rows


_Row = Annotated[list[Count], Field(max_length=MOST_CLASSES, fail_fast=True)]
_CountRows = Annotated[list[_Row], Field(max_length=MOST_TASKS, fail_fast=True)]
Counts = Annotated[_CountRows, AfterValidator(_even)]


class MemoryClasses(Record):
    """The part of summary.json that grows with tasks and classes."""

    memory_classes: Counts  # images kept of each class, after each task


class Summary(Record):
    """summary.json: how far a run has come, its metrics and its cost."""

    status: Status
    data: str
    method: str
    memory: Count
    seed: Count
    metrics: Numbers = {}  # of the ensemble, by name
    peers: Annotated[list[Numbers], Field(max_length=MOST_NAMES, fail_fast=True)] = []
    ncm: Numbers | None = None
    answers: Annotated[dict[str, Numbers], BeforeValidator(_present)] = {}  # by networks
    cost: Cost = Cost()
    # how metrics along the stream were had: images between points ("every"), test images per class
    # ("probe"), images of the prequential window ("window")
    along: Numbers = {}
    classes: Count = 0  # of the stream; 0 where memory_classes does not tell


def _triangle(rows: Any) -> Matrix:
    square = isinstance(rows, list | tuple) and len(rows) <= MOST_TASKS
    if not square or not all(isinstance(row, list | tuple) for row in rows):
        raise ValueError(f"an accuracy matrix is no list of at most {MOST_TASKS} rows")
    matrix = []
    for i, row in enumerate(rows):
        known = row[: i + 1]
        whole = len(known) == i + 1 and set(map(type, known)) <= {int, float}
        if not whole or row.count(None) != len(row) - len(known):
            raise ValueError(f"row {i} of an accuracy matrix needs {i + 1} numbers, then nulls")
        if not (min(known) >= 0 and max(known) <= 1) or math.isnan(math.fsum(known)):
            raise ValueError(f"row {i} of an accuracy matrix is not between 0 and 1")
        matrix.append(tuple(map(float, known)))
    return tuple(matrix)


Triangle = Annotated[Matrix, PlainValidator(_triangle)]
Triangles = Annotated[list[Triangle], Field(max_length=MOST_NAMES, fail_fast=True)]


NamedTriangles = Annotated[dict[str, Triangle], BeforeValidator(_present)]


class Matrices(Record):
    """The accuracy matrices of a run; rows: after task i, columns: on task j."""

    ensemble: Triangle
    peers: Triangles
    ncm: Triangle | None
    answers: NamedTriangles = {}  # by networks that predict, where there are several


class Accuracy(Matrices):
    """accuracy.json: the matrices, and what the tasks hold."""

    class_names: Annotated[list[str], Field(max_length=MOST_CLASSES, fail_fast=True)] = []
    classes_per_task: Annotated[int, Field(ge=1, le=MOST_CLASSES)] = 1
    task_sizes: Annotated[list[Count], Field(max_length=MOST_TASKS)] = []  # where they differ
    ensemble: Triangle = ()
    peers: Triangles = []
    ncm: Triangle | None = None

    def classes_until(self, task: int) -> int:
        """How many classes are at home in the tasks before this one."""
        return sum(self.task_sizes[:task]) if self.task_sizes else task * self.classes_per_task


class Step(Record):
    """A line of steps.jsonl: a logged step, its losses by name."""

    batch: Count
    losses: Annotated[Numbers, Field(max_length=MOST_LOSSES)]


class Probe(Record):
    """A line of probes.jsonl: what the run was asked about itself after a batch.

    start: batches before the task of that batch. The last seven make a `metrics.along.Point`.
    """

    batch: Count
    task: Count
    start: Count
    current_loss: Number = None
    disagreement: Number = None
    images: Count | None = None
    grid: bool = False
    pool: Share | None = None
    tasks: Annotated[list[Share], Field(max_length=MOST_TASKS)] = []
    classes: Annotated[list[Share | None], Field(max_length=MOST_CLASSES)] | None = None
    prequential: Share | None = None
    recent: Share | None = None


_Seconds = Annotated[float, Field(ge=0, le=LARGEST)]


class SavedCurve(Record):
    """How far the evaluation along the stream has come.

    images: that had passed before the last batch, and after it. met: labels that have passed.
    right: stream images that were predicted rightly. last: those of the window, 1 if rightly.
    points: how many are in probes.jsonl.
    """

    images: Annotated[list[Count], Field(min_length=2, max_length=2)]
    met: Annotated[list[Count], Field(max_length=MOST_CLASSES)]
    right: Count
    last: Annotated[str, Field(pattern="^[01]*$")]
    points: Count


class SavedPace(Record):
    """What a run has taken its time and computing for.

    steps: batches that were learnt. step_at: batches that had passed after the last of them.
    reference: what they would have cost ER, in images forward and twice backward. passed_by: images
    that were neither learnt nor kept. clock: tenths of a batch's time until which it is busy.
    dearest: k of the dearest step. spent: whether the budget is.
    """

    steps: Count
    step_at: Count
    reference: Count
    passed_by: Count
    clock: Count
    dearest: Annotated[float, Field(ge=0, le=LARGEST)]
    spent: bool


class Saved(Record):
    """What a run keeps with its checkpoint.

    seconds: of training and of evaluation. log_bytes, probe_bytes: of steps.jsonl and probes.jsonl
    at that moment.
    """

    scores: Matrices
    memory_classes: Counts
    seconds: Annotated[list[_Seconds], Field(min_length=2, max_length=2)]
    peak: Count
    log_bytes: Count
    probe_bytes: Count = 0
    curve: SavedCurve | None = None  # None in those of earlier versions, as the next
    pace: SavedPace | None = None


def without_nan(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return _finite(value)
