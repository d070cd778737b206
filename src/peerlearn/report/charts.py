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
from peerlearn.report.labels import LETTER, LINE, apart, cut
from peerlearn.report.looks import Look
from peerlearn.report.markup import Child, Html, join, raw, short, tag

FEW = 4  # lines whose bands can be told apart without choosing
Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A named curve of (x, y), with the smallest and largest y where several runs are behind.

    value: what stands beside its name.
    """

    name: str
    look: Look
    points: Points
    band: Sequence[tuple[float, float, float]] = ()
    marks: bool = True
    value: str = ""


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
    values: str = "",
    ends: Sequence[float] | None = None,
) -> Html:
    """Curves with their bands, and what guessing would give.

    x ticks stand at the x values when these are few. among: y values that the axis spans too.
    names: at the ends of the lines, for which `room` has a margin. values: what the values beside
    the names are. ends: of tasks, where x counts images from 0.
    """
    curves = [*(line.points for line in lines), *chances]
    xs = sorted({x for points in curves for x, _ in points})
    ys = [*among, *(y for points in curves for _, y in points)]
    ys += [y for line in lines for _, *span in line.band for y in span]
    few = ends is None and len(xs) <= 25
    first = xs[0] if ends is None else 0.0
    x = horizontal(xs if few else nice_ticks(first, xs[-1]), x_label, room)
    ticks = log_ticks(min(ys), max(ys)) if log else nice_ticks(min(ys), max(ys))
    y = vertical(ticks, y_label, room, log=log)
    highest = room.top + (LINE if values else 0)
    places = apart([y.at(line.points[-1][1]) for line in lines], room.floor, highest=highest)
    called = _end_names(lines, places, x, y, room) if names else [None] * len(lines)
    above = {"x": _left_of_names(room), "y": min(places) - LINE}
    return svg(
        frame(x, y, room),
        [_task_end(k, end, x, room) for k, end in enumerate(ends or (), 1)],
        [_drawn(line, x, y, name) for line, name in zip(lines, called, strict=True)],
        tag("text", values, **above, class_="name hint") if values else None,
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


def _task_end(task: int, images: float, x: Axis, room: Room) -> Html:
    place = {"x1": x.at(images), "x2": x.at(images), "y1": room.top, "y2": room.floor}
    return tag("line", **place, class_="task", data_tip=f"task {task} ends at {images:,.0f}")


def _left_of_names(room: Room) -> float:
    return room.width - room.right + 14


def _end_names(
    lines: Sequence[Line], places: Sequence[float], x: Axis, y: Axis, room: Room
) -> list[Html]:
    """The names at the right, at these heights, each tied to the end of its line."""
    ends = [(x.at(line.points[-1][0]), y.at(line.points[-1][1])) for line in lines]
    left = _left_of_names(room)
    letters = int((room.right - 24) / LETTER)
    return [
        join(
            tag("polyline", points=path([(a + 7, b), (left - 12, p), (left - 4, p)]),
                class_="leader"),
            tag("text", _called(line, letters), x=left, y=p, dy="0.34em", class_=f"name c{colour}"),
        )
        for line, (a, b), p in zip(lines, ends, places, strict=True)
        for colour in [line.look.colour]
    ]  # fmt: skip


def _called(line: Line, letters: int) -> str:
    """The name of a line and its value, not too long together."""
    if not line.value:
        return cut(line.name, letters)
    return f"{cut(line.name, letters - len(line.value) - 1)} {line.value}"


def path(points: Points) -> Html:
    """The points of a line or a polygon."""
    return raw(" ".join(f"{short(x)},{short(y)}" for x, y in points))
