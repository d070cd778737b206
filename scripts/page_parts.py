"""What the scripts that write pages of results share."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeGuard

from peerlearn.report.markup import Html
from peerlearn.results.formats import number, points, probability
from peerlearn.results.layout import NOTHING, Cell
from peerlearn.results.series import Series
from peerlearn.results.statistics import Paired, holm, paired, spread


def mean(values: Sequence[float]) -> str:
    """Mean and standard deviation in percent."""
    found = spread(values)
    std = "" if found.std is None else f" ± {100 * found.std:.1f}"
    return number(100 * found.mean, ".1f") + std


def gain(one: Series, rival: Series | None, metric: str = "AA") -> Paired | None:
    """The difference from another series, paired by seed; None from itself or from nothing."""
    if rival is None or rival is one:
        return None
    return difference(one.values(metric), rival.values(metric))


def difference(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    """The difference of values by seed on the seeds that both have; None without any."""
    seeds = [seed for seed in mine if seed in theirs]
    return paired([mine[k] for k in seeds], [theirs[k] for k in seeds]) if seeds else None


def by_means(one: Series) -> dict[int, float]:
    """AA by nearest class means, by seed; empty unless every finished run has it."""
    found = {run.seed: (run.summary.ncm or {}).get("AA") for run in one.done}
    known = {seed: aa for seed, aa in found.items() if aa is not None}
    return known if len(known) == len(found) else {}


def mean_or_nothing(values: Mapping[int, float]) -> str:
    """Mean and standard deviation in percent, or a dash."""
    return mean([*values.values()]) if values else NOTHING


def cells(
    rows: Sequence[Sequence[str | Paired | None]], *, short: bool = False
) -> list[list[Cell]]:
    """The cells of a table, with differences in points, their p, and Holm's p over the table.

    A comparison that stands in the table twice, the second time the other way round, counts once.
    short: of p and Holm's p the second alone.
    """
    family = {_claim(cell): cell.p for row in rows for cell in row if _has_p(cell)}
    corrected = dict(zip(family, holm([p or 0.0 for p in family.values()]), strict=True))
    several = len(family) > 1

    def text(cell: str | Paired | None) -> str:
        if not isinstance(cell, Paired):
            return NOTHING if cell is None else cell
        holm_p = corrected.get(_claim(cell)) if several else None
        if short and holm_p is not None:
            return f"{points(cell)} (Holm {probability(holm_p)})"
        return points(cell, detail=True, holm=holm_p)

    return [[Cell(text(cell)) for cell in row] for row in rows]


def _has_p(cell: str | Paired | None) -> TypeGuard[Paired]:
    return isinstance(cell, Paired) and cell.p is not None


def _claim(one: Paired) -> tuple[int, float, float | None]:
    """Equal for a comparison and for the same the other way round."""
    return one.n, round(abs(one.difference), 9), None if one.p is None else round(one.p, 12)


def first_picture(part: Html | None) -> str:
    """The first picture in a part of the report, as an SVG that stands alone."""
    found = re.search(r"<svg.*?</svg>", str(part), re.DOTALL)
    assert found
    style = resources.files("peerlearn.report").joinpath("page.css").read_text(encoding="utf-8")
    head, _, body = found[0].partition(">")
    if "xmlns=" not in head:
        head += ' xmlns="http://www.w3.org/2000/svg"'
    return f"{head}><style>{style}</style>{body}\n"


def write_between(path: Path, start: str, end: str, text: str) -> None:
    """Put a text between two marks of a page."""
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
