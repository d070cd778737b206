import itertools
import math
import re
from collections.abc import Iterable
from importlib import resources

import pytest

from peerlearn.report.heat import opacity, tone

CSS = resources.files("peerlearn.report").joinpath("page.css").read_text()
TOKENS = dict(re.findall(r"--([\w-]+): (light-dark\(.*?\)|#\w+);", CSS))
BLINDNESS = {  # Machado, Oliveira and Fernandes 2009, full severity, on linear RGB
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.052)),
    "deutan": ((0.3673, 0.8606, -0.228), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "tritan": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}  # fmt: skip
Colour = tuple[float, ...]


def srgb(name: str, dark: bool) -> Colour:
    codes = re.findall(r"#\w{6}", TOKENS[name])
    code = codes[-1 if dark else 0]
    return tuple(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))


def linear(parts: Iterable[float]) -> Colour:
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def colour(name: str, dark: bool) -> Colour:
    return linear(srgb(name, dark))


def contrast(a: Colour, b: Colour) -> float:
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Colour) -> Colour:
    r, g, b = (min(1.0, max(0.0, c)) for c in rgb)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out_from_their_ground(dark: bool) -> None:
    for ground in ("page", "surface", "sunken"):
        for name in ("ink", "soft", "accent", "good", "bad"):
            assert contrast(colour(name, dark), colour(ground, dark)) >= 4.5, (name, ground)
    for k in range(8):
        assert contrast(colour(f"c{k}", dark), colour("surface", dark)) >= 3, k


@pytest.mark.parametrize("blind", BLINDNESS)
@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_of_methods_stay_apart_for_every_kind_of_eyes(dark: bool, blind: str) -> None:
    seen = []
    for k in range(8):
        rgb = colour(f"c{k}", dark)
        seen.append(lab(tuple(sum(a * b for a, b in zip(row, rgb, strict=True))
                              for row in BLINDNESS[blind])))  # fmt: skip
    for (i, a), (j, b) in itertools.combinations(enumerate(seen), 2):
        assert math.dist(a, b) >= 15, (i, j)


@pytest.mark.parametrize("dark", [False, True])
def test_the_number_in_a_heat_map_stands_out_from_every_cell(dark: bool) -> None:
    ground, heat = (srgb(name, dark) for name in ("surface", "heat"))
    for k in range(101):
        part = opacity(k / 100)
        cell = linear([(1 - part) * a + part * b for a, b in zip(ground, heat, strict=True)])
        assert contrast(colour(f"heat-{tone(k / 100)}", dark), cell) >= 4.45, k
