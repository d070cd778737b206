"""Scales, ticks and the frame that every chart with two axes has."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.report.markup import Html, join, tag


class Room(NamedTuple):
    """The size of a chart and of the margins around its plot, in pixels."""

    width: float = 520
    height: float = 310
    left: float = 66
    right: float = 14
    top: float = 14
    bottom: float = 54

    @property
    def floor(self) -> float:
        """The pixel of the plot's lower edge."""
        return self.height - self.bottom


ROOM = Room()
LARGE = Room(width=700, height=400, right=165)  # names stand at the ends of lines
SMALL = Room(width=320, height=210, left=44, right=8, top=10, bottom=36)  # one of many alike


TINY = 1e-300  # has a logarithm, as what is smaller may not


class Axis(NamedTuple):
    """A way from values to pixels, with the values that get a label."""

    low: float
    high: float
    start: float
    stop: float
    ticks: tuple[float, ...]
    label: str = ""
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(v, TINY)) for v in (value, low, high))
        return self.start + (value - low) / ((high - low) or 1) * (self.stop - self.start)


def nice_ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Round numbers that enclose low and high.

    >>> nice_ticks(13, 87)
    (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
    """
    largest = max(abs(low), abs(high))
    if high - low <= 1e-12 * largest or largest < TINY:  # one value, as far as an axis can tell
        pad = abs(low) * 0.1 if largest >= TINY else 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    places = 10 - math.floor(math.log10(step))
    return tuple(round(i * step, places) for i in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten around low and high; of many powers every n-th.

    >>> log_ticks(0.3, 9)
    (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    wide = last - first > 3
    steps = (1,) if wide else (1, 2, 5)
    every = max(1, math.ceil((last - first) / 10))
    ticks = [float(f"{m}e{e}") for e in range(first, last + every, every) for m in steps]
    below = [t for t in ticks if t <= low * 1.0001] or ticks[:1]
    above = [t for t in ticks if t >= high * 0.9999] or ticks[-1:]
    return tuple(t for t in ticks if below[-1] <= t <= above[0])


def horizontal(ticks: Sequence[float], label: str, room: Room = ROOM) -> Axis:
    """The x axis that spans `ticks`, with space for marks at both ends."""
    start, stop = room.left + 10, room.width - room.right - 10
    return Axis(ticks[0], ticks[-1], start, stop, tuple(ticks), label)


def vertical(
    ticks: Sequence[float],
    label: str,
    room: Room = ROOM,
    *,
    log: bool = False,
    downwards: bool = False,
) -> Axis:
    """The y axis that spans `ticks`; `downwards` puts the smallest value on top."""
    start, stop = (room.top, room.floor) if downwards else (room.floor, room.top)
    return Axis(ticks[0], ticks[-1], start, stop, tuple(ticks), label, log)


def thin(ticks: Sequence[float], most: int = 10) -> list[float]:
    """Every n-th tick, so that at most `most` labels stand side by side."""
    return list(ticks[:: max(1, math.ceil(len(ticks) / most))])


def frame(x: Axis, y: Axis, room: Room = ROOM) -> Html:
    """Grid lines, tick labels and axis labels."""
    right = room.width - room.right
    grid = [
        tag("line", x1=room.left, x2=right, y1=y.at(t), y2=y.at(t), class_="grid") for t in y.ticks
    ]
    y_labels = [
        tag("text", plain(t), x=room.left - 8, y=y.at(t), dy="0.34em", text_anchor="end")
        for t in y.ticks
    ]
    x_labels = [
        tag("text", plain(t), x=x.at(t), y=room.floor + 18, text_anchor="middle")
        for t in thin(x.ticks)
    ]
    return join(grid, y_labels, x_labels, _axis_names(x, y, room))


def _axis_names(x: Axis, y: Axis, room: Room) -> Html:
    middle = {"x": (room.left + room.width - room.right) / 2, "y": room.height - 8}
    turned = f"translate(11 {(room.top + room.floor) / 2:g}) rotate(-90)"
    below = tag("text", x.label, **middle, text_anchor="middle", class_="ax")
    aside = tag("text", y.label, text_anchor="middle", class_="ax", transform=turned)
    return join(below if x.label else None, aside if y.label else None)


def plain(value: float) -> str:
    """A tick label without needless digits, and with a true minus sign.

    >>> plain(20000), plain(0.25), plain(5), plain(1e9)
    ('20k', '0.25', '5', '1e+09')
    """
    text = f"{value / 1000:g}k" if 1e4 <= abs(value) < 1e7 else f"{value:g}"
    return text.replace("-", "\N{MINUS SIGN}")
