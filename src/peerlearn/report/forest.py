"""Differences with their intervals, a row each."""

from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.report.axes import Axis, Room, nice_ticks, plain
from peerlearn.report.charts import svg
from peerlearn.report.labels import cut
from peerlearn.report.markup import Html, tag


class Interval(NamedTuple):
    """A row of a forest plot: a difference, its interval if there is one, and what it means."""

    name: str
    value: float
    low: float | None
    high: float | None
    text: str
    tone: str


def forest(rows: Sequence[Interval], *, title: str, desc: str, unit: str) -> Html:
    """A point and its interval per row beside the line of no difference.

    An interval that leaves the chart is drawn without its end; a point without one is hollow.
    """
    step, left, right = 26.0, 176.0, 64.0
    room = Room(height=step * len(rows) + 58, left=left, right=right, top=8, bottom=44)
    reach = 1.6 * max(abs(row.value) for row in rows) or 1.0
    ends = [0.0, *(row.value for row in rows)]
    ends += [max(-reach, min(reach, e)) for r in rows for e in (r.low, r.high) if e is not None]
    ticks = nice_ticks(min(ends), max(ends), 4)
    x = Axis(ticks[0], ticks[-1], left, room.width - right, ticks)
    grid = [
        tag("line", x1=x.at(t), x2=x.at(t), y1=room.top, y2=room.floor,
            class_="zero" if t == 0 else "grid")
        for t in ticks
    ]  # fmt: skip
    labels = [
        tag("text", plain(t), x=x.at(t), y=room.floor + 16, text_anchor="middle") for t in ticks
    ]
    below = tag("text", unit, x=(x.start + x.stop) / 2, y=room.height - 6, text_anchor="middle")
    parts = [_interval(row, x, room.top + step * (k + 0.5), room) for k, row in enumerate(rows)]
    return svg(grid, labels, below, parts, title=title, desc=desc, room=room)


def _interval(row: Interval, x: Axis, y: float, room: Room) -> Html:
    parts = []
    if row.low is not None and row.high is not None:
        low, high = max(row.low, x.low), min(row.high, x.high)
        parts.append(tag("line", x1=x.at(low), x2=x.at(high), y1=y, y2=y, class_="whisker"))
        parts += [
            tag("line", x1=x.at(end), x2=x.at(end), y1=y - 4, y2=y + 4, class_="whisker")
            for end, inner in ((row.low, low), (row.high, high))
            if end == inner
        ]
    hollow = "" if row.low is not None else " hollow"
    name = tag("text", cut(row.name), x=room.left - 12, y=y, dy="0.34em", text_anchor="end")
    dot = tag("circle", cx=x.at(row.value), cy=y, r=4.5, class_=f"dot{hollow}")
    said = tag("text", row.text, x=room.width - room.right + 10, y=y, dy="0.34em", class_="value")
    tip = f"{row.name}: {row.text}"
    return tag("g", name, parts, dot, said, class_=f"gain {row.tone}", data_tip=tip)
