"""The table of docs/results/authors.md: the authors' code and ours on the same streams.

    python scripts/authors_page.py [RUNS]     # prints it; RUNS: by default the records of the page

Paired by seed. Orders of classes and images are the same on both sides; weights, memory draws and
augmentations are not, so that a pair differs by chance as two runs of other seeds do.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from page_parts import cells, mean

from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.records.read import RunRecord, read_runs
from peerlearn.results.layout import Head, Layout, as_markdown
from peerlearn.results.statistics import Paired, paired

HOME = Path(__file__).parents[1] / "docs" / "results"
METRICS = ("AA", "LA", "FM", "RF")
HEADS = (
    *(Head("method", words=True), Head("metric", words=True), Head("n")),
    *(Head("authors"), Head("ours"), Head("ours minus authors")),
)


def theirs() -> dict[tuple[str, int], dict[str, float]]:
    """Metrics of the authors' runs, by method and seed."""
    runs = json.loads((HOME / "authors.json").read_text(encoding="utf-8"))["runs"]
    return {(run["method"], run["seed"]): AccuracyMatrix(run["matrix"]).summary() for run in runs}


def ours(runs: Sequence[RunRecord]) -> dict[tuple[str, int], dict[str, float]]:
    """Metrics of our runs with the authors' profile, by method and seed."""
    own = [run for run in runs if run.done and run.config.settings["profile"] == "authors"]
    return {(run.method, run.seed): AccuracyMatrix(run.matrix).summary() for run in own}


def table(runs: Sequence[RunRecord]) -> str:
    """Both side by side, in Markdown."""
    authors, own = theirs(), ours(runs)
    rows: list[list[str | Paired | None]] = []
    for method in dict.fromkeys(method for method, _ in authors):
        pairs = [(authors[key], own[key]) for key in authors if key[0] == method and key in own]
        rows += [_row(method, name, pairs) for name in METRICS] if pairs else []
    return as_markdown(Layout(HEADS, [cells(rows)]))


def _row(
    method: str, metric: str, pairs: Sequence[tuple[dict[str, float], dict[str, float]]]
) -> list[str | Paired | None]:
    them, us = ([pair[side][metric] for pair in pairs] for side in (0, 1))
    return [method, metric, str(len(pairs)), mean(them), mean(us), paired(us, them)]


if __name__ == "__main__":
    print(table(read_runs(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "authors-ours.json")))
