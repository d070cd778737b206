"""Matrices and pictures of an analysis: with names and numbers if they are few."""

import base64
from collections.abc import Sequence
from itertools import groupby

from peerlearn.records.analysis import Heat, ImageRow, Images
from peerlearn.report.axes import Room
from peerlearn.report.charts import svg
from peerlearn.report.heat import opacity, tone
from peerlearn.report.labels import LETTER, cut
from peerlearn.report.markup import Child, Html, join, raw, short, table, tag
from peerlearn.report.panel_parts import LONGEST_NAME, nothing, said, text
from peerlearn.report.panels import heat_top, numbered
from peerlearn.report.parts import count, figure, ramp

MOST_SIDE = 200  # rows or columns of a matrix that can be drawn
SMALL_SIDE = 12  # up to which a matrix has room beside another panel
FEW_PICTURES = 4  # in a row, likewise
NAMED_SIDE = 25  # up to which they have names, and cells tell their numbers
LEVELS = 24  # strengths of colour in a larger matrix
LARGEST_PICTURE = 1024  # pixels of a side
SMALL, LARGE = 64, 160  # pixels to which pictures are enlarged, and made smaller


def heat_figure(panel: Heat) -> Html:
    """A matrix as cells of colour, with names and numbers if there are few."""
    n, m = len(panel.rows), max(map(len, panel.rows), default=0)
    values = [v for row in panel.rows for v in row if v is not None]
    if not values:
        return nothing(panel)
    if max(n, m) > MOST_SIDE:
        words = f"{n:,} by {m:,} cells are more than the {MOST_SIDE} by {MOST_SIDE} of a chart."
        return tag("figure", tag("figcaption", panel.title), tag("p", words, class_="hint"))
    top = heat_top(panel.rows)
    row_names, columns = numbered(panel.row_names, n), numbered(panel.column_names, m)
    few = max(n, m) <= NAMED_SIDE
    cell = 46 if max(n, m) <= 8 else 34 if max(n, m) <= 12 else 24 if few else 480 / max(n, m)
    left, head, over = _margins(row_names, columns) if few else (24.0, 8.0, 0.0)
    room = Room(width=max(left + m * cell + over, 260), height=head + n * cell + 26)
    cells = _cells(panel, cell, top, row_names, columns) if few else _levels(panel, cell, top)
    where = f"translate({short(left)} {short(head)})"
    at = max((v, i, j) for i, row in enumerate(panel.rows) for j, v in enumerate(row)
             if v is not None)  # fmt: skip
    image = svg(
        tag("g", cells, class_="heat", font_size=13 if cell > 40 else 11, transform=where),
        _sides(row_names, columns, cell, left, head) if few else None,
        tag("text", cut(panel.x, 50), x=left + m * cell / 2, y=room.height - 6,
            text_anchor="middle", class_="ax"),
        tag("text", cut(panel.y, 40), text_anchor="middle", class_="ax",
            transform=f"translate(11 {short(head + n * cell / 2)}) rotate(-90)"),
        title=panel.title,
        desc=f"{n} rows, {m} columns; the largest value, {text(at[0])}, is in row "
        f"{row_names[at[1]]}, column {columns[at[2]]}.",
        room=room,
        class_="small matrix",
    )  # fmt: skip
    notes = said("Values below 0 have the colour of 0." if min(values) < 0 else "")
    scale = ramp("0", text(max(top, 0.0), 3))
    table_head, table_rows = _heat_numbers(panel, row_names, columns, whole=few)
    made = figure(join(scale, image, notes), table_head, table_rows, caption=panel.title)
    return tag("div", made, class_="whole-row") if max(n, m) > SMALL_SIDE else made


def _margins(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float, float]:
    """Left of the matrix, above it, and what slanting names need to its right."""
    tall = max(min(len(name), LONGEST_NAME) for name in columns)
    wide = max(min(len(name), LONGEST_NAME) for name in rows) * LETTER
    slant = 0.6 * tall * LETTER if tall > 2 else 0
    return 34 + wide, 24 + slant, slant


def _sides(
    rows: Sequence[str], columns: Sequence[str], cell: float, left: float, head: float
) -> list[Html]:
    """The names of rows and columns; those of columns slant if they are longer than two letters."""
    flat = max(map(len, columns)) <= 2
    parts = []
    for k, name in enumerate(rows):
        parts.append(tag("text", cut(name, LONGEST_NAME), x=left - 8, y=head + (k + 0.5) * cell,
                         dy="0.34em", text_anchor="end"))  # fmt: skip
    for k, name in enumerate(columns):
        middle = short(left + (k + 0.5) * cell)
        turn = f"translate({middle} {short(head - 8)})" + ("" if flat else " rotate(-40)")
        anchor = "middle" if flat else "start"
        parts.append(tag("text", cut(name, LONGEST_NAME), text_anchor=anchor, transform=turn))
    return parts


