"""Colours for classes: those of the style sheet, then further ones far from them."""

import colorsys
import re
from functools import cache
from importlib import resources

from peerlearn.report.looks import COLOURS

MOST_CLASSES = 100
SATURATION = 0.85
START, TURN = 0.82, 0.411  # hues of the further ones; the first dozen is far from all before
LIGHT = (0.10, 0.17, 0.28)  # luminances, by turns: at least 3:1 from a white surface
DARK = (0.22, 0.40, 0.65)  # and from a dark one


def class_colour(k: int, *, dark: bool = False) -> str:
    """The colour of class k on a light or a dark ground.

    >>> class_colour(0), class_colour(9), class_colour(9, dark=True)
    ('#0072b2', '#527f0a', '#79bc0f')
    """
    k %= MOST_CLASSES
    return _sheet()[k][dark] if k < COLOURS else _further(k - COLOURS, dark)


@cache
def _sheet() -> list[tuple[str, str]]:
    """The colours of the style sheet, apart for every kind of colour blindness: light, dark."""
    style = resources.files("peerlearn.report").joinpath("page.css").read_text(encoding="utf-8")
    return re.findall(r"--c\d: light-dark\((#\w{6}), (#\w{6})\)", style)


def _further(k: int, dark: bool) -> str:
    wanted = (DARK if dark else LIGHT)[k % 3]
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        rgb = colorsys.hls_to_rgb((START + k * TURN) % 1, middle, SATURATION)
        low, high = (middle, high) if luminance(rgb) < wanted else (low, middle)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def luminance(rgb: tuple[float, float, float]) -> float:
    """The relative luminance of a colour, its parts in [0, 1]."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
