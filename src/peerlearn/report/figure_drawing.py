"""The figure of an analysis by matplotlib, without a display: SVG, PDF or PNG.

The same analysis gives the same bytes: no dates, no random names. Text stays text, which an editor
of drawings can change.
"""

import base64
import io
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from PIL import Image

from peerlearn.errors import UserError
from peerlearn.records.analysis import Analysis, AnyPanel, Bars, Heat, Images, Lines, Scatter
from peerlearn.report.axes import plain
from peerlearn.report.labels import cut
from peerlearn.report.looks import COLOURS
from peerlearn.report.palette import class_colour
from peerlearn.report.panel_grids import LARGEST_PICTURE, png_size
from peerlearn.report.panels import (
    EMPTY,
    bar_groups,
    class_numbers,
    dots,
    heat_top,
    line_numbers,
    lines_of,
    numbered,
    pieces,
    some_pieces,
    spaced,
    ticks_of_logs,
)
from peerlearn.units import printable

FORMATS = ("svg", "pdf", "png")
TWO_COLUMNS = 5.0  # inches from which panels stand side by side
FONT = 8  # points
LINE = 0.17  # inches from a line of text to the next
LETTER = 0.068  # inches, about the width of a letter
LONGEST_NAME = 40  # letters
LONGEST_Y = 28  # beside the axis
LONGEST_TITLE = 120
MOST_ON_LINE = 2000  # points
MOST_DOTS = 10_000
MOST_BARS = 60
MOST_NAMES = 24  # in a legend
MOST_ROWS = 24  # of pictures
NAMED_SIDE = 25  # rows or columns of a matrix that have names
NUMBERED_SIDE = 12  # and whose cells have numbers
FEW_POINTS = 25  # up to which those of a line are marked
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
MARKS = "osD^v"
CLASS_MARKS = "os^DXvP*<>"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "----", "oooo")
STYLE = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": FONT,
    **dict.fromkeys(
        ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize",
         "legend.fontsize", "figure.titlesize"), FONT,
    ),
    "text.parse_math": False,  # a name may hold a dollar
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.0,
    "legend.handletextpad": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "peerlearn",
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "path.simplify": False,
}  # fmt: skip


