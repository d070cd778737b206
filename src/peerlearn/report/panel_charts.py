"""Lines, bars and points of an analysis: bounded in size, and open about what they leave out.

Points are paths, one for each class, and long lines keep their peaks only, so that a page with
tens of thousands of points stays small. All of them are in the analysis file.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from peerlearn.records.analysis import Bars, Lines, Scatter
from peerlearn.report.axes import ROOM, Axis, frame, horizontal, nice_ticks, vertical
from peerlearn.report.charts import mark, path, svg
from peerlearn.report.details import QUARTERS
from peerlearn.report.labels import LETTER, cut
from peerlearn.report.looks import COLOURS, Look
from peerlearn.report.markup import Child, Html, join, raw, short, tag
from peerlearn.report.palette import MOST_CLASSES
from peerlearn.report.panel_parts import (
    LONGEST_AXIS,
    LONGEST_NAME,
    key,
    legend,
    nothing,
    said,
    text,
)
from peerlearn.report.panels import (
    Pieces,
    Point,
    bar_groups,
    dots,
    lines_of,
    some_pieces,
    spaced,
    ticks_of_logs,
)
from peerlearn.report.parts import count, figure, listed

MOST_ON_LINE = 400  # points of a line
MOST_ON_LINES = 6000  # points of all lines of a chart
MARKED = 25  # a line of at most so many points shows each
FEW_X = 24  # values of x up to which the table has every number
WHOLE_X = 12  # whole numbers that each have a tick
MOST_DOTS = 5000
MOST_BARS = 60


# lines


def lines_figure(panel: Lines, numbers: Mapping[str, int]) -> Html:
    """Curves over a common axis; numbers: by which the names of lines are drawn alike."""
    shown, uprights, left = lines_of(panel)
    if not shown:
        return nothing(panel)
    most = min(MOST_ON_LINE, MOST_ON_LINES // len(shown))
    drawn = [(line.name, some_pieces(line, most, log=panel.log)) for line in shown]
    points = [point for _, parts in drawn for piece in parts for point in piece]
    x = horizontal(_x_ticks([*(a for a, _ in points), *uprights]), cut(panel.x, LONGEST_AXIS))
    y = _y_axis([b for _, b in points], panel)
    looks = [_look(numbers[name]) for name, _ in drawn]
    curves = [_curve(*one, look, x, y) for one, look in zip(drawn, looks, strict=True)]
    entries = [key(_sample(look), name) for (name, _), look in zip(drawn, looks, strict=True)]
    if uprights:
        line = tag("line", x1=17, x2=17, y1=0, y2=16, class_="task")
        entries.append(key(line, "a task begins"))
    ends = [f"{name} ends at {text(parts[-1][-1][1])}" for name, parts in drawn]
    image = svg(
        frame(x, y),
        [tag("line", x1=x.at(a), x2=x.at(a), y1=ROOM.top, y2=ROOM.floor, class_="task",
             data_tip=f"a task begins at {a:g}") for a in uprights],
        curves,
        title=panel.title,
        desc=f"{listed(ends)}.",
        class_="plain",
    )  # fmt: skip
    head, rows = _line_numbers(panel)
    return figure(join(legend(entries), image, said(*left)), head, rows, caption=panel.title)


def _look(number: int) -> Look:
    return Look(number, number % COLOURS, wrapped=True, rank=number // COLOURS)


def _sample(look: Look) -> Html:
    return tag("line", x1=1, x2=33, y1=8, y2=8, class_=f"curve {look.line}")


def _x_ticks(xs: Sequence[float]) -> Sequence[float]:
    """The values themselves if they are a few whole numbers, else round ones around them."""
    values = sorted(set(xs))
    few = 1 < len(values) <= WHOLE_X and all(value % 1 == 0 for value in values)
    return values if few else nice_ticks(values[0], values[-1])


def _y_axis(ys: Sequence[float], panel: Lines) -> Axis:
    label = cut(panel.y, LONGEST_AXIS // 2)
    if not panel.log:
        return vertical(nice_ticks(min(ys), max(ys)), label)
    return vertical(ticks_of_logs(ys), f"{label}, log" if label else "log", log=True)


def _curve(name: str, parts: Pieces, look: Look, x: Axis, y: Axis) -> Html:
    """A line in its pieces; what stands alone, and each of few points, has a mark."""
    marked = sum(map(len, parts)) <= MARKED
    ways = [[(x.at(a), y.at(b)) for a, b in piece] for piece in parts]
    style = f"curve {look.line}"
    curves = [
        tag("polyline", points=path(way), class_=style, data_tip=name) for way in ways if way[1:]
    ]
    marks = [
        mark(look, *at, size=3.5, tip=f"{name}: {text(b)} at {text(a)}")
        for way, piece in zip(ways, parts, strict=True)
        for at, (a, b) in zip(way, piece, strict=True)
        if marked or len(piece) == 1
    ]
    return tag("g", curves, marks, class_="s")


def _line_numbers(panel: Lines) -> tuple[list[Child], list[list[Child]]]:
    """Every number if they are few, else those along the way."""
    lines = [(line.name, dots(line)) for line in panel.lines]
    xs = sorted({x for _, points in lines for x, _ in points})
    if len(xs) <= FEW_X:
        rows: list[list[Child]] = []
        for name, points in lines:
            found = dict(points)
            rows.append([name, *(text(found.get(x)) for x in xs)])
        return [panel.x or "x", *map(text, xs)], rows
    rows = [
        [name, len(points), *(text(points[round(q * (len(points) - 1))][1]) for q in QUARTERS)]
        for name, points in lines
        if points
    ]
    return ["Line", "Points", "first", "after 1/4", "after 1/2", "after 3/4", "last"], rows


# bars


def bars_figure(panel: Bars) -> Html:
    """Bars by group, each with its number; the whisker is the spread."""
    groups, members, places = bar_groups(panel)
    known = [(bar, g, m) for bar, (g, m) in zip(panel.bars, places, strict=True)]
    known = sorted(known, key=lambda one: one[1:])
    bars = [(bar.value, bar.spread or 0.0, g, m, bar.name) for bar, g, m in known[:MOST_BARS]
            if bar.value is not None]  # fmt: skip
    if not bars:
        return nothing(panel)
    ends = [v + sign * s for v, s, *_ in bars for sign in (-1, 1)]
    longest = max(len(groups[g]) for _, _, g, _, _ in bars)
    left = (34 if panel.x else 14) + LETTER * min(longest, LONGEST_NAME)
    step = 20 if len(members) > 1 else 26
    tops: dict[int, float] = {}
    heights, place = [], ROOM.top
    for k, (_, _, g, *_) in enumerate(bars):
        place += 0 if k and bars[k - 1][2] == g else 10
        tops.setdefault(g, place)
        heights.append(place)
        place += step
    room = ROOM._replace(left=left, height=place + 10 + ROOM.bottom)
    ticks = nice_ticks(min(0.0, *ends), max(0.0, *ends), 4)
    x = Axis(ticks[0], ticks[-1], left, room.width - 104, ticks, cut(panel.y, LONGEST_AXIS))
    y = Axis(0, 1, room.floor, room.top, (), cut(panel.x, LONGEST_AXIS // 2))
    names = []
    for g, top in tops.items():
        size = sum(bar[2] == g for bar in bars) * step
        names.append(
            tag("text", cut(groups[g], LONGEST_NAME), x=left - 8, y=top + size / 2, dy="0.34em",
                text_anchor="end", class_="name")
        )  # fmt: skip
    uprights = [tag("line", x1=x.at(t), x2=x.at(t), y1=room.top, y2=room.floor,
                    class_="grid" if t else "zero") for t in ticks]  # fmt: skip
    looks = [_look(m) for m in range(len(members))]
    image = svg(
        frame(x, y, room),
        uprights,
        names,
        [_beam(bar, looks[bar[3]], x, top, step) for bar, top in zip(bars, heights, strict=True)],
        title=panel.title,
        desc=f"{listed([f'{name}: {_value(v, s)}' for v, s, _, _, name in bars], 12)}.",
        room=room,
        class_="plain",
    )
    entries = [
        key(tag("rect", x=1, y=3, width=16, height=10, rx=2, class_=f"beam {look.line}"), name, 18)
        for name, look in zip(members, looks, strict=True)
        if name
    ]
    left_out = len(known) - MOST_BARS
    notes = said(f"Not drawn: {count(left_out, 'further bar')}." if left_out > 0 else "")
    rows: list[list[Child]] = [[b.name, text(b.value), text(b.spread)] for b in panel.bars]
    return figure(
        join(legend(entries) if entries else None, image, notes),
        ["Bar", panel.y or "Value", "Spread"],
        rows,
        caption=panel.title,
    )


def _value(value: float, spread: float) -> str:
    return f"{text(value, 3)} ± {text(spread, 2)}" if spread else text(value, 3)


def _beam(
    bar: tuple[float, float, int, int, str], look: Look, x: Axis, top: float, step: float
) -> Html:
    """A bar from 0 to its value, its whisker and its number."""
    value, spread, _, _, name = bar
    start, end = sorted((x.at(0), x.at(value)))
    low, high = x.at(value - spread), x.at(value + spread)
    middle = top + step / 2
    after = max(x.at(0), end, high if spread else end)
    whisker = tag("line", x1=low, x2=high, y1=middle, y2=middle, class_="whisker ink")
    return tag(
        "g",
        tag("rect", x=start, y=top + 2, width=max(1.0, end - start), height=step - 5, rx=2,
            class_=f"beam {look.line}", data_tip=f"{name}: {_value(value, spread)}"),
        whisker if spread else None,
        tag("text", _value(value, spread), x=after + 6, y=middle, dy="0.34em", class_="value"),
        class_="s",
    )  # fmt: skip


# points


def scatter_figure(panel: Scatter, numbers: Mapping[str, int]) -> Html:
    """Points in the plane: each class has its colour and its shape.

    numbers: by which the names of classes are drawn alike in all panels of an analysis.
    """
    whole: dict[str, list[Point]] = {}
    for one in panel.sets:
        if points := dots(one):
            whole.setdefault(one.name, []).extend(points)
    if not whole:
        return nothing(panel)
    shown = dict(list(whole.items())[:MOST_CLASSES])
    total = sum(map(len, shown.values()))
    share = min(1.0, MOST_DOTS / total)
    drawn = {name: spaced(points, int(share * len(points))) for name, points in shown.items()}
    room = ROOM._replace(height=400)
    xs, ys = zip(*(point for points in drawn.values() for point in points), strict=True)
    x = horizontal(nice_ticks(min(xs), max(xs), 7), cut(panel.x, LONGEST_AXIS), room)
    y = vertical(nice_ticks(min(ys), max(ys), 7), cut(panel.y, LONGEST_AXIS), room)
    styles = {name: class_style(numbers[name]) for name in drawn}
    groups = [
        tag("path", d=shape(numbers[name], [(x.at(a), y.at(b)) for a, b in points]),
            class_=f"s {styles[name]}", data_tip=name)
        for name, points in drawn.items()
    ]  # fmt: skip
    image = svg(
        frame(x, y, room),
        groups,
        title=panel.title,
        desc=f"{count(total, 'point')} of {listed(list(shown), 12)}.",
        room=room,
        class_="plain",
    )
    entries = [
        key(tag("path", d=shape(numbers[name], [(9, 8)]), class_=styles[name]), name, 18)
        for name in drawn
    ]
    left, kept = len(whole) - len(shown), sum(map(len, drawn.values()))
    notes = said(
        f"{kept:,} of {total:,} points are drawn." if kept < total else "",
        f"Not drawn: {count(left, 'further set')}." if left else "",
    )
    rows: list[list[Child]] = [
        [name, len(points), text(fmean(a for a, _ in points)), text(fmean(b for _, b in points))]
        for name, points in whole.items()
    ]
    head: list[Child] = ["Set", "Points", f"Mean {panel.x or 'x'}", f"Mean {panel.y or 'y'}"]
    return figure(join(legend(entries), image, notes), head, rows, caption=panel.title)


SHAPES = ("round", "square", "solid", "solid", "cross")


def class_style(number: int) -> str:
    """The classes of a set's path: its shape and its colour, c0 to c7, then k8 and so on."""
    k = number % MOST_CLASSES
    return f"dots {SHAPES[k % len(SHAPES)]} {'c' if k < COLOURS else 'k'}{k}"


def shape(number: int, points: Sequence[Point]) -> Html:
    """Circles, squares, triangles, diamonds or crosses at these places, in one path."""
    dx, dy, form = [
        (0, 0, "h0"),
        (0, 0, "h0"),
        (0, -4, "l3.8,6.6h-7.6z"),
        (0, -4, "l4,4-4,4-4-4z"),
        (-3, -3, "l6,6m0-6l-6,6"),
    ][number % len(SHAPES)]
    return raw("".join(f"M{short(round(x, 1) + dx)},{short(round(y, 1) + dy)}{form}"
                       for x, y in points))  # fmt: skip
