"""A table of the paper as text, Markdown, LaTeX and JSON: published beside measured."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from peerlearn.errors import UserError, did_you_mean
from peerlearn.metrics.table import METRICS
from peerlearn.paper.scales import HEAVY
from peerlearn.records.reproduction import (
    Bound,
    Compared,
    Gap,
    Ordered,
    Reproduction,
    Row,
    Value,
    to_json,
)
from peerlearn.results.formats import number, probability
from peerlearn.results.layout import (
    NOTHING,
    Cell,
    Head,
    Layout,
    as_latex,
    as_markdown,
    as_text,
)
from peerlearn.results.statistics import holm
from peerlearn.units import duration, printable

STYLES = ("text", "markdown", "latex", "json")
MOST_FAILING = 10  # runs below the bound that are named


class Part(NamedTuple):
    """A table of a page, and what stands above and below it."""

    title: str
    layout: Layout | None
    notes: Sequence[str]


def refuse_unknown_style(style: str) -> None:
    """Refuse a style that there is not, before hours of work."""
    if style not in STYLES:
        raise UserError(did_you_mean(f"there is no table style {style!r}", style, STYLES))


def render(found: Reproduction, style: str) -> str:
    """A reproduction, without a newline at the end."""
    refuse_unknown_style(style)
    if style == "json":
        return to_json(found)
    if style == "latex":
        return "\n\n".join(map(_latex, parts(found)))
    heading, show = ("### ", as_markdown) if style == "markdown" else ("", as_text)
    return "\n\n".join(_part(one, heading, show) for one in parts(found))


def _part(part: Part, heading: str, show: Callable[[Layout], str]) -> str:
    table = [show(part.layout).rstrip("\n")] if part.layout else []
    return "\n\n".join([f"{heading}{part.title}", *table, *part.notes])


def _latex(part: Part) -> str:
    notes = [f"% {line}" for line in (part.title, *part.notes)]
    if part.layout is None:
        return "\n".join(notes)
    table = [r"\resizebox{\linewidth}{!}{%", as_latex(part.layout) + "}"]
    return "\n".join([*notes, "% Needs booktabs and graphicx.", *table])


def parts(found: Reproduction) -> list[Part]:
    """What a person reads of it, in this order: figures, orders, the bound."""
    made = [_figures(found)]
    if found.orders:
        made.append(_orders(found))
    if found.bound:
        made.append(_bound(found.bound))
    return [one._replace(notes=[printable(note) for note in one.notes]) for one in made]


FIGURES = (
    Head("data", words=True), Head("memory"), Head("method", words=True), Head("", words=True),
    Head("published"), Head("measured"), Head("n"), Head("difference"), Head("verdict", words=True),
    Head("scale", words=True), Head("profile", words=True),
)  # fmt: skip


def _figures(found: Reproduction) -> Part:
    blocks: dict[tuple[str, int], list[list[Cell]]] = {}
    for row in found.rows:
        cells = [
            *_where(row), printable(row.row), _what(row), _value(row, row.published),
            _value(row, row.measured), str(row.measured.n if row.measured else 0),
            _gap(row, row.gap), row.verdict, row.scale, found.profile,
        ]  # fmt: skip
        blocks.setdefault((row.data, row.memory), []).append([Cell(text) for text in cells])
    title = printable(f"{found.title[:1].upper()}{found.title[1:]} ({found.source} of the paper)")
    return Part(title, Layout(FIGURES, [*blocks.values()]), _notes(found))


def _notes(found: Reproduction) -> list[str]:
    metrics = dict.fromkeys(row.metric for row in found.rows)
    notes = []
    if not found.worked and "seconds" not in metrics:
        notes.append(
            "Percent: mean ± standard deviation, published over 10 runs, measured over n seeds. "
            "difference: measured minus published, in points, with its 95 % interval (Welch), "
            "where both are of the same scale. agrees: the interval includes zero."
        )
    if "seconds" in metrics:
        notes.append("Training without evaluation, on whatever machine each run was made.")
    if found.scale == "lite":
        notes.append(
            "scale lite: shorter streams, smaller networks and memories; figures are not those of "
            "the paper and are not to be held against them. Orders are."
        )
        if any(row.row.partition("+")[0] in HEAVY for row in found.rows):
            notes.append(f"{' and '.join(HEAVY)} learn from fewer images than the other methods.")
    elsewhere = {(r.data, r.at_data) for r in found.rows if r.at_data != r.data}
    notes += [f"Published on {there}, measured on {here}." for there, here in sorted(elsewhere)]
    if "FM" in metrics and not found.worked:
        notes.append("FM as in the authors' code: no task counts less than 0.")
    doubts = dict.fromkeys((r.row, r.data, r.doubt) for r in found.rows if r.doubt)
    notes += [f"Published {found.name} of {row} on {data}: {why}." for row, data, why in doubts]
    if found.says:
        notes.append(f"The paper: {found.says}.")
    notes += [f"Best mean here by {measure}: {row}." for measure, row in found.best.items()]
    return notes


ORDERS = (
    Head("data", words=True), Head("memory"), Head("", words=True), Head("first", words=True),
    Head("second", words=True), Head("published"), Head("measured"), Head("n"),
    Head("verdict", words=True), Head("scale", words=True), Head("profile", words=True),
)  # fmt: skip


def _orders(found: Reproduction) -> Part:
    blocks: dict[tuple[str, int], list[list[Cell]]] = {}
    known = [o.measured.p for o in found.orders if o.measured and o.measured.p is not None]
    corrected = iter(holm(known) if len(known) > 1 else [])
    for row in found.orders:
        counted = row.measured is not None and row.measured.p is not None
        adjusted = next(corrected, None) if counted else None
        cells = [
            *_where(row), _what(row), printable(row.row), printable(row.other),
            _gap(row, row.published), _gap(row, row.measured, p=True, holm_p=adjusted), str(row.n),
            row.verdict, row.scale, found.profile,
        ]  # fmt: skip
        blocks.setdefault((row.data, row.memory), []).append([Cell(text) for text in cells])
    metrics = dict.fromkeys(row.metric for row in found.orders)
    unit = "in seconds" if "seconds" in metrics else "in points"
    good = [f"{name}: {METRICS[name].direction}." for name in metrics if name in METRICS]
    note = (
        f"first minus second, {unit}, with its 95 % interval: published, from means and spreads "
        "(Welch); measured, paired by seed. same order: the difference has the same sign, and "
        "neither interval includes zero. too few seeds: one or two decide nothing. Holm: p "
        "corrected for all rows of the table; "
        "the verdict is by the single interval."
    )
    return Part(
        "First minus second", Layout(ORDERS, [*blocks.values()]), (" ".join([note, *good]),)
    )


def _bound(bound: Bound) -> Part:
    held = bound.runs - len(bound.fails)
    notes = [f"On the means of runs it holds in {held} of {bound.runs}; for a task it always does."]
    named = [
        f"{f.row}, {f.data} m{f.memory}, seed {f.seed}: "
        f"{100 * (f.aa or 0):.2f} < {100 * (f.bound or 0):.2f}"
        for f in bound.fails[:MOST_FAILING]
    ]
    more = len(bound.fails) - len(named)
    if named:
        notes.append("Fails: " + "; ".join([*named, *([f"and {more} more"] if more else [])]) + ".")
    return Part("AA >= LA (1 - RF)", None, notes)


def _where(row: Row) -> tuple[str, str]:
    """Data set and memory, and in parentheses where it was measured, if elsewhere."""
    data = row.data if row.data == row.at_data else f"{row.data} ({row.at_data})"
    memory = f"{row.memory}" if row.memory == row.at_memory else f"{row.memory} ({row.at_memory})"
    return printable(data), memory


def _what(row: Row) -> str:
    return row.metric if row.by == "ensemble" else f"{row.metric}, {row.by}"


def _value(row: Row, value: Value | None) -> str:
    if value is None or value.mean is None:
        return NOTHING
    if row.metric == "seconds":
        return duration(value.mean) + (f" ± {duration(value.std)}" if value.std else "")
    spread = "" if value.std is None else f" ± {100 * value.std:.2f}"
    return number(100 * value.mean, ".2f") + spread


def _gap(
    row: Compared | Ordered, gap: Gap | None, *, p: bool = False, holm_p: float | None = None
) -> str:
    if gap is None or gap.difference is None:
        return NOTHING
    unit, form = (1, "+.0f") if row.metric == "seconds" else (100, "+.1f")
    text = number(unit * gap.difference, form)
    if gap.low is not None and gap.high is not None:
        text += f" [{number(unit * gap.low, form)}, {number(unit * gap.high, form)}]"
    if not p or gap.p is None:
        return text
    more = "" if holm_p is None else f", Holm {probability(holm_p)}"
    return f"{text} (p {probability(gap.p)}{more})"


def summary(found: Reproduction) -> str:
    """The verdicts in a line.

    >>> summary(Reproduction(name="aa", source="", title="", scale="lite", profile="paper",
    ...         rows=[], orders=[], best={}))
    'nothing to judge yet'
    """
    counts: dict[str, int] = {}
    for verdict in (*(r.verdict for r in found.rows), *(o.verdict for o in found.orders)):
        if verdict not in ("", "no figure", "other scale", "doubtful in the paper"):
            counts[verdict] = counts.get(verdict, 0) + 1
    return ", ".join(f"{verdict}: {n}" for verdict, n in counts.items()) or "nothing to judge yet"
