"""What stands around the charts: captions, tables of the same numbers, legends, tabs."""

from collections.abc import Iterator, Sequence

from peerlearn.report.charts import mark
from peerlearn.report.heat import opacity
from peerlearn.report.looks import Look, Looks
from peerlearn.report.markup import Child, Html, table, tag
from peerlearn.results.series import Series


def figure(
    image: Html,
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    caption: str,
    hide_caption: bool = False,
) -> Html:
    """A chart with its caption and the same numbers as a table to open."""
    numbers = tag(
        "details",
        tag("summary", "Numbers", tag("span", f" of {caption}", class_="unseen")),
        table(head, rows, label=f"Numbers of {caption}", class_="numbers"),
    )
    hidden = "unseen" if hide_caption else None
    return tag("figure", tag("figcaption", caption, class_=hidden), image, numbers)


def legend(looks: Looks, *, choose: bool = False, scroll: bool = False) -> Html:
    """The names beside a piece of their line; each is the label of the box that chooses it.

    Only one legend of the page has the boxes, in a form, so that a button can empty them all.
    scroll: in a box of its own, as there may be many.
    """
    items = [tag("li", _entry(name, look, choose)) for name, look in looks.items()]
    names = tag("ul", items, class_="legend")
    if scroll:
        names = tag("div", names, class_="many-names", tabindex=0, role="region",
                    aria_label="Names")  # fmt: skip
    if not choose:
        return names
    hint = tag("p", "Choose some to bring them out here and below.", class_="hint")
    reset = tag("button", "Show all alike", type="reset")
    return tag("form", hint, names, reset, class_="chooser", aria_label="Methods to bring out")


def _entry(name: str, look: Look, choose: bool) -> Html:
    sample = tag(
        "svg",
        tag("line", x1=1, x2=33, y1=8, y2=8, class_=f"curve {look.line}"),
        mark(look, 17, 8),
        viewBox="0 0 34 16",
        aria_hidden="true",
    )
    key = f"pick{look.key}"
    box = tag("input", type="checkbox", id=key, class_="pick") if choose else None
    return tag("label", box, sample, tag("span", name), for_=key)


def choosing(looks: Looks) -> str:
    """The style rules by which the boxes of the legend show and hide; no script takes part."""
    rules = []
    for look in looks.values():
        chosen = f"body:has(#pick{look.key}:checked)"
        rules.append(f"{chosen} .s{look.key}{{opacity:1}}")
        rules.append(f"{chosen} .s{look.key} .band{{opacity:.16}}")
        rules.append(f'{chosen} [for="pick{look.key}"]{{background:var(--sunken);opacity:1}}')
    return "\n".join(rules)


def ramp(low: str, high: str) -> Html:
    """The colour scale of heat maps, from what has the faintest colour to what has the fullest."""
    steps = [
        tag("rect", x=18 * k, y=0, width=18, height=12, class_="cell", fill_opacity=opacity(k / 9))
        for k in range(10)
    ]
    image = tag("svg", steps, viewBox="0 0 180 12", aria_hidden="true", class_="ramp")
    return tag("p", f"{low} ", image, f" {high}", class_="scale")


def tabs(panels: Sequence[tuple[str, Html]], *, label: str, ids: Iterator[int]) -> Html:
    """Panels of which one shows, chosen by radio buttons: arrow keys work by themselves."""
    if len(panels) == 1:
        return panels[0][1]
    name = f"tabs{next(ids)}"
    parts = []
    for k, (text, panel) in enumerate(panels):
        key = f"{name}-{k}"
        parts += [
            tag("input", type="radio", name=name, id=key, checked=k == 0),
            tag("label", text, for_=key),
            tag("div", panel, class_="panel"),
        ]
    wrapped = [tag("div", parts[k : k + 3], class_="tab") for k in range(0, len(parts), 3)]
    return tag("fieldset", tag("legend", label, class_="unseen"), wrapped, class_="tabs")


def count(n: int, what: str) -> str:
    """A number with its noun.

    >>> count(1, "seed"), count(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names in a sentence, not too many of them.

    >>> listed(["er", "gsa", "ocm"]), listed(["er", "gsa", "ocm"], most=2)
    ('er, gsa and ocm', 'er, gsa and 1 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def named(series: Series) -> str:
    """The name of a series, marked as unfinished if no run has come to its end."""
    return series.name if series.done else f"{series.name} (unfinished)"


def contents(links: Sequence[tuple[str, str]]) -> Html | None:
    """The ways to the parts of a section, by key and name, if there are several."""
    if len(links) < 2:
        return None
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in links]
    return tag("ul", items, class_="contents")
