"""Tables of results as text, Markdown, LaTeX, CSV and JSON, from one layout of columns."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from peerlearn.errors import UserError, did_you_mean
from peerlearn.metrics.table import EVERY, SHOWN
from peerlearn.records.folder import shown
from peerlearn.records.read import RunRecord
from peerlearn.records.schema import Cost
from peerlearn.results.along import HOW
from peerlearn.results.compare import BEST, compare
from peerlearn.results.layout import (
    MINUS,
    NOTHING,
    Cell,
    Head,
    Layout,
    as_latex,
    as_markdown,
    as_text,
)
from peerlearn.results.legend import differing, legend, points_of, updates_of
from peerlearn.results.series import Gain, Group, Series
from peerlearn.results.statistics import Paired, Spread
from peerlearn.units import duration, printable

STYLES = ("text", "markdown", "latex", "csv", "json")


def render(
    runs: Sequence[RunRecord] | Sequence[Group], style: str, *, answers: bool = False
) -> str:
    """Return a table of runs, or of what `compare` made of them, without a newline at the end.

    answers: show AA by nearest class means beside AA.
    """
    if style not in STYLES:
        raise UserError(did_you_mean(f"there is no table style {style!r}", style, STYLES))
    records = [run for run in runs if isinstance(run, RunRecord)]
    groups = [group for group in runs if isinstance(group, Group)]
    groups = groups or compare(records)
    if style == "csv":
        return _csv(groups)
    if style == "json":
        return _json(groups)
    writers = {"text": _text, "markdown": _markdown, "latex": _latex}
    notes = [*legend(groups), *([NCM_NOTE] if answers else [])]
    return writers[style](_layout(groups, answers=answers), notes)


class Row(NamedTuple):
    """A series in its group."""

    group: Group
    series: Series


@dataclass(frozen=True)
class Column:
    """A column for people: `show` gives "" for nothing."""

    head: str
    show: Callable[[Row], str]
    words: bool = False  # aligned to the left
    metric: str = ""  # whose best values are marked
    where_rows_differ: bool = False  # left out if all have the same

    def best(self, row: Row) -> bool:
        """Whether the value of a row is marked."""
        return row.series.label in row.group.best.get(self.metric, ())

    def needed(self, rows: Sequence[Row]) -> bool:
        """Whether it tells something of these rows; all are of an empty table."""
        shown = [self.show(row) for row in rows]
        return differing(shown) if self.where_rows_differ else not rows or any(shown)


def _metric_column(name: str) -> Column:
    return Column(name, lambda row: _percent(row.series.spread(name)), metric=name)


def _percent(spread: Spread | None) -> str:
    """A mean and its deviation in percent; "" for nothing."""
    if spread is None:
        return ""
    std = "" if spread.std is None else f" ± {100 * spread.std:.2f}"
    return number(100 * spread.mean, ".2f") + std


def _cost_column(head: str, name: str, unit: Callable[[float], str]) -> Column:
    def show(row: Row) -> str:
        cost = row.series.cost(name)
        return "" if cost is None else unit(cost)

    return Column(head, show)


def _show_gain(row: Row) -> str:
    gain = row.series.gain and row.series.gain.metrics.get("AA")
    return points(gain, detail=True) if gain else ""


def points(gain: Paired, *, detail: bool = False, holm: float | None = None) -> str:
    """A difference in points with its interval, and in detail its p, Holm's p if given, and n.

    >>> points(Paired(3, 0.11, 0.01, 0.085, 0.135, 0.0027), detail=True)
    '+11.0 [+8.5, +13.5] (p 0.0027, n 3)'
    >>> points(Paired(3, 0.11, 0.01, 0.085, 0.135, 0.0027), detail=True, holm=0.0054)
    '+11.0 [+8.5, +13.5] (p 0.0027, Holm 0.0054, n 3)'
    >>> points(Paired(3, 0.11, 0.0, None, None, None), detail=True)
    '+11.0 (equal in all seeds: no p, n 3)'
    """
    text = number(100 * gain.difference, "+.1f")
    if gain.low is not None and gain.high is not None:
        text += f" [{number(100 * gain.low, '+.1f')}, {number(100 * gain.high, '+.1f')}]"
    if not detail:
        return text
    facts = [] if gain.p is None else [f"p {probability(gain.p)}"]
    facts += [] if holm is None else [f"Holm {probability(holm)}"]
    facts += ["equal in all seeds: no p"] if gain.n > 1 and gain.p is None else []
    return f"{text} ({', '.join([*facts, f'n {gain.n}'])})"


def number(value: float, form: str) -> str:
    """A number with a true minus sign, and without one before a zero.

    >>> number(-0.04, "+.1f")
    '+0.0'
    """
    digits = int(form[-2])
    return f"{round(value, digits) + 0.0:{form}}".replace("-", MINUS)


def probability(p: float) -> str:
    """A p as a person reads it.

    >>> probability(0.2), probability(0.012), probability(0.0001)
    ('0.20', '0.012', '<0.001')
    """
    if p < 0.001:
        return "<0.001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def times(factor: float) -> str:
    """A factor, such as 74.0x."""
    return f"{factor:.1f}x"


def size(number: float) -> str:
    """A number of bytes in the unit that fits.

    >>> size(512), size(614_400), size(1.23e9)
    ('512 B', '614.4 kB', '1.2 GB')
    """
    if round(number) < 1000:
        return f"{number:.0f} B"
    for unit in ("kB", "MB"):
        number /= 1000
        if number < 999.95:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} GB"


COLUMNS = (
    Column("data", lambda row: printable(row.group.data), words=True),
    Column("memory", lambda row: str(row.group.memory)),
    Column("method", lambda row: printable(row.series.name), words=True),
    Column("n", lambda row: str(len(row.series.done))),
    *map(_metric_column, SHOWN),
    Column("points", lambda row: points_of(row.series), words=True, where_rows_differ=True),
    Column("gain", _show_gain),
    _cost_column("k", "relative", times),
    Column("updates", lambda row: updates_of(row.series), where_rows_differ=True),
    _cost_column("forward", "forward_per_image", times),
    _cost_column("backward", "backward_per_image", times),
    _cost_column("training", "train_seconds", duration),
    _cost_column("peak", "peak_bytes", size),
    _cost_column("kept", "kept_bytes", size),
    Column("note", lambda row: printable(row.series.note), words=True),
)


NCM_NOTE = (
    "AA ncm: AA by nearest class means of the memory's features, of the networks that a run "
    "predicts with."
)
NCM = Column("AA ncm", lambda row: _percent(row.series.spread_by_means))


def _layout(groups: Sequence[Group], *, answers: bool) -> Layout:
    """The columns that hold something, in blocks of one data and memory."""
    blocks = [[Row(group, series) for series in group.series] for group in groups]
    rows = [row for block in blocks for row in block]
    shown = [more for c in COLUMNS for more in ((c, NCM) if answers and c.head == "AA" else (c,))]
    columns = [c for c in shown if c.needed(rows)]
    heads = [Head(c.head, c.words, bool(c.metric)) for c in columns]
    return Layout(heads, [[_cells(columns, row) for row in block] for block in blocks])


def _cells(columns: Sequence[Column], row: Row) -> list[Cell]:
    return [Cell(c.show(row) or ("" if c.words else NOTHING), c.best(row)) for c in columns]


def _text(layout: Layout, notes: Sequence[str]) -> str:
    return "\n".join([as_text(layout), *notes, f"*: {BEST}."])


def _markdown(layout: Layout, notes: Sequence[str]) -> str:
    return f"{as_markdown(layout)}\n\n{' '.join(notes)} Bold: {BEST}."


def _latex(layout: Layout, notes: Sequence[str]) -> str:
    lines = [*(f"% {line}" for line in notes), f"% Bold: {BEST}.", "% Needs booktabs."]
    return "\n".join([*lines, as_latex(layout)])


def _json(groups: Sequence[Group]) -> str:
    return json.dumps(records(groups), indent=2, allow_nan=False, default=str)


def records(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Rows for programs: accuracies in [0, 1], seconds, bytes, None for nothing."""
    return [_record(group, series) for group in groups for series in group.series]


