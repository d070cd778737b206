"""analysis/NAME.json: what was found in trained networks, as pictures that anybody can draw.

An analysis is some panels, each of one of five kinds. Whoever draws them, on a page or in a file
for a paper, needs to know the kinds and nothing of the analyses.
"""

import base64
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from peerlearn.errors import UserError
from peerlearn.records.document import read_document, write_document
from peerlearn.records.schema import Number, Record, Values

ANALYSIS_SCHEMA = 1
MOST_BYTES = 1 << 26
MOST_PANELS = 64
MOST_PARTS = 1000  # lines, bars, sets of points, rows of a panel
MOST_POINTS = 100_000  # of a line or a set
MOST_IMAGE_BYTES = 1 << 20  # of one small PNG
LONGEST_NAME = 200  # letters

Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Points = Annotated[list[Number], Field(max_length=MOST_POINTS)]


def _png(text: str) -> str:
    """Refuse what is no small PNG."""
    if len(text) > MOST_IMAGE_BYTES:
        raise ValueError(f"an image is above {MOST_IMAGE_BYTES} bytes")
    try:
        start = base64.b64decode(text, validate=True)[:8]
    except ValueError:
        start = b""
    if start != b"\x89PNG\r\n\x1a\n":
        raise ValueError("an image is no PNG in base64")
    return text


def _not_negative(value: float | None) -> float | None:
    if value is not None and value < 0:
        raise ValueError(f"a spread of {value:g} is less than none")
    return value


class Curve(Record):
    """A line, or a set of points: y over x; None breaks a line."""

    name: Name
    x: Points
    y: Points

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{self.name}: {len(self.x)} x but {len(self.y)} y")
        return self


class Bar(Record):
    """A value, and how far it spreads."""

    name: Name
    value: Number
    spread: Annotated[Number, AfterValidator(_not_negative)] = None


class Panel(Record):
    """What every kind of panel has."""

    title: Name
    x: Name = ""  # what the axis shows, with its unit
    y: Name = ""


class Lines(Panel):
    """Curves over a common axis; marks: where tasks begin."""

    kind: Literal["lines"] = "lines"
    lines: Annotated[list[Curve], Field(max_length=MOST_PARTS)]
    marks: Points = Field(default_factory=list)
    log: bool = False  # the y axis


class Bars(Panel):
    """Values side by side."""

    kind: Literal["bars"] = "bars"
    bars: Annotated[list[Bar], Field(max_length=MOST_PARTS)]


class Scatter(Panel):
    """Points in the plane, a set for each class."""

    kind: Literal["scatter"] = "scatter"
    sets: Annotated[list[Curve], Field(max_length=MOST_PARTS)]


class Heat(Panel):
    """A matrix as colours, from 0 to its largest value."""

    kind: Literal["heat"] = "heat"
    rows: Annotated[list[Points], Field(max_length=MOST_PARTS)]
    row_names: list[Name] = Field(default_factory=list)
    column_names: list[Name] = Field(default_factory=list)


class ImageRow(Record):
    """Small pictures in a row, PNG in base64."""

    name: Name
    images: Annotated[list[Annotated[str, AfterValidator(_png)]], Field(max_length=64)]


class Images(Panel):
    """Small pictures in rows and columns."""

    kind: Literal["images"] = "images"
    column_names: list[Name] = Field(default_factory=list)
    rows: Annotated[list[ImageRow], Field(max_length=MOST_PARTS)]


AnyPanel = Annotated[Lines | Bars | Scatter | Heat | Images, Field(discriminator="kind")]


class Analysis(Record):
    """What an analysis has found.

    Args:
        name: of the command, such as "entropy".
        title: for people.
        about: how it was computed and how to read it, in a few plain sentences.
        runs: the runs that were looked at, such as "er+ccldc, cifar10, memory 200, seed 0".
        facts: single numbers and words, by name.
        panels: the pictures.
    """

    name: Name
    title: Name
    about: Annotated[str, Field(max_length=4000)]
    runs: Annotated[list[Name], Field(max_length=MOST_PARTS)]
    facts: Values = Field(default_factory=dict)
    panels: Annotated[list[AnyPanel], Field(max_length=MOST_PANELS)]


def read_analysis(path: Path) -> Analysis:
    """What an analysis/NAME.json says."""
    return read_document(path, Analysis, ANALYSIS_SCHEMA, MOST_BYTES, _damaged)


def write_analysis(path: Path, analysis: Analysis) -> None:
    """Write an analysis/NAME.json."""
    write_document(path, analysis, ANALYSIS_SCHEMA, indent=None, new_folder=True)


def _damaged(path: Path, what: str) -> UserError:
    if not path.exists():
        return UserError(f"{path}: no such file; `peerlearn analyse` writes it")
    return UserError(f"{path}: {what}; delete the file and repeat its `peerlearn analyse` command")
