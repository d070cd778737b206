"""What docs/results/wrappers.md shows of the records beside it: tables, a picture.

    python scripts/wrappers_page.py        # writes both anew, between the marks in the page

A row for each training, answered as its preset says; CCL-DC is the training whose slow copies only
answer, answered by its peers.
"""

from collections.abc import Sequence
from pathlib import Path

from page_parts import first_picture, gain, mean, write_between

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.report.figures import worth
from peerlearn.report.looks import assign_looks
from peerlearn.results.compare import compare
from peerlearn.results.layout import NOTHING, Cell, Head, Layout, as_markdown
from peerlearn.results.series import Group, Series

HOME = Path(__file__).parents[1] / "docs" / "results"
START, END = "<!-- tables: scripts/wrappers_page.py -->", "<!-- end of tables -->"
RIVALS = ("", "+ccldc", "+mkd")
HEADS = (
    *(Head("method", words=True), Head("n"), Head("AA"), Head("LA"), Head("RF"), Head("computing")),
    *(Head("over the method alone"), Head("over CCL-DC"), Head("over MKD")),
)


def drawn(run: RunRecord) -> RunRecord:
    """The run under the name that page and picture have for it."""
    config = run.config
    if config.variant.get("shadow_weight") == 0:
        (run,) = (one for one in run.answered() if one.answer == "peers")
        config = run.config.model_copy(update={"method": run.method.replace("-ema", "")})
    shared = {k: v for k, v in config.variant.items() if k in ("train_per_class", "width")}
    return RunRecord(
        run.folder, config.model_copy(update={"variant": shared}), run.summary, run.answer
    )


def groups(runs: Sequence[RunRecord]) -> list[Group]:
    """The groups of the page: one for each data set and memory."""
    return compare([drawn(run) for run in runs])


def tables(runs: Sequence[RunRecord]) -> str:
    """A table for each group, in Markdown."""
    parts = []
    for group in groups(runs):
        by_name = {series.method: series for series in group.series}
        rows = [[Cell(text) for text in _row(one, by_name)] for one in group.series]
        title = f"### {group.data}, memory {group.memory}"
        parts.append(f"{title}\n\n{as_markdown(Layout(HEADS, [rows]))}")
    return "\n\n".join(parts)


def _row(one: Series, by_name: dict[str, Series]) -> list[str]:
    alone = by_name.get(one.base)
    times = f"{computing(one) / computing(alone):.1f}x" if alone else NOTHING
    gains = [gain(one, by_name.get(f"{one.base}{rival}")) for rival in RIVALS]
    metrics = [mean([*one.values(metric).values()]) for metric in ("AA", "LA", "RF")]
    return [one.method, str(len(one.done)), *metrics, times, *gains]


def computing(one: Series) -> float:
    """Forward and backward images per stream image, a backward one counted twice."""
    return (one.cost("forward_per_image") or 0) + 2 * (one.cost("backward_per_image") or 0)


def picture(runs: Sequence[RunRecord]) -> str:
    """Accuracy against cost of ER's rows in the first group, as SVG."""
    group = groups([run for run in runs if run.method.partition("+")[0] == "er"])[0]
    return first_picture(worth(group, assign_looks([group])))


def main() -> None:
    """Write page and picture."""
    runs = read_runs(HOME / "wrappers.json")
    write_between(HOME / "wrappers.md", START, END, tables(runs))
    (HOME / "wrappers.svg").write_text(picture(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