def _record(group: Group, series: Series) -> dict[str, Any]:
    record: dict[str, Any] = {
        "data": group.data, "memory": group.memory, "method": series.method,
        "variant": series.variant, "label": series.label,
        "n": len(series.done), "seeds": list(series.seeds),
    }  # fmt: skip
    for name in EVERY:
        spread = series.spread(name)
        record[name] = spread and spread.mean
        for part in ("std", "low", "high"):
            record[f"{name}_{part}"] = getattr(spread, part, None)
    by_means = series.spread_by_means
    record |= {"AA_ncm": by_means and by_means.mean, "AA_ncm_std": by_means and by_means.std}
    record["gain"] = series.gain and _gain(series.gain, "AA")
    record["gains"] = series.gain and {name: _gain(series.gain, name) for name in SHOWN}
    record["along"] = series.along
    record["cost"] = series.costs
    record["note"] = series.note or None
    return record


def _gain(gain: Gain, metric: str) -> dict[str, Any] | None:
    found = gain.metrics.get(metric)
    return found and {"baseline": gain.baseline.label, **found._asdict()}


def _csv(groups: Sequence[Group]) -> str:
    rows = [_flat(record) for record in records(groups)]
    out = io.StringIO()
    writer = csv.DictWriter(out, _flat_heads(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


PARTS = {"": "difference", "_low": "low", "_high": "high", "_p": "p", "_n": "n"}  # of a gain


def _flat_heads() -> list[str]:
    metrics = [f"{name}{part}" for name in EVERY for part in ("", "_std", "_low", "_high")]
    gains = [f"gain{part}" for part in PARTS]
    others = [f"gain_{name}{part}" for name in SHOWN[1:] for part in PARTS]
    head = ["data", "memory", "method", "variant", "label", "n", "seeds"]
    along = [f"along_{name}" for name in HOW]
    metrics += ["AA_ncm", "AA_ncm_std"]
    return [*head, *metrics, *gains, *others, *along, *Cost.model_fields, "note"]


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record without lists and mappings."""
    gain, gains, cost = record.pop("gain"), record.pop("gains") or {}, record.pop("cost")
    record["seeds"] = " ".join(map(str, record["seeds"]))
    record["variant"] = ", ".join(f"{k}={shown(v)}" for k, v in record["variant"].items())
    named = {"gain": gain, **{f"gain_{name}": gains.get(name) for name in SHOWN[1:]}}
    flat = {
        f"{head}{part}": (values or {}).get(key)
        for head, values in named.items()
        for part, key in PARTS.items()
    }
    along = {f"along_{name}": value for name, value in record.pop("along").items()}
    row = {**record, **flat, **along, **cost}
    return {name: printable(v) if isinstance(v, str) else v for name, v in row.items()}
