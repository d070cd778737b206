"""What the figures of panels share: numbers in words, legends, and what is said beside a chart."""

from collections.abc import Sequence

from peerlearn.records.analysis import Panel
from peerlearn.report.markup import Child, Html, tag
from peerlearn.report.panels import EMPTY
from peerlearn.results.layout import MINUS, NOTHING

MANY_NAMES = 24  # in a legend before it scrolls
LONGEST_AXIS = 60  # letters beside an axis
LONGEST_NAME = 16  # letters beside a bar or a row


def text(value: float | None, digits: int = 4) -> str:
    """A number in a few digits, with a true minus sign; a dash for none.

    >>> text(0.123456), text(20.0)
    ('0.1235', '20')
    """
    return NOTHING if value is None else f"{value:.{digits}g}".replace("-", MINUS)


def said(*notes: str) -> Html | None:
    """What a chart leaves out."""
    words = " ".join(filter(None, notes))
    return tag("p", words, class_="hint left-out") if words else None


def nothing(panel: Panel) -> Html:
    """A panel that holds no number."""
    return tag("figure", tag("figcaption", panel.title), tag("p", EMPTY, class_="hint"))


def key(shape: Child, name: str, width: int = 34) -> Html:
    """An entry of a legend: a shape around (width / 2, 8), and what it stands for."""
    image = tag("svg", shape, viewBox=f"0 0 {width} 16", aria_hidden="true", class_=f"wide{width}")
    return tag("li", tag("span", image, tag("span", name), class_="key"))


def legend(entries: Sequence[Html]) -> Html:
    """Names beside what they stand for; in a box of their own if they are many."""
    names = tag("ul", entries, class_="legend")
    if len(entries) <= MANY_NAMES:
        return names
    return tag("div", names, class_="few-rows", tabindex=0, role="region", aria_label="Names")
