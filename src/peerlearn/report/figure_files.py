"""An analysis as files for a paper: a figure, and beside it the numbers that it shows."""

import base64
import csv
import io
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from peerlearn.errors import UserError
from peerlearn.files import replace_file
from peerlearn.records.analysis import Analysis, AnyPanel, Bars, Heat, Images, Lines, Scatter
from peerlearn.report.figure_drawing import FORMATS, draw
from peerlearn.report.panels import numbered
from peerlearn.units import printable

WIDTHS = {"column": 3.3, "page": 6.9}  # inches
NARROWEST, WIDEST = 1.0, 12.0
MOST_PANELS = 12  # in one figure
PICTURE_FILE = re.compile(r"panel\d+-row\d+-column\d+\.png")
HEAD = ("panel", "title", "kind", "name", "x", "y", "spread")


def inches(typed: str) -> float:
    """The width that a person asks for.

    >>> inches("page"), inches("4.5")
    (6.9, 4.5)
    """
    try:
        width = WIDTHS[typed] if typed in WIDTHS else float(typed)
    except ValueError:
        width = math.nan
    if not NARROWEST <= width <= WIDEST:
        known = ", ".join(WIDTHS)
        raise UserError(
            f"--width {typed}: not {known} or a number of inches, {NARROWEST:g} to {WIDEST:g}"
        )
    return width


def write_figure(
    analysis: Analysis, out: Path, *, width: float = WIDTHS["column"], panel: int | None = None
) -> list[str]:
    """Write a figure and its numbers, and say what the figure leaves out.

    Args:
        analysis: what to draw.
        out: the file, .svg, .pdf or .png; numbers go beside it as .csv, pictures into a folder.
        width: in inches.
        panel: which one to draw, counted from 1; None for all.
    """
    form = out.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UserError(f"--out {out}: a figure's name ends in one of {known}")
    if out.is_dir():
        raise UserError(f"--out {out}: this is a folder; name a file")
    chosen = _chosen(analysis, panel)
    content, notes = draw(analysis, chosen, form, width)
    pictures = _pictures(chosen)
    _write_pictures(out.with_name(f"{out.stem}-images"), pictures)
    _replace(out.with_suffix(".csv"), table_of(chosen))
    _replace(out, content)
    return notes


def _replace(path: Path, content: bytes | str) -> None:
    """Replace a file as a whole, also one that a link leads to."""
    replace_file(Path(os.path.realpath(path)), content)


def _chosen(analysis: Analysis, panel: int | None) -> dict[int, AnyPanel]:
    """The panels to draw, by their numbers."""
    n = len(analysis.panels)
    if panel is not None and not 1 <= panel <= n:
        known = f"choose one from 1 to {n}" if n else "there is none"
        raise UserError(f"--panel {panel}: no such panel; {known}")
    if panel is None and not 1 <= n <= MOST_PANELS:
        what = f"{n} panels, more than the {MOST_PANELS} of a figure; choose one with --panel"
        raise UserError(f"{analysis.name}: {what if n else 'no panels; there is nothing to draw'}")
    return {k: one for k, one in enumerate(analysis.panels, 1) if panel in (None, k)}


# the numbers


def table_of(panels: Mapping[int, AnyPanel]) -> str:
    """Every number of some panels as CSV; pictures by their names in the folder beside it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for number, panel in panels.items():
        for name, x, y, spread in _rows(number, panel):
            writer.writerow(
                (number, printable(panel.title), panel.kind, printable(name), x, y, spread)
            )
    return text.getvalue()


def _rows(number: int, panel: AnyPanel) -> Iterator[tuple[str, object, object, object]]:
    """Name, x, y and spread of all that a panel holds."""
    match panel:
        case Lines() | Scatter():
            for curve in panel.lines if isinstance(panel, Lines) else panel.sets:
                yield from ((curve.name, x, y, None) for x, y in zip(curve.x, curve.y, strict=True))
            if isinstance(panel, Lines):
                yield from (("a task begins", mark, None, None) for mark in panel.marks)
        case Bars():
            yield from ((bar.name, None, bar.value, bar.spread) for bar in panel.bars)
        case Heat():
            names = numbered(panel.row_names, len(panel.rows))
            columns = numbered(panel.column_names, max(map(len, panel.rows), default=0))
            for name, row in zip(names, panel.rows, strict=True):
                yield from (
                    (name, printable(columns[j]), value, None) for j, value in enumerate(row)
                )
        case Images():
            wide = max((len(row.images) for row in panel.rows), default=0)
            columns = numbered(panel.column_names, wide)
            for i, pictures in enumerate(panel.rows, 1):
                for j, column in enumerate(columns[: len(pictures.images)], 1):
                    yield pictures.name, printable(column), _file_name(number, i, j), None


def _file_name(panel: int, row: int, column: int) -> str:
    return f"panel{panel}-row{row}-column{column}.png"


def _pictures(panels: Mapping[int, AnyPanel]) -> dict[str, bytes]:
    """The content of every picture, by the name of its file."""
    return {
        _file_name(number, i, j): base64.b64decode(code)
        for number, panel in panels.items()
        if isinstance(panel, Images)
        for i, row in enumerate(panel.rows, 1)
        for j, code in enumerate(row.images, 1)
    }


def _write_pictures(folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Fill the folder; pictures that an earlier figure left there go."""
    old = {path.name for path in folder.glob("*.png") if PICTURE_FILE.fullmatch(path.name)}
    for name in old - set(pictures):
        (folder / name).unlink()
    if pictures:
        folder.mkdir(exist_ok=True)
        for name, content in pictures.items():
            replace_file(folder / name, content)
