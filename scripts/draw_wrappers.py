"""Draw accuracy against cost of the records in docs/results/wrappers: docs/results/wrappers.svg.

    python scripts/draw_wrappers.py

A row for each training, answered as its preset says; CCL-DC is the training whose slow copies only
answer, answered by its peers.
"""

import re
from importlib import resources
from pathlib import Path

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.report.figures import worth
from peerlearn.report.looks import assign_looks
from peerlearn.results.compare import compare

HOME = Path(__file__).parents[1] / "docs" / "results"


def drawn(run: RunRecord) -> RunRecord:
    """The run under the name that the picture has for it."""
    config = run.config
    if config.variant.get("shadow_weight") == 0:
        (run,) = (one for one in run.answered() if one.answer == "peers")
        config = run.config.model_copy(update={"method": "er+ccldc"})
    shared = {k: v for k, v in config.variant.items() if k in ("train_per_class", "width")}
    return RunRecord(
        run.folder, config.model_copy(update={"variant": shared}), run.summary, run.answer
    )


def main() -> None:
    """Write the picture."""
    (group,) = compare([drawn(run) for run in read_runs(HOME / "wrappers")])
    found = re.search(r"<svg.*?</svg>", str(worth(group, assign_looks([group]))), re.DOTALL)
    assert found
    style = resources.files("peerlearn.report").joinpath("page.css").read_text(encoding="utf-8")
    head, _, body = found[0].partition(">")
    if "xmlns=" not in head:
        head += ' xmlns="http://www.w3.org/2000/svg"'
    (HOME / "wrappers.svg").write_text(f"{head}><style>{style}</style>{body}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
