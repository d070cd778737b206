"""Bars, stacked or side by side."""

import math
from collections.abc import Sequence

from peerlearn.report.axes import ROOM, Room, frame, horizontal, nice_ticks, vertical
from peerlearn.report.charts import svg
from peerlearn.report.labels import cut
from peerlearn.report.looks import Look
from peerlearn.report.markup import Html, tag


def stacked_bars(
    bars: Sequence[Sequence[float]], *, names: Sequence[str], parts: int, title: str, desc: str
) -> Html:
    """One bar per task, stacked by class slot; the stronger the colour, the older the task.

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
    """Horizontal bars of (name, look, value, value as text), the longest at full width."""
    row, top, name_width, text_width = 30, 4, 156, 84
    longest = max((value for _, _, value, _ in bars), default=0) or 1
    items = []
    for i, (name, look, value, text) in enumerate(bars):
        y = top + i * row
        length = max(2.0, value / longest * (ROOM.width - name_width - text_width))
        middle = y + row / 2
        beam = tag(
            "rect", x=name_width, y=y + 3, width=length, height=row - 12, rx=3,
            class_=f"beam {look.line}", data_tip=f"{name}: {text}",
        )  # fmt: skip
        label = tag("text", cut(name), x=name_width - 10, text_anchor="end", y=middle, dy="0.1em")
        said = tag("text", text, x=name_width + length + 8, class_="value", y=middle, dy="0.1em")
        items.append(tag("g", label, beam, said, class_=look.choice))
    room = Room(height=top + row * len(bars))
    return svg(items, title=title, desc=desc, room=room)
