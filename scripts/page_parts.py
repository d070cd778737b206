"""What the scripts that write pages of results share."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from peerlearn.report.markup import Html
from peerlearn.results.formats import number, points
from peerlearn.results.layout import NOTHING
from peerlearn.results.series import Series
from peerlearn.results.statistics import paired, spread


def mean(values: Sequence[float]) -> str:
    """Mean and standard deviation in percent."""
    found = spread(values)
    std = "" if found.std is None else f" ± {100 * found.std:.1f}"
    return number(100 * found.mean, ".1f") + std


def gain(one: Series, rival: Series | None, metric: str = "AA") -> str:
    """The difference from another series in points, paired by seed."""
    if rival is None or rival is one:
        return NOTHING
    mine, theirs = one.values(metric), rival.values(metric)
    seeds = [seed for seed in mine if seed in theirs]
    return points(paired([mine[k] for k in seeds], [theirs[k] for k in seeds]), detail=True)


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
