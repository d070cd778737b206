"""The second table of docs/results/core.md: nearest class means beside logits, with Holm's p.

python scripts/core_page.py        # writes it anew, between the marks in the page
"""

from collections.abc import Sequence
from pathlib import Path

from page_parts import by_means, cells, difference, gain, mean, mean_or_nothing, write_between

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.results.compare import compare
from peerlearn.results.layout import Head, Layout, as_markdown
from peerlearn.results.series import Series
from peerlearn.results.statistics import Paired

HOME = Path(__file__).parents[1] / "docs" / "results"
MARKS = "<!-- means: scripts/core_page.py -->", "<!-- end of means -->"
HEADS = (
    *(Head("method", words=True), Head("n"), Head("AA"), Head("AA by means")),
    *(Head("gain"), Head("gain by means")),
)


def table(runs: Sequence[RunRecord]) -> str:
    """AA and gain by logits and by nearest class means, in Markdown."""
    (group,) = compare(runs)
    by_name = {one.method: one for one in group.series}
    return as_markdown(Layout(HEADS, [cells([_row(one, by_name) for one in group.series])]))


def _row(one: Series, by_name: dict[str, Series]) -> list[str | Paired | None]:
    alone = by_name[one.base]
    own = by_means(one)
    over = None if alone is one else difference(own, by_means(alone))
    aas = mean([*one.values("AA").values()]), mean_or_nothing(own)
    return [one.name, str(len(one.done)), *aas, gain(one, alone), over]


if __name__ == "__main__":
    write_between(HOME / "core.md", *MARKS, table(read_runs(HOME / "core.json")))
