"""Charts as inline SVG: pure functions from numbers to markup, without any script.

Every chart says what it shows in a title and a description; `parts.figure` puts the same numbers
below it as a table. Colours come from the classes c0 to c7 of the style sheet.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.report.axes import (
    HEIGHT,
    TOP,
    WIDTH,
    frame,
    horizontal,
    log_ticks,
    nice_ticks,
    vertical,
)
from peerlearn.report.markup import Child, Html, raw, short, tag


class Look(NamedTuple):
    """How a method is drawn everywhere: a colour, and a shape for runs with peers.

    Methods that share a colour differ in rank: the next ones are hollow, then of another shape.
    """

    colour: int
    peers: bool
    rank: int = 0

    @property
    def line(self) -> str:
        """The classes of its line: colour and dashes."""
        kind = "peers" if self.peers else "alone"
        return f"c{self.colour} {kind}{min(self.rank, 2)}"


class Line(NamedTuple):
    """A named curve of (x, y), with the smallest and largest y where several runs are behind."""

    name: str
    look: Look
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()
    marks: bool = True


class Dot(NamedTuple):
    """One point of a scatter plot."""

    name: str
    look: Look
    x: float
    y: float


def svg(
    *children: Child, title: str, desc: str, width: float = WIDTH, height: float = HEIGHT
) -> Html:
    """Return an image that assistive technology can name and describe."""
    # The description is repeated as a label, because not every reader announces <desc>.
    return tag(
        "svg",
        tag("title", title),
        tag("desc", desc),
        children,
        role="img",
        aria_label=f"{title}. {desc}",
        viewBox=f"0 0 {short(width)} {short(height)}",
        class_=None if width == WIDTH else "small",
    )


def mark(look: Look, x: float, y: float, *, size: float = 4.5, tip: str | None = None) -> Html:
    """Return a point: a circle (or square) alone, a diamond (or triangle) with peers."""
    name = f"dot c{look.colour}{' hollow' if look.rank == 1 else ''}"
    if not look.peers and look.rank < 2:
        return tag("circle", cx=x, cy=y, r=size, class_=name, data_tip=tip)
    r, s = size * 1.3, size * 0.9
    if not look.peers:
        corners = [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    elif look.rank < 2:
        corners = [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
    else:
        corners = [(x, y - r), (x + r, y + s), (x - r, y + s)]
    points = " ".join(f"{short(a)},{short(b)}" for a, b in corners)
    return tag("polygon", points=points, class_=name, data_tip=tip)


def line_chart(
    lines: Sequence[Line], *, title: str, desc: str, x_label: str, y_label: str, log: bool = False
) -> Html:
    """Return curves with their bands; x ticks stand at the x values when these are few."""
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for _, y in line.points]
    ys += [y for line in lines for _, *ends in line.band for y in ends]
    x = horizontal(xs if len(xs) <= 25 else nice_ticks(xs[0], xs[-1]), x_label)
    ticks = log_ticks(min(ys), max(ys)) if log else nice_ticks(min(ys), max(ys))
    y = vertical(ticks, y_label, log=log)
    bands, curves, marks = [], [], []
    for line in lines:
        if line.band:
            above = [(x.at(a), y.at(high)) for a, _, high in line.band]
            below = [(x.at(a), y.at(low)) for a, low, _ in reversed(line.band)]
            bands.append(
                tag("polygon", points=_path([*above, *below]), class_=f"band c{line.look.colour}")
            )
        way = [(x.at(a), y.at(b)) for a, b in line.points]
        name = f"curve {line.look.line}"
        curves.append(tag("polyline", points=_path(way), class_=name, data_tip=line.name))
        if line.marks:
            marks += [
                mark(line.look, *at, tip=f"{line.name}: {b:.1f} at {a:g}")
                for at, (a, b) in zip(way, line.points, strict=True)
            ]
    return svg(frame(x, y), bands, curves, marks, title=title, desc=desc)


def scatter(dots: Sequence[Dot], *, title: str, desc: str, x_label: str, y_label: str) -> Html:
    """Return points with small y on top, so that up and right is better on both axes."""
    x = horizontal(nice_ticks(min(d.x for d in dots), max(d.x for d in dots)), x_label)
    y = vertical(
        nice_ticks(min(d.y for d in dots), max(d.y for d in dots)), y_label, downwards=True
    )
    points = [
        mark(d.look, x.at(d.x), y.at(d.y), size=5.5, tip=f"{d.name}: {d.x:.1f}, {d.y:.1f}")
        for d in dots
    ]
    better = tag("text", "better ↗", x=WIDTH - 22, y=TOP + 16, text_anchor="end", class_="hint")
    return svg(frame(x, y), better, points, title=title, desc=desc)


def heat_map(
    matrix: Sequence[Sequence[float]], *, top: float, room: int, title: str, desc: str
) -> Html:
    """Return a triangle of cells in percent; `top` has the fullest colour, `room` is in tasks."""
    n = len(matrix)
    cell, font = (46, 13) if room <= 8 else (34, 11) if room <= 12 else (27, 10)
    left, head = 42, 40
    cells = []
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            share = min(1.0, value / (top or 1))
            x, y = left + j * cell, head + i * cell
            tip = f"after task {i + 1}, on task {j + 1}: {100 * value:.1f} %"
            cells.append(
                tag(
                    "rect",
                    x=x,
                    y=y,
                    width=cell - 2,
                    height=cell - 2,
                    rx=3,
                    class_="cell",
                    fill_opacity=opacity(share),
                    data_tip=tip,
                )
            )
            text = f"{100 * value:.1f}" if room <= 12 else f"{100 * value:.0f}"
            at = {"x": x + cell / 2 - 1, "y": y + cell / 2 - 1}
            cells.append(tag("text", text, **at, class_=tone(share)))
    middle = [k * cell + cell / 2 - 1 for k in range(n)]
    labels = [
        *(tag("text", k + 1, x=left + m, y=head - 12) for k, m in enumerate(middle)),
        *(tag("text", k + 1, x=left - 12, y=head + m) for k, m in enumerate(middle)),
        tag("text", "accuracy on task", x=left + n * cell / 2, y=10, class_="ax"),
        tag(
            "text",
            "after task",
            class_="ax",
            transform=f"translate(10 {short(head + n * cell / 2)}) rotate(-90)",
        ),
    ]
    body = tag("g", labels, cells, class_="heat", font_size=font)
    width = max(left + room * cell, 200)
    return svg(body, title=title, desc=desc, width=width, height=head + n * cell)


def opacity(share: float) -> float:
    """Return how strongly a cell is filled; even 0 leaves a trace."""
    return 0.06 + 0.94 * share


def tone(share: float) -> str:
    """Return the class of a cell's text; dark pages change sooner to dark text than light ones.

    With these borders the text stands out at least 4.5:1 from every cell in both themes.
    """
    return "faint" if share <= 0.54 else "middle" if share <= 0.72 else "full"


def stacked_bars(
    bars: Sequence[Sequence[float]], *, names: Sequence[str], parts: int, title: str, desc: str
) -> Html:
    """Return one bar per task, stacked by class slot; the stronger the colour, the older the task.

    bars[t][s]: stored images of slot s after task t; names: one per slot; parts: slots per task.
    """
    tallest = max((math.fsum(bar) for bar in bars), default=0)
    x = horizontal([0.5, *range(1, len(bars) + 1), len(bars) + 0.5], "after task")
    x = x._replace(ticks=tuple(range(1, len(bars) + 1)))
    y = vertical(nice_ticks(0, tallest), "stored images")
    groups = max(1, math.ceil(max(map(len, bars), default=1) / parts))
    width = (x.at(2) - x.at(1)) * 0.72
    rects = []
    for t, bar in enumerate(bars):
        base = 0.0
        for slot, number in enumerate(bar):
            if number > 0:
                age = slot // parts / max(1, groups - 1)
                rects.append(
                    tag(
                        "rect",
                        x=x.at(t + 1) - width / 2,
                        y=y.at(base + number),
                        width=width,
                        height=y.at(base) - y.at(base + number),
                        class_="part",
                        fill_opacity=1 - 0.82 * age,
                        data_tip=f"{names[slot]}: {number:g} images after task {t + 1}",
                    )
                )
            base += number
    return svg(frame(x, y), rects, title=title, desc=desc)


def bar_chart(bars: Sequence[tuple[str, Look, float, str]], *, title: str, desc: str) -> Html:
    """Return horizontal bars of (name, look, value, value as text), longest at full width."""
    row, top, name_width, text_width = 30, 4, 148, 74
    longest = max((value for _, _, value, _ in bars), default=0) or 1
    items = []
    for i, (name, look, value, text) in enumerate(bars):
        y = top + i * row
        length = max(2.0, value / longest * (WIDTH - name_width - text_width))
        label = name if len(name) <= 20 else f"{name[:19]}…"
        style = f"beam {look.line}"
        items += [
            tag("text", label, x=name_width - 10, y=y + row / 2, dy="0.1em", text_anchor="end"),
            tag(
                "rect",
                x=name_width,
                y=y + 3,
                width=length,
                height=row - 12,
                rx=3,
                class_=style,
                data_tip=f"{name}: {text}",
            ),
            tag("text", text, x=name_width + length + 8, y=y + row / 2, dy="0.1em", class_="value"),
        ]
    return svg(items, title=title, desc=desc, height=top + row * len(bars))


def _path(points: Sequence[tuple[float, float]]) -> Html:
    return raw(" ".join(f"{short(x)},{short(y)}" for x, y in points))
