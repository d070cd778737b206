"""reproduced/NAME-SCALE.json: a table of the paper, published beside measured, with verdicts."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from peerlearn.errors import UserError
from peerlearn.records.document import document, read_document, write_document
from peerlearn.records.schema import Count, Number, Record

REPRODUCTION_SCHEMA = 1
FOLDER = "reproduced"  # in that of all runs
MOST_BYTES = 1 << 26
MOST_ROWS = 10_000

Text = Annotated[str, Field(max_length=500)]
Verdict = Literal["agrees", "higher", "lower", "other scale", "same order", "opposite order",
                  "undecided here", "too few seeds", "undecided in the paper",
                  "doubtful in the paper", "no figure", ""]  # fmt: skip


class Value(Record):
    """A mean over n runs, in [0, 1] or in seconds, and the standard deviation of a sample."""

    mean: Number
    std: Number = None
    n: Count


class Gap(Record):
    """A difference with its 95 % interval, and p of a two-sided test."""

    difference: Number
    low: Number = None
    high: Number = None
    p: Number = None


class Row(Record):
    """What a row is about.

    Args:
        row: the method and its settings.
        data, memory: where it was published.
        at_data, at_memory: where it was measured.
        metric, by: what was measured, and who answered.
        scale: at which, and the settings in which the runs leave it.
    """

    row: Text
    data: Text
    memory: Count
    at_data: Text
    at_memory: Count
    metric: Text
    by: Text
    scale: Text


class Compared(Row):
    """A published figure beside the measured one; gap: measured minus published."""

    published: Value | None = None
    doubt: Text = ""  # why the published one is not to be relied on
    measured: Value | None = None
    gap: Gap | None = None
    verdict: Verdict = ""


class Ordered(Row):
    """Which of two rows is ahead, and by how much; `row` minus `other`.

    published: from the published means and spreads, by Welch's test. measured: paired by seed.
    """

    other: Text
    published: Gap | None = None
    measured: Gap | None = None
    n: Count
    verdict: Verdict = ""


class Failing(Record):
    """A run in which AA is below LA (1 - RF)."""

    row: Text
    data: Text
    memory: Count
    seed: Count
    aa: Number
    bound: Number


class Bound(Record):
    """In how many runs AA >= LA (1 - RF) was looked at, and those where it fails."""

    runs: Count
    fails: Annotated[list[Failing], Field(max_length=MOST_ROWS)]


class Reproduction(Record):
    """A table or figure of the paper, as it was measured.

    Args:
        name: by which it was asked for.
        source: where it is in the paper.
        title: what it shows.
        says: what the paper finds, where it prints no numbers.
        scale, profile: at which, and with whose settings, it was measured.
        worked: whether it is arithmetic, without any run.
        best: by metric, the row whose mean is the best, where the paper names one.
    """

    name: Text
    source: Text
    title: Text
    says: Text = ""
    scale: Text
    profile: Text
    worked: bool = False
    rows: Annotated[list[Compared], Field(max_length=MOST_ROWS)]
    orders: Annotated[list[Ordered], Field(max_length=MOST_ROWS)]
    bound: Bound | None = None
    best: Annotated[dict[str, Text], Field(max_length=100)]


def read_reproduction(path: Path) -> Reproduction:
    """What a reproduced/NAME-SCALE.json says."""
    return read_document(path, Reproduction, REPRODUCTION_SCHEMA, MOST_BYTES, _damaged)


def write_reproduction(path: Path, found: Reproduction) -> None:
    """Write a reproduced/NAME-SCALE.json."""
    write_document(path, found, REPRODUCTION_SCHEMA, new_folder=True)


def to_json(found: Reproduction) -> str:
    """The file's content."""
    return document(found, REPRODUCTION_SCHEMA)


def _damaged(path: Path, what: str) -> UserError:
    if not path.exists():
        return UserError(f"{path}: no such file; `peerlearn reproduce` writes it")
    next_step = "delete the file and repeat its `peerlearn reproduce` command"
    return UserError(f"{path}: {what}; {next_step}")