def _share(value: float, top: float) -> float:
    return min(1.0, max(0.0, value / top)) if top > 0 else 0.0


def _cells(
    panel: Heat, cell: float, top: float, rows: Sequence[str], columns: Sequence[str]
) -> list[Html]:
    """Cells that tell what they stand for, with their numbers if there is room."""
    found = []
    for i, row in enumerate(panel.rows):
        for j, value in enumerate(row):
            if value is None:
                continue
            share = _share(value, top)
            found.append(
                tag("rect", x=j * cell, y=i * cell, width=cell - 2, height=cell - 2, rx=3,
                    class_="cell", fill_opacity=opacity(share),
                    data_tip=f"{rows[i]}, {columns[j]}: {text(value)}")
            )  # fmt: skip
            words = f"{value:.2f}" if 0.1 <= top <= 1 else text(value, 3)
            if len(words) <= cell // 7:
                at = {"x": (j + 0.5) * cell - 1, "y": (i + 0.5) * cell - 1}
                found.append(tag("text", words, **at, class_=tone(share)))
    return found


def _levels(panel: Heat, cell: float, top: float) -> list[Html]:
    """Cells in one path for each strength of colour; neighbours alike in a row are one piece."""
    ways: dict[int, list[str]] = {}
    for i, row in enumerate(panel.rows):
        levels = [None if v is None else round(_share(v, top) * LEVELS) for v in row]
        for level, some in groupby(range(len(row)), key=levels.__getitem__):
            alike = list(some)
            if level is not None:
                n = len(alike)
                ways.setdefault(level, []).append(f"M{alike[0]},{i}h{n}v1h-{n}z")
    paths = [
        tag("path", d=raw("".join(way)), class_="cell", fill_opacity=opacity(level / LEVELS))
        for level, way in sorted(ways.items())
    ]
    return [tag("g", paths, transform=f"scale({short(cell)})")]


def _heat_numbers(
    panel: Heat, rows: Sequence[str], columns: Sequence[str], *, whole: bool
) -> tuple[list[Child], list[list[Child]]]:
    """Every number if they are few, else the largest of each row."""
    if whole:
        padded = [[*row, *[None] * (len(columns) - len(row))] for row in panel.rows]
        numbers = [[name, *map(text, row)] for name, row in zip(rows, padded, strict=True)]
        return [panel.y or "Row", *columns], [list(row) for row in numbers]
    found: list[list[Child]] = []
    for name, row in zip(rows, panel.rows, strict=True):
        known = [(v, columns[j]) for j, v in enumerate(row) if v is not None]
        if known:
            value, column = max(known, key=lambda pair: pair[0])
            found.append([name, text(value), column])
    return [panel.y or "Row", "Largest value", panel.x or "Column"], found


def images_figure(panel: Images, letters: int) -> Html:
    """Small pictures in a table; letters: of all that may stand on the page, in base64."""
    shown: list[ImageRow] = []
    room = letters
    for row in panel.rows:
        room -= sum(map(len, row.images))
        if room < 0 and shown:
            break
        shown.append(row)
    wide = max((len(row.images) for row in shown), default=0)
    if not wide:
        return nothing(panel)
    columns = numbered(panel.column_names, wide)
    rows: list[list[Child]] = []
    for row in shown:
        named = zip(row.images, columns, strict=False)
        cells = [picture(code, f"{row.name}, {name}") for code, name in named]
        rows.append([row.name, *cells, *[""] * (wide - len(cells))])
    corner = panel.y or tag("span", "Row", class_="unseen")
    left = len(panel.rows) - len(shown)
    made = tag(
        "figure",
        tag("figcaption", panel.title),
        table([corner, *columns], rows, label=f"Pictures of {panel.title}", class_="pictures"),
        tag("p", f"Columns: {panel.x}.", class_="hint") if panel.x else None,
        said(f"Not shown: {count(left, 'further row')}." if left else ""),
    )
    return tag("div", made, class_="whole-row") if wide > FEW_PICTURES else made


def picture(code: str, name: str) -> Html:
    """A PNG in base64 at a size that can be looked at."""
    width, height = png_size(code)
    if not 0 < max(width, height) <= LARGEST_PICTURE or not min(width, height):
        return tag("span", "damaged or too large", class_="hint")
    times = SMALL // width if width < SMALL else min(1.0, LARGE / width)
    return tag(
        "img",
        src=f"data:image/png;base64,{code}",
        alt=name,
        width=round(width * times),
        height=max(1, round(height * times)),
        class_="pixels" if times > 1 else None,
    )


def png_size(code: str) -> tuple[int, int]:
    """What the head of a PNG says of its width and height; 0 for one that is cut off."""
    head = base64.b64decode(code[:32])
    if head[12:16] != b"IHDR":  # a size that stands elsewhere could be any
        return 0, 0
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
