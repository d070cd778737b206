"""What stands around the charts: captions, tables of the same numbers, legends, tabs."""

from collections.abc import Iterator, Sequence

from peerlearn.report.charts import Look, mark, opacity
from peerlearn.report.markup import Child, Html, table, tag


def figure(
    image: Html,
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    caption: str,
    hide_caption: bool = False,
) -> Html:
    """Return a chart with its caption and the same numbers as a table to open."""
    numbers = tag(
        "details",
        tag("summary", "Numbers", tag("span", f" of {caption}", class_="unseen")),
        table(head, rows, label=f"Numbers of {caption}", class_="numbers"),
    )
    hidden = "unseen" if hide_caption else None
    return tag("figure", tag("figcaption", caption, class_=hidden), image, numbers)


def legend(entries: Sequence[tuple[str, Look]]) -> Html:
    """Return the names beside a piece of their line and their mark."""
    items = []
    for name, look in entries:
        style = f"curve {look.line}"
        swatch = tag(
            "svg",
            tag("line", x1=1, x2=33, y1=8, y2=8, class_=style),
            mark(look, 17, 8),
            viewBox="0 0 34 16",
            aria_hidden="true",
        )
        items.append(tag("li", swatch, tag("span", name)))
    return tag("ul", items, class_="legend")


def ramp(top: float) -> Html:
    """Return the colour scale of the heat maps, from 0 to `top`."""
    steps = [
        tag("rect", x=18 * k, y=0, width=18, height=12, class_="cell", fill_opacity=opacity(k / 9))
        for k in range(10)
    ]
    image = tag("svg", steps, viewBox="0 0 180 12", aria_hidden="true", class_="ramp")
    return tag("p", "0 % ", image, f" {100 * top:.0f} %", class_="scale")


def tabs(panels: Sequence[tuple[str, Html]], *, label: str, ids: Iterator[int]) -> Html:
    """Return panels of which one shows, chosen by radio buttons: arrow keys work by themselves."""
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
