"""Tables of results as text, Markdown, LaTeX, CSV and JSON, from one layout of columns."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from peerlearn.errors import UserError, did_you_mean
from peerlearn.report.reading import Cost
from peerlearn.report.tables import METRICS, Row
from peerlearn.units import duration

HIGHER_IS_BETTER = frozenset({"AA", "LA"})
NOTHING, MINUS = "–", "−"  # noqa: RUF001
LEGEND = (
    "AA, LA, FM, RF in percent: mean ± sample standard deviation over n seeds.",
    "gain: points of AA over the method before the +, on the n seeds both have; "
    "p of a two-sided paired t-test.",
    "forward, backward: images per stream image. training: without evaluation.",
)


def render(rows: Sequence[Row], style: str) -> str:
    """Return the rows in one of `STYLES`, without a newline at the end."""
    if style not in STYLES:
        raise UserError(did_you_mean(f"there is no table style {style!r}", style, STYLES))
    return STYLES[style](rows)


@dataclass(frozen=True)
class Column:
    """A column for people: `show` gives "" for nothing, `value` what `best` chooses from."""

    head: str
    show: Callable[[Row], str]
    value: Callable[[Row], float | None] = lambda _: None
    best: Callable[[Sequence[float]], float] | None = None
    words: bool = False  # aligned to the left


def _metric_column(name: str) -> Column:
    def percent(row: Row) -> float | None:
        spread = row.metrics[name]
        # as printed, so that what looks equal is equally good; + 0.0 turns -0.0 into 0.0
        return None if spread is None else round(100 * spread.mean, 2) + 0.0

    def show(row: Row) -> str:
        value, spread = percent(row), row.metrics[name]
        if value is None or spread is None:
            return ""
        std = "" if spread.std is None else f" ± {100 * spread.std:.2f}"
        return _minus(f"{value:.2f}") + std

    return Column(name, show, percent, max if name in HIGHER_IS_BETTER else min)


def _cost_column(head: str, name: str, unit: Callable[[float], str]) -> Column:
    def value(row: Row) -> float | None:
        cost: float | None = getattr(row.cost, name)
        return cost

    def show(row: Row) -> str:
        cost = value(row)
        return "" if cost is None else unit(cost)

    return Column(head, show, value, min)


def _show_gain(row: Row) -> str:
    if row.gain is None:
        return ""
    n, difference, p = row.gain
    points = round(100 * difference, 1) + 0.0
    return f"{_minus(f'{points:+.1f}')} ({'' if p is None else f'p {_probability(p)}, '}n {n})"


def _probability(p: float) -> str:
    if p < 0.001:
        return "<0.001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def _minus(number: str) -> str:
    return number.replace("-", MINUS)


def times(factor: float) -> str:
    """Return a factor, such as 74.0x."""
    return f"{factor:.1f}x"


def size(number: float) -> str:
    """Return a number of bytes in the unit that fits.

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
    Column("data", lambda row: _plain(row.data), words=True),
    Column("memory", lambda row: str(row.memory)),
    Column("method", lambda row: _plain(row.method), words=True),
    Column("n", lambda row: str(row.n)),
    *map(_metric_column, METRICS),
    Column("gain", _show_gain),
    _cost_column("forward", "forward_per_image", times),
    _cost_column("backward", "backward_per_image", times),
    _cost_column("training", "train_seconds", duration),
    _cost_column("peak", "peak_bytes", size),
    _cost_column("kept", "kept_bytes", size),
    Column("note", lambda row: row.note, words=True),
)


class Cell(NamedTuple):
    """What a person reads, and whether nothing in its block is better."""

    text: str
    best: bool


class Layout(NamedTuple):
    """The columns that hold something, and the cells in blocks of one data and memory."""

    columns: list[Column]
    blocks: list[list[list[Cell]]]


def _layout(rows: Sequence[Row]) -> Layout:
    columns = [c for c in COLUMNS if not rows or any(map(c.show, rows))]
    blocks = []
    for _, some in groupby(rows, lambda row: (row.data, row.memory)):
        block = list(some)
        by_column = [_cells(column, block) for column in columns]
        blocks.append([list(cells) for cells in zip(*by_column, strict=True)])
    return Layout(columns, blocks)


