"""Charts as inline SVG: pure functions from numbers to markup, without any script.

Every chart says what it shows in a title and a description; `parts.figure` puts the same numbers
below it as a table. Colours come from the classes c0 to c7 of the style sheet.
"""

from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.report.axes import (
    ROOM,
    Axis,
    Room,
    frame,
    horizontal,
    log_ticks,
    nice_ticks,
    vertical,
)
from peerlearn.report.labels import apart, cut
from peerlearn.report.looks import Look
from peerlearn.report.markup import Child, Html, join, raw, short, tag

FEW = 4  # lines whose bands can be told apart without choosing
Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A named curve of (x, y), with the smallest and largest y where several runs are behind."""

    name: str
    look: Look
    points: Points
    band: Sequence[tuple[float, float, float]] = ()
    marks: bool = True


def svg(
    *children: Child, title: str, desc: str, room: Room = ROOM, class_: str | None = None
) -> Html:
    """An image that assistive technology can name and describe."""
    # The description is repeated as a label, because not every reader announces <desc>.
    return tag(
        "svg",
        tag("title", title),
        tag("desc", desc),
        children,
        role="img",
        aria_label=f"{title}. {desc}",
        viewBox=f"0 0 {short(room.width)} {short(room.height)}",
        class_=class_,
    )


def mark(look: Look, x: float, y: float, *, size: float = 4.5, tip: str | None = None) -> Html:
    """A point: a circle (or square) for a baseline, a diamond (or triangle) for a wrapper."""
    rank = look.rank % 3
    name = f"dot c{look.colour}{' hollow' if rank == 1 else ''}"
    if not look.wrapped and rank < 2:
        return tag("circle", cx=x, cy=y, r=size, class_=name, data_tip=tip)
    r, s = size * 1.3, size * 0.9
    if not look.wrapped:
        corners = [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    elif rank < 2:
        corners = [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
    else:
        corners = [(x, y - r), (x + r, y + s), (x - r, y + s)]
    return tag("polygon", points=path(corners), class_=name, data_tip=tip)


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    desc: str,
    x_label: str,
    y_label: str,
    room: Room = ROOM,
    log: bool = False,
    chances: Sequence[Points] = (),
    among: Sequence[float] = (),
    names: bool = False,
) -> Html:
    """Curves with their bands, and what guessing would give.

    x ticks stand at the x values when these are few. among: y values that the axis spans too.
    names: at the ends of the lines, for which `room` has a margin.
    """
    curves = [*(line.points for line in lines), *chances]
    xs = sorted({x for points in curves for x, _ in points})
    ys = [*among, *(y for points in curves for _, y in points)]
    ys += [y for line in lines for _, *ends in line.band for y in ends]
    x = horizontal(xs if len(xs) <= 25 else nice_ticks(xs[0], xs[-1]), x_label, room)
    ticks = log_ticks(min(ys), max(ys)) if log else nice_ticks(min(ys), max(ys))
    y = vertical(ticks, y_label, room, log=log)
    ends = _end_names(lines, x, y, room) if names else [None] * len(lines)
    return svg(
        frame(x, y, room),
        [_drawn(line, x, y, end) for line, end in zip(lines, ends, strict=True)],
        [_chance(points, x, y) for points in chances],  # on top: lines may lie on it
        title=title,
        desc=desc,
        room=room,
        class_=f"{size(room)} many" if len(lines) > FEW else size(room),
    )


def size(room: Room) -> str:
    """The class of an image by its width."""
    if room.width == ROOM.width:
        return "plain"
    return "large" if room.width > ROOM.width else "small"


def _drawn(line: Line, x: Axis, y: Axis, end: Html | None) -> Html:
    """A line with all that is shown and hidden with it."""
    above = [(x.at(a), y.at(high)) for a, _, high in line.band]
    below = [(x.at(a), y.at(low)) for a, low, _ in reversed(line.band)]
    colour = f"band c{line.look.colour}"
    band = tag("polygon", points=path([*above, *below]), class_=colour) if line.band else None
    way = [(x.at(a), y.at(b)) for a, b in line.points]
    style = f"curve {line.look.line}"
    curve = tag("polyline", points=path(way), class_=style, data_tip=line.name)
    marks = [
        mark(line.look, *at, tip=f"{line.name}: {b:.1f} at {a:g}")
        for at, (a, b) in zip(way, line.points, strict=True)
        if line.marks
    ]
    return tag("g", band, curve, marks, end, class_=line.look.choice)


def _chance(points: Points, x: Axis, y: Axis) -> Html:
    way = [(x.at(a), y.at(b)) for a, b in points]
    last_x, last_y = way[-1]
    line = tag("polyline", points=path(way), class_="chance", data_tip="chance: AA of guessing")
    word = tag("text", "chance", x=last_x - 4, y=last_y - 6, text_anchor="end", class_="hint")
    return join(line, word)


def _end_names(lines: Sequence[Line], x: Axis, y: Axis, room: Room) -> list[Html]:
    """The names at the right, each tied to the end of its line."""
    ends = [(x.at(line.points[-1][0]), y.at(line.points[-1][1])) for line in lines]
    places = apart([end[1] for end in ends], room.floor)
    left = room.width - room.right + 14
    return [
        join(
            tag("polyline", points=path([(a + 7, b), (left - 12, p), (left - 4, p)]),
                class_="leader"),
            tag("text", cut(line.name, 19), x=left, y=p, dy="0.34em", class_=f"name c{colour}"),
        )
        for line, (a, b), p in zip(lines, ends, places, strict=True)
        for colour in [line.look.colour]
    ]  # fmt: skip


def path(points: Points) -> Html:
    """The points of a line or a polygon."""
    return raw(" ".join(f"{short(x)},{short(y)}" for x, y in points))
