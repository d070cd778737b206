"""Tables as text, Markdown and LaTeX, whatever they hold."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

NOTHING, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


class Head(NamedTuple):
    """The head of a column.

    Args:
        text: what it says.
        words: whether cells are aligned to the left.
        marked: whether some cells are marked as the best.
    """

    text: str
    words: bool = False
    marked: bool = False


class Cell(NamedTuple):
    """What a person reads, and whether it is marked."""

    text: str
    best: bool = False


class Layout(NamedTuple):
    """Columns, and cells in blocks that belong together."""

    heads: Sequence[Head]
    blocks: Sequence[Sequence[Sequence[Cell]]]


def as_text(layout: Layout) -> str:
    """Columns of equal width, an empty line after each block."""
    heads, blocks = layout
    blank = [" " if head.marked else "" for head in heads]  # keeps the place of a mark
    lines: list[list[str]] = [[h.text + b for h, b in zip(heads, blank, strict=True)]]
    for block in blocks:
        for cells in block:
            lines.append(
                [c.text + ("*" if c.best else b) for c, b in zip(cells, blank, strict=True)]
            )
        lines.append([""] * len(heads))
    padded = []
    for head, texts in zip(heads, zip(*lines, strict=True), strict=True):
        width = max(map(len, texts))
        padded.append([t.ljust(width) if head.words else t.rjust(width) for t in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))


def as_markdown(layout: Layout) -> str:
    """A table in Markdown, in one piece."""
    heads, blocks = layout
    lines = [[h.text for h in heads], [":---" if h.words else "---:" for h in heads]]
    lines += [
        [_marked(c, MARKDOWN, "**{}**") for c in cells] for block in blocks for cells in block
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_latex(layout: Layout) -> str:
    """A table that needs booktabs."""
    heads, blocks = layout
    lines = [rf"\begin{{tabular}}{{{''.join('l' if h.words else 'r' for h in heads)}}}"]
    lines += [r"\toprule", rf"{' & '.join(_signs(h.text, LATEX) for h in heads)} \\"]
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
    text = _signs(cell.text, signs)
    return bold.format(text) if cell.best else text


def _signs(text: str, signs: Mapping[str, str]) -> str:
    return "".join(signs.get(c, c) for c in text)