def draw(
    analysis: Analysis, panels: Mapping[int, AnyPanel], form: str, width: float
) -> tuple[bytes, list[str]]:
    """A figure of some panels in a format, and what it leaves out."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "figure: matplotlib is not installed; pip install 'peerlearn[figures]'"
        ) from error
    columns = 2 if width >= TWO_COLUMNS and len(panels) > 1 else 1
    own = width / columns
    heights = [_height(panel, own) for panel in panels.values()]
    rows = [max(heights[k : k + columns]) for k in range(0, len(heights), columns)]
    notes: list[str] = []
    with matplotlib.rc_context(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        matplotlib.rcdefaults()  # whatever style the user has chosen
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(width, sum(rows)), layout="constrained")
        parts = figure.subfigures(len(rows), columns, squeeze=False, height_ratios=rows)
        for part, panel in zip(parts.flat, panels.values(), strict=False):
            part.suptitle(_wrapped(panel.title, own))
            notes += [f"{printable(panel.title)}: {note}" for note in _fill(part, panel, analysis)]
        content = io.BytesIO()
        figure.savefig(content, format=form, metadata=_metadata(form, analysis))
    said = " ".join(str(warning.message) for warning in warned)
    if "Glyph" in said and form != "svg":
        notes.append("Some letters are not in the font of the figure and show as boxes.")
    if "layout not applied" in said:
        notes.append("There is too little room for all names; take a larger --width.")
    return content.getvalue(), notes


def _metadata(form: str, analysis: Analysis) -> dict[str, str | None]:
    """What the file says of itself: its title, and neither time nor program."""
    silent = {
        "svg": ("Date", "Creator"),
        "pdf": ("CreationDate", "Creator", "Producer"),
        "png": ("Software",),
    }
    return {**dict.fromkeys(silent[form]), "Title": printable(analysis.title)}


def _wrapped(title: str, width: float) -> str:
    return textwrap.fill(cut(printable(title), LONGEST_TITLE), max(10, int(width / LETTER)))


def _short(name: str) -> str:
    return cut(printable(name), LONGEST_NAME)


def _height(panel: AnyPanel, width: float) -> float:
    """The inches that a panel takes in a column: its chart, its title and its legend."""
    words = LINE * (_wrapped(panel.title, width).count("\n") + 1)
    names = _legend_names(panel)
    words += LINE * math.ceil(len(names) / _legend_columns(names, width))
    match panel:
        case Heat():
            n, m = len(panel.rows), max(map(len, panel.rows), default=0)
            return words + width * min(1.2, max(0.35, 0.9 * n / max(1, m)))
        case Images():
            wide = max((len(row.images) for row in panel.rows), default=0)
            n = min(len(panel.rows), MOST_ROWS)
            return words + max(0.5, min(1.0, 0.8 * width / max(1, wide)) * n + LINE)
        case Scatter():
            return words + min(4.0, 0.8 * width)
        case _:
            return words + min(2.8, max(1.2, 0.55 * width))


def _legend_names(panel: AnyPanel) -> list[str]:
    """The names in the legend of a panel; none if one says all, or if they are too many."""
    match panel:
        case Lines():
            names = [line.name for line in lines_of(panel)[0]]
        case Scatter():
            names = [one.name for one in panel.sets if dots(one)]
        case Bars():
            names = bar_groups(panel)[1]
        case _:
            names = []
    names = list(dict.fromkeys(names))
    return names if 1 < len(names) <= MOST_NAMES else []


def _legend_columns(names: Sequence[str], width: float) -> int:
    longest = max((len(_short(name)) for name in names), default=0)
    return max(1, min(len(names), int(width / (LETTER * longest + 0.45))))


def _fill(part: Any, panel: AnyPanel, analysis: Analysis) -> list[str]:
    """Draw a panel into its part of the figure; what it leaves out."""
    if isinstance(panel, Images):
        return _draw_images(part, panel)
    axes = part.subplots()
    match panel:
        case Lines():
            notes, handles = _draw_lines(axes, panel, line_numbers(analysis))
        case Bars():
            notes, handles = _draw_bars(axes, panel)
        case Scatter():
            notes, handles = _draw_scatter(axes, panel, class_numbers(analysis))
        case Heat():
            notes, handles = _draw_heat(part, axes, panel), {}
    if not axes.has_data():
        axes.set_axis_off()
        axes.text(0.5, 0.5, EMPTY, ha="center", va="center", transform=axes.transAxes)
        return notes
    axes.set_xlabel(_short(panel.x))
    axes.set_ylabel(cut(printable(panel.y), LONGEST_Y))
    names = [name for name in _legend_names(panel) if name in handles]
    if names:
        width = part.bbox.width / part.dpi
        part.legend(
            [handles[name] for name in names],
            [_short(name) for name in names],
            loc="outside lower center",
            ncols=_legend_columns(names, width),
        )
    elif len(handles) > MOST_NAMES:
        notes.append(f"{len(handles)} names are too many for a legend.")
    return notes


def _line_style(number: int, *, marked: bool) -> dict[str, Any]:
    """A colour and, for those who see none, dashes and a mark."""
    turn = number + number // COLOURS
    style = {"color": class_colour(number % COLOURS), "linestyle": DASHES[turn % len(DASHES)]}
    return {**style, "marker": MARKS[turn % len(MARKS)]} if marked else style


Drawn = tuple[list[str], dict[str, Any]]  # what is left out; what a legend shows, by name


def _draw_lines(axes: Any, panel: Lines, numbers: Mapping[str, int]) -> Drawn:
    shown, marks, left = lines_of(panel)
    handles: dict[str, Any] = {}
    for line in shown:
        parts = some_pieces(line, MOST_ON_LINE, log=panel.log)
        few = sum(map(len, parts)) <= FEW_POINTS
        for piece in parts:
            style = _line_style(numbers[line.name], marked=few or len(piece) == 1)
            (drawn,) = axes.plot(*zip(*piece, strict=True), **style)
            handles.setdefault(line.name, drawn)
    for mark in marks if handles else ():
        axes.axvline(mark, color="0.6", linewidth=0.6, linestyle=":", zorder=0)
    if panel.log and handles:
        ys = [y for line in shown for piece in pieces(line, log=True) for _, y in piece]
        ticks = ticks_of_logs(ys)
        axes.set_yscale("log")
        axes.set_yticks(ticks, [plain(tick) for tick in ticks])
        axes.set_yticks([], minor=True)
        axes.set_ylim(ticks[0], ticks[-1])
    return left, handles


def _draw_bars(axes: Any, panel: Bars) -> Drawn:
    groups, members, places = bar_groups(panel)
    bars = [
        (bar.value, bar.spread, place)
        for bar, place in zip(panel.bars, places, strict=True)
        if bar.value is not None
    ]
    shown = sorted(bars, key=lambda bar: bar[2])[:MOST_BARS]
    if not shown:
        return [], {}
    handles: dict[str, Any] = {}
    wide = 0.8 / len(members)
    for member, some in groupby(sorted(shown, key=lambda bar: bar[2][1]), lambda bar: bar[2][1]):
        own = list(some)
        drawn = axes.bar(
            [g + (m - (len(members) - 1) / 2) * wide for _, _, (g, m) in own],
            [value for value, _, _ in own],
            wide * 0.92,
            yerr=[spread or 0.0 for _, spread, _ in own] if any(b[1] for b in own) else None,
            color=_paler(class_colour(member % COLOURS), member),
            hatch=HATCHES[member % len(HATCHES)],
            edgecolor="black",
            linewidth=0.4,
            error_kw={"elinewidth": 0.8, "capsize": 2},
        )
        handles[members[member]] = drawn
    axes.axhline(0, color="black", linewidth=0.6)
    there = sorted({g for _, _, (g, _) in shown})
    inches = 0.8 * axes.figure.bbox.width / axes.figure.dpi
    named = spaced(there, int(inches / LINE))
    names = [cut(printable(groups[g]), 16) for g in named]
    axes.set_xticks(named, names)
    axes.tick_params(axis="x", length=0)
    if max(map(len, names)) * LETTER > inches / len(names):
        axes.tick_params(axis="x", rotation=90)
    left = len(bars) - len(shown)
    return [f"{left} bars are not drawn."] if left else [], handles


def _paler(colour: str, member: int) -> Any:
    """Half-way to white, or less: what is hatched must not be dark."""
    from matplotlib.colors import to_rgb

    share = 0.15 if member == 0 else 0.55
    return tuple(part + (1 - part) * share for part in to_rgb(colour))


def _draw_scatter(axes: Any, panel: Scatter, numbers: Mapping[str, int]) -> Drawn:
    sets = [(one.name, dots(one)) for one in panel.sets]
    total = sum(len(points) for _, points in sets)
    share = min(1.0, MOST_DOTS / max(1, total))
    handles: dict[str, Any] = {}
    drawn = 0
    for name, points in sets:
        if points:
            some = spaced(points, int(share * len(points)))
            drawn += len(some)
            k = numbers[name]
            handles[name] = axes.scatter(
                *zip(*some, strict=True), s=9 if total <= 1000 else 4, linewidths=0,
                color=class_colour(k), marker=CLASS_MARKS[k % len(CLASS_MARKS)],
            )  # fmt: skip
    if not panel.x and not panel.y:  # numbers without a meaning
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(True)
    return [f"{drawn:,} of {total:,} points are drawn."] if drawn < total else [], handles


def _draw_heat(part: Any, axes: Any, panel: Heat) -> list[str]:
    n, m = len(panel.rows), max(map(len, panel.rows), default=0)
    top = heat_top(panel.rows)
    grid = [[math.nan if v is None else v for v in (*row, *[None] * (m - len(row)))]
            for row in panel.rows]  # fmt: skip
    if all(math.isnan(value) for row in grid for value in row):
        return []
    mesh = axes.pcolormesh(
        grid, cmap="Blues", vmin=0, vmax=top if top > 0 else 1, edgecolors="white",
        linewidth=0.3 if max(n, m) <= NAMED_SIDE else 0, rasterized=n * m > MOST_DOTS,
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_aspect("equal" if 0.2 < n / m < 5 else "auto")
    part.colorbar(mesh, ax=axes, shrink=0.8, pad=0.02)
    axes.tick_params(length=0)
    if max(n, m) <= NAMED_SIDE:
        rows, columns = numbered(panel.row_names, n), numbered(panel.column_names, m)
        tall = max(map(len, columns)) > 2
        axes.set_yticks([k + 0.5 for k in range(n)], [cut(printable(r), 16) for r in rows])
        axes.set_xticks([k + 0.5 for k in range(m)], [cut(printable(c), 16) for c in columns],
                        rotation=90 if tall else 0)  # fmt: skip
    if max(n, m) <= NUMBERED_SIDE:
        _write_cells(axes, grid, top)
    below = any(value < 0 for row in grid for value in row)
    return ["Values below 0 have the colour of 0."] if below else []


def _write_cells(axes: Any, grid: Sequence[Sequence[float]], top: float) -> None:
    """The number in each cell, if it is short, without the zero before the point."""
    size = FONT - 1 if max(len(grid), len(grid[0])) <= 6 else FONT - 3
    for i, row in enumerate(grid):
        for j, value in enumerate(row):
            words = f"{value:.2f}".replace("0.", ".") if 0.1 <= top <= 1 else f"{value:.3g}"
            if not math.isnan(value) and len(words) <= 4:
                axes.text(j + 0.5, i + 0.5, words, ha="center", va="center", fontsize=size,
                          color="white" if top > 0 and value / top > 0.55 else "black")  # fmt: skip


def _draw_images(part: Any, panel: Images) -> list[str]:
    shown = panel.rows[:MOST_ROWS]
    wide = max((len(row.images) for row in shown), default=0)
    if not wide:
        part.text(0.5, 0.5, EMPTY, ha="center", va="center")
        return []
    columns = numbered(panel.column_names, wide)
    grid = part.subplots(len(shown), wide, squeeze=False)
    for i, row in enumerate(shown):
        for j, axes in enumerate(grid[i]):
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_visible(False)
            if j < len(row.images):
                axes.imshow(_pixels(row.images[j], panel, i, j), interpolation="nearest")
            if i == 0 and panel.column_names:
                axes.set_title(cut(printable(columns[j]), 16), pad=2)
        grid[i][0].set_ylabel(cut(printable(row.name), 16), rotation=0, ha="right", va="center")
    left = len(panel.rows) - len(shown)
    return [f"{left} rows of pictures are not drawn."] if left else []


def _pixels(code: str, panel: Images, row: int, column: int) -> Any:
    """A picture as RGBA."""
    where = f"{panel.title}: the picture in row {row + 1}, column {column + 1}"
    if not 0 < max(png_size(code)) <= LARGEST_PICTURE:
        raise UserError(
            f"{where} is damaged, or over {LARGEST_PICTURE} pixels wide or high; make it smaller"
        )
    try:
        with Image.open(io.BytesIO(base64.b64decode(code)), formats=["PNG"]) as image:
            return image.convert("RGBA")
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{where} is damaged; repeat its `peerlearn analyse` command") from error
