"""A scatter plot whose every point has its name."""

from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.report.axes import Axis, Room, frame, horizontal, nice_ticks, vertical
from peerlearn.report.charts import mark, size, svg
from peerlearn.report.labels import Box, Place, around, cut
from peerlearn.report.looks import Look
from peerlearn.report.markup import Html, join, tag


class Cloud(NamedTuple):
    """A named point of a scatter plot, the mean of the points around it."""

    name: str
    look: Look
    middle: tuple[float, float]
    runs: Sequence[tuple[str, float, float]]
    start: tuple[float, float] | None = None  # the middle of its baseline


def scatter(
    clouds: Sequence[Cloud],
    *,
    title: str,
    desc: str,
    x_label: str,
    y_label: str,
    room: Room,
    cost: bool = False,
) -> Html:
    """Named points with their runs; small y on top, so that up and right is better.

    cost: x is one, and y is not: large y on top, up and left is better.
    """
    xs = [x for c in clouds for x in (c.middle[0], *(a for _, a, _ in c.runs))]
    ys = [y for c in clouds for y in (c.middle[1], *(b for _, _, b in c.runs))]
    x = horizontal(nice_ticks(min(xs), max(xs)), x_label, room)
    y = vertical(nice_ticks(min(ys), max(ys)), y_label, room, downwards=not cost)
    middles = [(x.at(c.middle[0]), y.at(c.middle[1])) for c in clouds]
    plot = Box(room.left, room.top, room.width - 4, room.floor)
    corner = room.left if cost else room.width - 80
    better = Box(corner, room.top, corner + 80, room.top + 20)
    runs = [(x.at(a), y.at(b)) for c in clouds for _, a, b in c.runs]
    taken = [better, *(Box(a - 3, b - 3, a + 3, b + 3) for a, b in runs)]
    places = around(middles, [cut(c.name) for c in clouds], plot, taken)
    place = {"x": room.left + 8} if cost else {"x": room.width - room.right - 8}
    words, end = ("↖ better", "start") if cost else ("better ↗", "end")
    parts = [_cloud(cloud, x, y, place) for cloud, place in zip(clouds, places, strict=True)]
    up = tag("text", words, **place, y=room.top + 14, text_anchor=end, class_="hint")
    return svg(frame(x, y, room), up, parts, title=title, desc=desc, room=room, class_=size(room))


def _cloud(cloud: Cloud, x: Axis, y: Axis, place: Place) -> Html:
    """A named point with its runs, and the way from its baseline."""
    a, b = x.at(cloud.middle[0]), y.at(cloud.middle[1])
    runs = [(tip, x.at(la), y.at(lost)) for tip, la, lost in cloud.runs]
    start = (x.at(cloud.start[0]), y.at(cloud.start[1])) if cloud.start else None
    tip = f"{cloud.name}: {cloud.middle[0]:.1f}, {cloud.middle[1]:.1f}"
    name = tag(
        "text", cut(cloud.name), x=place.x, y=place.y, dy="0.34em",
        text_anchor=place.anchor, class_=f"name c{cloud.look.colour}",
    )  # fmt: skip
    leader = tag("line", x1=a, y1=b, x2=place.x, y2=place.y, class_="leader")
    return tag(
        "g",
        _move(start, (a, b), cloud.look) if start else None,
        _runs(runs, (a, b), cloud.look) if len(runs) > 1 else None,
        leader if place.far else None,
        mark(cloud.look, a, b, size=5.5, tip=tip),
        name,
        class_=cloud.look.choice,
    )


def _move(start: tuple[float, float], end: tuple[float, float], look: Look) -> Html:
    """The way from a baseline to its wrapper."""
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return tag("line", **ends, class_=f"move c{look.colour}")


def _runs(
    runs: Sequence[tuple[str, float, float]], middle: tuple[float, float], look: Look
) -> Html:
    """The single runs, tied to their mean."""
    ties = [
        tag("line", x1=middle[0], y1=middle[1], x2=x, y2=y, class_=f"tie c{look.colour}")
        for _, x, y in runs
    ]
    return join(ties, [
        tag("circle", cx=x, cy=y, r=2.5, class_=f"run c{look.colour}", data_tip=tip)
        for tip, x, y in runs
    ])  # fmt: skip
