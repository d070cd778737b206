"""Tables of the paper on the page: published beside measured."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from peerlearn.records.reproduction import FOLDER, Reproduction, read_reproduction
from peerlearn.report.markup import Html, table, tag
from peerlearn.results.layout import Layout
from peerlearn.results.reproduced import Part, parts


def reproductions_in(roots: Iterable[Path]) -> list[Reproduction]:
    """The tables that some folders of runs hold, by the names of their files."""
    files = [file for root in roots for file in sorted((root / FOLDER).glob("*.json"))]
    return [read_reproduction(file) for file in dict.fromkeys(files)]


def show_reproductions(found: Sequence[Reproduction]) -> Html:
    """All of them, one below the other."""
    return tag("div", [_article(one, k) for k, one in enumerate(found)], class_="stack")


def places(found: Sequence[Reproduction]) -> list[tuple[str, str]]:
    """The key of each on the page, and its name."""
    return [(_key(k), f"{one.name}, {one.scale}") for k, one in enumerate(found)]


def _key(place: int) -> str:
    return f"published-{place}"


def _article(one: Reproduction, place: int) -> Html:
    first, *rest = parts(one)
    return tag(
        "article",
        tag("h3", first.title, id=_key(place)),
        _shown(first),
        [[tag("h4", part.title), _shown(part)] for part in rest],
    )


def _shown(part: Part) -> list[Html]:
    drawn = [_table(part.layout, part.title)] if part.layout else []
    return [*drawn, *(tag("p", note) for note in part.notes)]


def _table(layout: Layout, label: str) -> Html:
    looks = ["text" if head.words else None for head in layout.heads]
    named = zip(layout.heads, looks, strict=True)
    rows = [
        [
            cells[0].text,
            *(tag("td", c.text, class_=k) for c, k in zip(cells[1:], looks[1:], strict=True)),
        ]
        for block in layout.blocks
        for cells in block
    ]
    return table([tag("th", h.text, scope="col", class_=k) for h, k in named], rows, label=label)