def _cells(column: Column, block: Sequence[Row]) -> list[Cell]:
    values = [column.value(row) for row in block]
    known = [value for value in values if value is not None]
    best = column.best(known) if column.best and len(set(known)) > 1 else None
    empty = "" if column.words else NOTHING
    return [
        Cell(column.show(row) or empty, value is not None and value == best)
        for row, value in zip(block, values, strict=True)
    ]


def _plain(name: str) -> str:
    """Return a name from a file without what could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _text(rows: Sequence[Row]) -> str:
    columns, blocks = _layout(rows)
    blank = [" " if column.best else "" for column in columns]  # keeps the place of a mark
    lines: list[list[str]] = [[c.head + b for c, b in zip(columns, blank, strict=True)]]
    for block in blocks:
        for cells in block:
            lines.append(
                [c.text + ("*" if c.best else b) for c, b in zip(cells, blank, strict=True)]
            )
        lines.append([""] * len(columns))  # an empty line after each block
    padded = []
    for column, texts in zip(columns, zip(*lines, strict=True), strict=True):
        width = max(map(len, texts))
        padded.append([t.ljust(width) if column.words else t.rjust(width) for t in texts])
    table = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    return "\n".join([*table, *LEGEND, "*: the best of its block."])


def _markdown(rows: Sequence[Row]) -> str:
    columns, blocks = _layout(rows)
    lines = [[c.head for c in columns], [":---" if c.words else "---:" for c in columns]]
    lines += [
        [_marked(c, MARKDOWN, "**{}**") for c in cells] for block in blocks for cells in block
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{' '.join(LEGEND)} Bold: the best of its block."


def _latex(rows: Sequence[Row]) -> str:
    columns, blocks = _layout(rows)
    lines = [*(f"% {line}" for line in LEGEND), "% Bold: the best of its block. Needs booktabs."]
    lines.append(rf"\begin{{tabular}}{{{''.join('l' if c.words else 'r' for c in columns)}}}")
    lines += [r"\toprule", rf"{' & '.join(c.head for c in columns)} \\"]
    for block in blocks:
        lines.append(r"\midrule")
        for cells in block:
            texts = [_marked(cell, LATEX, r"\textbf{{{}}}") for cell in cells]
            lines.append(rf"{' & '.join(texts)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


MARKDOWN = {c: f"\\{c}" for c in "\\|*`<["}
LATEX = {c: f"\\{c}" for c in "_%&#${}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "<": "$<$", ">": "$>$", MINUS: "$-$", NOTHING: "--",
}  # fmt: skip


def _marked(cell: Cell, signs: Mapping[str, str], bold: str) -> str:
    text = "".join(signs.get(c, c) for c in cell.text)
    return bold.format(text) if cell.best else text


def _json(rows: Sequence[Row]) -> str:
    return json.dumps([_record(row) for row in rows], indent=2, allow_nan=False)


def _record(row: Row) -> dict[str, Any]:
    """Return a row for programs: accuracies in [0, 1], seconds, bytes, None for nothing."""
    record: dict[str, Any] = {name: getattr(row, name) for name in KEYS}
    for name, spread in row.metrics.items():
        record[name], record[f"{name}_std"] = spread or (None, None)
    record["gain"] = row.gain and {"baseline": row.baseline, **row.gain._asdict()}
    record["cost"] = row.cost._asdict()
    record["note"] = row.note or None
    return record


def _csv(rows: Sequence[Row]) -> str:
    metrics = [column for name in METRICS for column in (name, f"{name}_std")]
    heads = [*KEYS, *metrics, "gain", "gain_p", "gain_n", *Cost._fields, "note"]
    out = io.StringIO()
    writer = csv.DictWriter(out, heads, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        record = _record(row)
        gain, cost = record.pop("gain") or {}, record.pop("cost")
        record["seeds"] = " ".join(map(str, row.seeds))
        gains = {"gain": gain.get("difference"), "gain_p": gain.get("p"), "gain_n": gain.get("n")}
        writer.writerow({**record, **gains, **cost})
    return out.getvalue().rstrip("\n")


KEYS = ("data", "memory", "method", "n", "seeds")
STYLES: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
