"""Places for names, so that none covers another."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LETTER = 7.4  # pixels, about the width of a letter of the charts
LINE = 15.0  # pixels from a line of text to the next
LONGEST = 22  # letters of a name in a chart


def cut(name: str, longest: int = LONGEST) -> str:
    """A name that is not too long for a chart.

    >>> cut("er+ccldc, stages=2, lr=0.01")
    'er+ccldc, stages=2, l…'
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def apart(
    places: Sequence[float], lowest: float, gap: float = LINE, highest: float = -math.inf
) -> list[float]:
    """Places moved until they are `gap` apart; those that crowd share the way to both sides.

    >>> apart([10, 12, 45], lowest=50, gap=10), apart([10, 12], lowest=50, gap=10, highest=8.0)
    ([6.0, 16.0, 45.0], [8.0, 18.0])
    """

    def top(crowd: Sequence[int]) -> float:
        """Where the first of a crowd stands, all of it around the middle of its places."""
        middle = math.fsum(places[i] for i in crowd) / len(crowd)
        below = lowest - (len(crowd) - 1) * gap
        return max(highest, min(middle - (len(crowd) - 1) / 2 * gap, below))

    crowds: list[list[int]] = []
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        crowds.append([i])
        while len(crowds) > 1 and top(crowds[-1]) < top(crowds[-2]) + gap * len(crowds[-2]):
            crowds[-2:] = [crowds[-2] + crowds[-1]]
    moved = [0.0] * len(places)
    for crowd in crowds:
        for k, i in enumerate(crowd):
            moved[i] = top(crowd) + k * gap
    return moved


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "Box") -> float:
        """The area that both cover."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, wide) * max(0.0, high)


class Place(NamedTuple):
    """Where a name begins (or ends, by `anchor`), and whether a leader is needed."""

    x: float
    y: float
    anchor: str
    far: bool


def around(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    within: Box,
    taken: Iterable[Box] = (),
) -> list[Place]:
    """A place for the name of each point: the one near it that covers the least."""
    full = [*taken, *(Box(x - 6, y - 6, x + 6, y + 6) for x, y in points)]
    places = []
    for (x, y), name in zip(points, names, strict=True):
        options = [(_covered(p, name, within, full), k, p) for k, p in enumerate(_options(x, y))]
        _, _, best = min(options, key=lambda option: option[:2])
        full.append(box_of(best, name))
        places.append(best)
    return places


def _options(x: float, y: float) -> list[Place]:
    """Beside the point first, then further and further away."""
    near = [(10, 0), (-10, 0), (0, -13), (0, 13)]
    far = [(dx, dy) for r in (1, 2, 3, 4) for dy in (-16 * r, 16 * r) for dx in (12 * r, -12 * r)]
    return [
        Place(x + dx, y + dy, "start" if dx > 0 else "end" if dx < 0 else "middle", k >= len(near))
        for k, (dx, dy) in enumerate([*near, *far])
    ]


def box_of(place: Place, name: str) -> Box:
    """What a name covers."""
    wide = LETTER * len(name)
    left = place.x - {"start": 0.0, "middle": wide / 2, "end": wide}[place.anchor]
    return Box(left, place.y - LINE / 2, left + wide, place.y + LINE / 2)


def _covered(place: Place, name: str, within: Box, full: Sequence[Box]) -> float:
    box = box_of(place, name)
    whole = (box.right - box.left) * (box.bottom - box.top)
    outside = whole - box.overlap(within)
    return round(sum(box.overlap(other) for other in full) + 4 * outside, 3)
