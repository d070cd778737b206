"""HTML and SVG built from Python values: what is not `Html` is escaped, without exception."""

import html
from collections.abc import Iterable
from typing import Union

Child = Union["Html", str, int, float, None, Iterable["Child"]]

SHAPES = {"circle", "path", "rect", "line", "polyline", "polygon"}
VOID = frozenset({"input", "meta", "br", "img", *SHAPES})
TIMES = "\N{MULTIPLICATION SIGN}"
CODES = {*range(32), 127, *range(0xD800, 0xE000)} - {ord(blank) for blank in "\t\n\r"}
UNPRINTABLE = dict.fromkeys(CODES, "\N{REPLACEMENT CHARACTER}")


class Html(str):
    """Text that is markup already. Only this module and `raw` make it."""

    __slots__ = ()


def escape(text: str) -> Html:
    """`text` as it may stand anywhere, in quotes too; lone surrogates are replaced.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return Html(html.escape(text.translate(UNPRINTABLE)))


def raw(text: str) -> Html:
    """Declare text of our own as markup; never for anything read from a file."""
    return Html(text)


def join(*children: Child) -> Html:
    """Children one after the other; None is nothing."""
    return Html("".join(_texts(children)))


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` is class, `_` in names is `-`; None and False leave it out.

    >>> tag("p", "a < b", class_="note", aria_hidden="true")
    '<p class="note" aria-hidden="true">a &lt; b</p>'
    """
    parts = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(key)
        elif value is not None and value is not False:
            parts.append(f'{key}="{escape(value if isinstance(value, str) else short(value))}"')
    start = " ".join(parts)
    if name in VOID and not children:
        return Html(f"<{start}/>")
    return Html(f"<{start}>{join(*children)}</{name}>")


def short(number: float) -> str:
    """A coordinate with at most two decimals.

    >>> short(3.0), short(1 / 3)
    ('3', '0.33')
    """
    return f"{number:.2f}".rstrip("0").rstrip(".") if number % 1 else str(int(number))


def _texts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield escape(child)
        elif isinstance(child, int | float):
            yield short(child)
        elif child is not None:
            yield from _texts(child)


def table(
    head: Iterable[Child], rows: Iterable[Iterable[Child]], *, label: str, class_: str = ""
) -> Html:
    """A table that scrolls in a focusable box; the first cell of a row is its header."""
    body = []
    for row in rows:
        first, *rest = row
        cells = [cell if is_cell(cell) else tag("td", cell) for cell in rest]
        body.append(tag("tr", first if is_cell(first) else tag("th", first, scope="row"), cells))
    header = tag("tr", [c if is_cell(c) else tag("th", c, scope="col") for c in head])
    whole = tag("table", tag("thead", header), tag("tbody", body), class_=class_ or None)
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=label)


def is_cell(child: Child) -> bool:
    """Whether a child is a table cell already."""
    return isinstance(child, Html) and child.startswith(("<td", "<th"))
