"""Accuracy matrices as cells of colour."""

from collections.abc import Sequence

from peerlearn.report.axes import Room
from peerlearn.report.charts import svg
from peerlearn.report.markup import Html, short, tag


def heat_map(
    matrix: Sequence[Sequence[float]], *, top: float, room: int, title: str, desc: str
) -> Html:
    """A triangle of cells in percent; `top` has the fullest colour, `room` is in tasks."""
    n = len(matrix)
    cell, font = (46, 13) if room <= 8 else (34, 11) if room <= 12 else (27, 10)
    left, head = 42, 40
    cells = []
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            share = min(1.0, value / (top or 1))
            x, y = left + j * cell, head + i * cell
            tip = f"after task {i + 1}, on task {j + 1}: {100 * value:.1f} %"
            cells.append(
                tag(
                    "rect",
                    x=x,
                    y=y,
                    width=cell - 2,
                    height=cell - 2,
                    rx=3,
                    class_="cell",
                    fill_opacity=opacity(share),
                    data_tip=tip,
                )
            )
            text = f"{100 * value:.1f}" if room <= 12 else f"{100 * value:.0f}"
            at = {"x": x + cell / 2 - 1, "y": y + cell / 2 - 1}
            cells.append(tag("text", text, **at, class_=tone(share)))
    middle = [k * cell + cell / 2 - 1 for k in range(n)]
    labels = [
        *(tag("text", k + 1, x=left + m, y=head - 12) for k, m in enumerate(middle)),
        *(tag("text", k + 1, x=left - 12, y=head + m) for k, m in enumerate(middle)),
        tag("text", "accuracy on task", x=left + n * cell / 2, y=10, class_="ax"),
        tag(
            "text",
            "after task",
            class_="ax",
            transform=f"translate(10 {short(head + n * cell / 2)}) rotate(-90)",
        ),
    ]
    body = tag("g", labels, cells, class_="heat", font_size=font)
    size = Room(width=max(left + room * cell, 200), height=head + n * cell)
    return svg(body, title=title, desc=desc, room=size, class_="small")


def opacity(share: float) -> float:
    """How strongly a cell is filled; even 0 leaves a trace."""
    return 0.06 + 0.94 * share


def tone(share: float) -> str:
    """The class of a cell's text; dark pages change sooner to dark text than light ones.

    With these borders the text stands out at least 4.5:1 from every cell in both themes.
    """
    return "faint" if share <= 0.54 else "middle" if share <= 0.72 else "full"
