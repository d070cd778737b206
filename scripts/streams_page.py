"""The tables of docs/results/streams.md: accuracy along blurred streams, with and without a clock.

python scripts/streams_page.py         # writes them anew, between the marks in the page
python scripts/streams_page.py RUNS    # and draws the curves, which only folders of runs have
"""

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from page_parts import (
    by_means,
    cells,
    first_picture,
    gain,
    mean,
    mean_or_nothing,
    write_between,
)

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.report.along import along
from peerlearn.report.looks import assign_looks
from peerlearn.results.compare import compare
from peerlearn.results.layout import Head, Layout, as_markdown
from peerlearn.results.series import Group, Series
from peerlearn.results.statistics import Paired

HOME = Path(__file__).parents[1] / "docs" / "results"
START, END = "<!-- tables: scripts/streams_page.py -->", "<!-- end of tables -->"
HEADS = (
    *(Head("method", words=True), Head("n"), Head("k"), Head("updates per image")),
    *(Head("A_AUC"), Head("A_last"), Head("AA by means"), Head("prequential")),
    *(Head("A_AUC over er"), Head("A_AUC over er+ccldc")),
)
STREAMS = {"i-blurry": "i-Blurry-50-10", "half-normal": "half-normal, scale 500"}
CLOCKS = {False: "the stream waits", True: "in real time"}


def tables(runs: Sequence[RunRecord]) -> str:
    """A table for each stream, with and without a clock, in Markdown."""
    parts = []
    for (stream, title), (clock, how) in product(STREAMS.items(), CLOCKS.items()):
        group = group_of(runs, stream, clock)
        by_name = {one.name: one for one in group.series}
        rows = cells([_row(one, by_name) for one in group.series])
        parts.append(f"### {title}, {how}\n\n{as_markdown(Layout(HEADS, [rows]))}")
    return "\n\n".join(parts)


def group_of(runs: Sequence[RunRecord], stream: str, clock: bool) -> Group:
    """The rows of one table, without the weights of slow copies in their names."""
    (group,) = compare([_named(run) for run in runs if settings(run) == (stream, clock)])
    return group


def _named(run: RunRecord) -> RunRecord:
    kept = {k: v for k, v in run.config.variant.items() if k not in ("alpha", "distill_weight")}
    config = run.config.model_copy(update={"variant": kept})
    return RunRecord(run.folder, config, run.summary, run.answer)


def settings(run: RunRecord) -> tuple[str, bool]:
    """What tells the tables apart."""
    return run.config.settings["stream.name"], run.config.settings["realtime"]


def _row(one: Series, by_name: dict[str, Series]) -> list[str | Paired | None]:
    k, updates = one.cost("relative") or 0, one.cost("updates_per_image") or 0
    auc, last, preq = (mean([*one.values(m).values()]) for m in ("A_AUC", "A_last", "prequential"))
    metrics = auc, last, mean_or_nothing(by_means(one)), preq
    gains = [gain(one, by_name.get(rival), "A_AUC") for rival in ("er", "er+ccldc")]
    return [one.name, str(len(one.done)), f"{k:.1f}", f"{updates:.3f}", *metrics, *gains]


def pictures(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Accuracy along i-Blurry with and without a clock, by the names of files, as SVG."""
    names = {False: "streams.svg", True: "streams-realtime.svg"}
    groups = {name: group_of(runs, "i-blurry", clock) for clock, name in names.items()}
    looks = assign_looks([*groups.values()])
    return {name: first_picture(along(group, looks)) for name, group in groups.items()}


if __name__ == "__main__":
    write_between(HOME / "streams.md", START, END, tables(read_runs(HOME / "streams.json")))
    for file, picture in pictures(read_runs(Path(sys.argv[1]))).items() if sys.argv[1:] else ():
        (HOME / file).write_text(picture, encoding="utf-8")
