"""What docs/results/paper.md shows of the records beside it: what `peerlearn reproduce` prints.

python scripts/paper_page.py        # writes it anew, between the marks in the page
"""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from page_parts import (
    by_means,
    cells,
    difference,
    gain,
    mean,
    mean_or_nothing,
    write_between,
)

from peerlearn.cli import main as command
from peerlearn.records.read import RunRecord, read_runs
from peerlearn.results.compare import compare
from peerlearn.results.layout import Head, Layout, as_markdown
from peerlearn.results.series import Series
from peerlearn.results.statistics import Paired

HOME = Path(__file__).parents[1] / "docs" / "results"
FILES = [HOME / f"{name}.json" for name in ("core", "wrappers", "paper")]
CIFAR10 = ("--scale", "lite", "--data", "cifar10", "--memory", "500")
CIFAR100 = ("--scale", "lite", "--data", "cifar100", "--memory", "2000", "--only", "er")
TINY = ("--scale", "lite", "--data", "tiny", "--memory", "2000", "--only", "er")
SECTIONS = {
    "aa": ("aa", *CIFAR10),
    "la": ("la", *CIFAR10),
    "ablation": ("ablation", *CIFAR10, "--only", "er,er_ace"),
    "schemes": ("schemes", *CIFAR10, "--only", "er,er_ace"),
    "sdc": ("sdc", *CIFAR10),
    "untrained": ("untrained", *CIFAR10),
    "cifar100": ("aa", *CIFAR100),
    "tiny": ("aa", *TINY),
}
BESIDE = ("+multiview", "+ccl", "+sdc", "+untrained", "+ccldc-easy-to-hard",
          "+ccldc-same-difficulty", "+ccldc")  # fmt: skip
HEADS = (
    *(Head("method", words=True), Head("n"), Head("AA"), Head("AA by means")),
    *(Head("LA"), Head("RF")),
    *(Head("AA over the method alone"), Head("AA of CCL-DC over it")),
    Head("by means, of CCL-DC over it"),
)


def orders(name: str) -> str:
    """The table of orders of a section: first minus second, published and measured."""
    words = ["reproduce", *SECTIONS[name], "--show", "--format", "markdown", "--runs"]
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        assert command([*words, *map(str, FILES)]) == 0
    found = printed.getvalue().partition("### First minus second")[2]
    return found.partition("\n\nfirst minus")[0].strip()


def beside(base: str) -> str:
    """Every variant of a method on CIFAR-10 at memory 200, each beside CCL-DC and it alone."""
    runs = [run for path in FILES for run in read_runs(path) if _belongs(run, base)]
    runs = list({(run.method, run.seed): run for run in runs}.values())
    (group,) = compare(runs)
    by_name = {series.method: series for series in group.series}
    found = [by_name[f"{base}{name}"] for name in ("", *BESIDE) if f"{base}{name}" in by_name]
    return as_markdown(Layout(HEADS, [cells([_row(one, by_name, base) for one in found])]))


def _belongs(run: RunRecord, base: str) -> bool:
    here = (run.data, run.memory) == ("cifar10", 200)
    usual = run.config.variant.keys() == {"train_per_class", "test_per_class", "width"}
    return here and usual and run.method in [f"{base}{name}" for name in ("", *BESIDE)]


def _row(one: Series, by_name: dict[str, Series], base: str) -> list[str | Paired | None]:
    aa, la, rf = (mean([*one.values(metric).values()]) for metric in ("AA", "LA", "RF"))
    peers, own = by_name[f"{base}+ccldc"], by_means(one)
    gains = [gain(one, by_name.get(base)), gain(peers, one)]
    gains.append(None if peers is one else difference(by_means(peers), own))
    aas = aa, mean_or_nothing(own)
    return [one.method, str(len(one.done)), *aas, la, rf, *gains]


def marks(name: str) -> tuple[str, str]:
    """Between which a table stands."""
    return f"<!-- {name}: scripts/paper_page.py -->", f"<!-- end of {name} -->"


def tables() -> dict[str, str]:
    """Every table of the page, by the name of its marks."""
    found = {name: orders(name) for name in SECTIONS}
    return found | {f"beside-{base}": beside(base) for base in ("er", "er_ace")}


if __name__ == "__main__":
    for name, table in tables().items():
        write_between(HOME / "paper.md", *marks(name), table)
