"""Scales, ticks and the frame that every chart with two axes has."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from peerlearn.report.markup import Html, join, tag

WIDTH, HEIGHT = 520, 310
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 54


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
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / ((high - low) or 1) * (self.stop - self.start)


def nice_ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Return round numbers that enclose low and high.

    >>> nice_ticks(13, 87)
    (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
    """
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(i * step, 10) for i in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return 1, 2 and 5 times powers of ten around low and high.

    >>> log_ticks(0.3, 9)
    (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    wide = last - first > 3
    steps = (1,) if wide else (1, 2, 5)
    ticks = [m * 10.0**e for e in range(first, last + 1) for m in steps]
    below = [t for t in ticks if t <= low * 1.0001] or ticks[:1]
    above = [t for t in ticks if t >= high * 0.9999] or ticks[-1:]
    return tuple(round(t, 10) for t in ticks if below[-1] <= t <= above[0])


def horizontal(ticks: Sequence[float], label: str) -> Axis:
    """Return the x axis that spans `ticks`, with room for marks at both ends."""
    return Axis(ticks[0], ticks[-1], LEFT + 10, WIDTH - RIGHT - 10, tuple(ticks), label)


def vertical(
    ticks: Sequence[float], label: str, *, log: bool = False, downwards: bool = False
) -> Axis:
    """Return the y axis that spans `ticks`; `downwards` puts the smallest value on top."""
    start, stop = (TOP, HEIGHT - BOTTOM) if downwards else (HEIGHT - BOTTOM, TOP)
    return Axis(ticks[0], ticks[-1], start, stop, tuple(ticks), label, log)


def thin(ticks: Sequence[float], most: int = 10) -> list[float]:
    """Return every n-th tick, so that at most `most` labels stand side by side."""
    return list(ticks[:: max(1, math.ceil(len(ticks) / most))])


def frame(x: Axis, y: Axis) -> Html:
    """Return grid lines, tick labels and axis labels."""
    grid = [
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y.at(t), y2=y.at(t), class_="grid")
        for t in y.ticks
    ]
    y_labels = [
        tag("text", plain(t), x=LEFT - 8, y=y.at(t), dy="0.34em", text_anchor="end")
        for t in y.ticks
    ]
    x_labels = [
        tag("text", plain(t), x=x.at(t), y=HEIGHT - BOTTOM + 18, text_anchor="middle")
        for t in thin(x.ticks)
    ]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    names = [
        tag("text", x.label, x=(LEFT + WIDTH) / 2, y=HEIGHT - 8, text_anchor="middle", class_="ax"),
        tag(
            "text",
            y.label,
            text_anchor="middle",
            class_="ax",
            transform=f"translate(11 {middle}) rotate(-90)",
        ),
    ]
    return join(grid, y_labels, x_labels, names)


def plain(value: float) -> str:
    """Return a tick label without needless digits.

    >>> plain(20000), plain(0.25), plain(5)
    ('20k', '0.25', '5')
    """
    return f"{value / 1000:g}k" if abs(value) >= 10000 else f"{value:g}"
