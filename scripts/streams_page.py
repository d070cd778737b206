"""The tables of docs/results/streams.md: accuracy along blurred streams, with and without a clock.

python scripts/streams_page.py        # writes them anew, between the marks in the page
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from page_parts import gain, mean, write_between

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.results.compare import compare
from peerlearn.results.layout import Cell, Head, Layout, as_markdown
from peerlearn.results.series import Series

HOME = Path(__file__).parents[1] / "docs" / "results"
START, END = "<!-- tables: scripts/streams_page.py -->", "<!-- end of tables -->"
METRICS = ("A_AUC", "A_last", "prequential")
HEADS = (
    *(Head("method", words=True), Head("n"), Head("k"), Head("updates per image")),
    *map(Head, METRICS),
    *(Head("A_AUC over er"), Head("A_AUC over er+ccldc")),
)
STREAMS = {"i-blurry": "i-Blurry-50-10", "half-normal": "half-normal, scale 500"}
CLOCKS = {False: "the stream waits", True: "in real time"}


def tables(runs: Sequence[RunRecord]) -> str:
    """A table for each stream, with and without a clock, in Markdown."""
    parts = []
    for (stream, title), (clock, how) in product(STREAMS.items(), CLOCKS.items()):
        some = [run for run in runs if settings(run) == (stream, clock)]
        (group,) = compare(some)
        by_name = {one.method: one for one in group.series}
        rows = [[Cell(text) for text in _row(one, by_name)] for one in group.series]
        parts.append(f"### {title}, {how}\n\n{as_markdown(Layout(HEADS, [rows]))}")
    return "\n\n".join(parts)


def settings(run: RunRecord) -> tuple[str, bool]:
    """What tells the tables apart."""
    return run.config.settings["stream.name"], run.config.settings["realtime"]


def _row(one: Series, by_name: dict[str, Series]) -> list[str]:
    k, updates = one.cost("relative") or 0, one.cost("updates_per_image") or 0
    metrics = [mean([*one.values(metric).values()]) for metric in METRICS]
    gains = [gain(one, by_name.get(rival), "A_AUC") for rival in ("er", "er+ccldc")]
    return [one.method, str(len(one.done)), f"{k:.1f}", f"{updates:.3f}", *metrics, *gains]


if __name__ == "__main__":
    write_between(HOME / "streams.md", START, END, tables(read_runs(HOME / "streams.json")))
