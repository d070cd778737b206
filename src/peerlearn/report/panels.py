"""What the panels of an analysis hold, ready to be drawn, on a page or in a file for a paper."""

from collections.abc import Sequence
from typing import TypeVar

from peerlearn.records.analysis import Analysis, Bars, Curve, Lines, Points, Scatter
from peerlearn.report.axes import TINY, log_ticks, nice_ticks

T = TypeVar("T")
Point = tuple[float, float]
Pieces = list[list[Point]]
EMPTY = "There is nothing to draw."
MOST_LINES = 24  # of a panel; more cannot be told apart
MOST_MARKS = 100  # of tasks


def pieces(curve: Curve, *, log: bool = False) -> Pieces:
    """The unbroken parts of a line: None ends one, and on a log axis all that is not above 0.

    >>> pieces(Curve(name="loss", x=[1, 2, 3, 4], y=[5, None, 6, 7]))
    [[(1.0, 5.0)], [(3.0, 6.0), (4.0, 7.0)]]
    """
    found: Pieces = [[]]
    for x, y in zip(curve.x, curve.y, strict=True):
        if x is None or y is None or (log and y < TINY):
            found.append([])
        else:
            found[-1].append((x, y))
    return [piece for piece in found if piece]


def some_pieces(curve: Curve, most: int, *, log: bool = False) -> Pieces:
    """The parts of a line with at most about so many points, its peaks among them."""
    whole = pieces(curve, log=log)
    total = sum(map(len, whole))
    if total <= most:
        return whole
    return [thinned(piece, most * len(piece) // total) for piece in spaced(whole, most // 4)]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Both ends of a line, and the highest and the lowest point of each stretch between.

    >>> thinned([(0, 0), (1, 9), (2, 1), (3, 2), (4, -5), (5, 0)], most=4)
    [(0, 0), (1, 9), (4, -5), (5, 0)]
    """
    if len(points) <= most:
        return list(points)
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(points) - 1}
    for k in range(stretches):
        part = range(k * len(points) // stretches, (k + 1) * len(points) // stretches)
        kept |= {min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def spaced(items: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spread over all; one at least.

    >>> spaced("abcdef", 3)
    ['a', 'c', 'e']
    """
    n = min(len(items), max(1, most))
    return [items[k * len(items) // n] for k in range(n)]


def lines_of(panel: Lines) -> tuple[list[Curve], list[float], list[str]]:
    """The lines to draw, the marks of tasks, and what is left out."""
    whole = [line for line in panel.lines if _drawable(line, panel.log)]
    marks = [mark for mark in panel.marks if mark is not None]
    left = []
    below = sum(y < TINY for line in panel.lines for y in line.y if y is not None)
    if panel.log and below:
        values = "value" if below == 1 else "values"
        left.append(f"Left out: {below:,} {values} not above 0, for which a log axis has no place.")
    if len(whole) > MOST_LINES:
        left.append(f"Left out: {len(whole) - MOST_LINES:,} further lines.")
    if len(marks) > MOST_MARKS:
        left.append(f"Left out: {len(marks):,} marks of tasks.")
    return whole[:MOST_LINES], marks if len(marks) <= MOST_MARKS else [], left


def _drawable(curve: Curve, log: bool) -> bool:
    points = zip(curve.x, curve.y, strict=True)
    return any(x is not None and y is not None and (y >= TINY or not log) for x, y in points)


def ticks_of_logs(ys: Sequence[float]) -> tuple[float, ...]:
    """The ticks of a log axis around some values; round numbers where these are close together.

    >>> ticks_of_logs([2.2, 2.9]), ticks_of_logs([1.0])
    ((2.2, 2.4, 2.6, 2.8, 3.0), (0.5, 1.0, 2.0))
    """
    low, high = min(ys), max(ys)
    if high <= low:
        return log_ticks(low / 2, high * 2)
    ticks = log_ticks(low, high)
    return ticks if len(ticks) > 2 else tuple(t for t in nice_ticks(low, high) if t > 0)


def dots(curve: Curve) -> list[Point]:
    """The points of a set that have both coordinates."""
    return [point for piece in pieces(curve) for point in piece]


def groups_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """The group of each bar and its name there; without groups, its whole name and nothing.

    Names tell of groups where each is two names with a comma or a colon between, and all
    combinations are there. The one of which there are more kinds names the groups.

    >>> groups_of(["er, X0", "er, X1", "er, X2", "er+ccl, X0", "er+ccl, X1", "er+ccl, X2"])[-1]
    ('X2', 'er+ccl')
    """
    for between in (", ", ": "):
        for parted in (str.rpartition, str.partition):
            parts = [parted(name, between) for name in names]
            pairs = [(head, tail) for head, found, tail in parts if found]
            heads, tails = (len({pair[k] for pair in pairs}) for k in (0, 1))
            whole = len(set(pairs)) == len(names) == heads * tails
            if whole and min(heads, tails) > 1:
                return pairs if heads > tails else [(tail, head) for head, tail in pairs]
    return [(name, "") for name in names]


def bar_groups(panel: Bars) -> tuple[list[str], list[str], list[tuple[int, int]]]:
    """The names of groups, those of the bars within them, and the place of each bar in both."""
    pairs = groups_of([bar.name for bar in panel.bars])
    if not any(member for _, member in pairs):
        return [name for name, _ in pairs], [""], [(k, 0) for k in range(len(pairs))]
    groups, members = (list(dict.fromkeys(part)) for part in zip(*pairs, strict=True))
    return groups, members, [(groups.index(g), members.index(m)) for g, m in pairs]


def heat_top(rows: Sequence[Points]) -> float:
    """The value with the fullest colour."""
    return max((v for row in rows for v in row if v is not None), default=0.0)


def numbered(names: Sequence[str], n: int) -> list[str]:
    """A name for each of n; their numbers for those that have none.

    >>> numbered(["cat"], 3)
    ['cat', '2', '3']
    """
    return [names[k] if k < len(names) else str(k + 1) for k in range(n)]


def line_numbers(analysis: Analysis) -> dict[str, int]:
    """A number for the name of each line, by which it is drawn alike in all panels."""
    names = [line.name for p in analysis.panels if isinstance(p, Lines) for line in p.lines]
    return {name: k for k, name in enumerate(dict.fromkeys(names))}


def class_numbers(analysis: Analysis) -> dict[str, int]:
    """A number for the name of each set of points, likewise."""
    names = [one.name for p in analysis.panels if isinstance(p, Scatter) for one in p.sets]
    return {name: k for k, name in enumerate(dict.fromkeys(names))}
