"""What docs/results/wrappers.md shows of the records beside it: tables, a picture.

    python scripts/wrappers_page.py        # writes both anew, between the marks in the page

README.md has the shortest of the tables.

A row for each training, answered as its preset says; CCL-DC is the training whose slow copies only
answer, answered by its peers.
"""

from collections.abc import Sequence
from pathlib import Path

from page_parts import (
    by_means,
    cells,
    difference,
    first_picture,
    gain,
    mean,
    mean_or_nothing,
    write_between,
)

from peerlearn.records.read import RunRecord, read_runs
from peerlearn.report.figures import worth
from peerlearn.report.looks import assign_looks
from peerlearn.results.compare import compare
from peerlearn.results.formats import number
from peerlearn.results.layout import NOTHING, Head, Layout, as_markdown
from peerlearn.results.series import Group, Series
from peerlearn.results.statistics import Paired

HOME = Path(__file__).parents[1] / "docs" / "results"
START, END = "<!-- tables: scripts/wrappers_page.py -->", "<!-- end of tables -->"
RIVALS = ("", "+ccldc", "+mkd")
HEADS = (
    *(Head("method", words=True), Head("n"), Head("AA"), Head("AA by means"), Head("LA")),
    *(Head("RF"), Head("computing")),
    *(Head("over the method alone"), Head("over CCL-DC"), Head("over MKD")),
    *(Head("by means, over the method alone"), Head("by means, over CCL-DC")),
)
SETTINGS = (
    *(("er", "cifar10", 200), ("er", "cifar10", 500), ("er", "cifar100", 500)),
    *(("derpp", "cifar10", 200), ("er_ace", "cifar10", 200)),
)
SHORT = "<!-- EMA chain: scripts/wrappers_page.py -->", "<!-- end of EMA chain -->"
SHORT_HEADS = (
    *(Head("method, data, memory", words=True), Head("alone"), Head("MKD"), Head("CCL-DC")),
    *(Head("EMA chain"), Head("EMA chain over CCL-DC"), Head("the same by nearest class means")),
)
NAMES = {"er": "ER", "derpp": "DER++", "er_ace": "ER-ACE"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LIKE = "<!-- like for like: scripts/wrappers_page.py -->", "<!-- end of like for like -->"
LIKE_HEADS = (
    *(Head("setting", words=True), Head("as each preset predicts"), Head("peers against peers")),
    *(Head("slow copies against slow copies"), Head("nearest class means")),
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
        rows = cells([_row(one, by_name) for one in group.series])
        title = f"### {group.data}, memory {group.memory}"
        parts.append(f"{title}\n\n{as_markdown(Layout(HEADS, [rows]))}")
    return "\n\n".join(parts)


def _row(one: Series, by_name: dict[str, Series]) -> list[str | Paired | None]:
    alone = by_name.get(one.base)
    times = f"{computing(one) / computing(alone):.1f}x" if alone else NOTHING
    gains = [gain(one, by_name.get(f"{one.base}{rival}")) for rival in RIVALS]
    aa, la, rf = (mean([*one.values(metric).values()]) for metric in ("AA", "LA", "RF"))
    own = by_means(one)
    rivals = [by_name.get(f"{one.base}{rival}") for rival in RIVALS[:2]]
    over = [difference(own, by_means(r)) if r and r is not one else None for r in rivals]
    aas = aa, mean_or_nothing(own)
    return [one.method, str(len(one.done)), *aas, la, rf, times, *gains, *over]


def in_short(runs: Sequence[RunRecord]) -> str:
    """The table of README.md: the EMA chain beside CCL-DC in all five settings, in Markdown."""
    shown = {(group.data, group.memory): group for group in groups(runs)}
    rows: list[list[str | Paired | None]] = []
    for base, data, memory in SETTINGS:
        by_name = {one.method: one for one in shown[data, memory].series}
        found = [by_name.get(f"{base}{rival}") for rival in ("", "+mkd", "+ccldc", "+ema-chain")]
        spreads = [one.spread("AA") if one else None for one in found]
        shown_means = [number(100 * known.mean, ".1f") if known else None for known in spreads]
        by_presets, *_, by_class_means = _over_ccldc(runs, base, data, memory)
        name = f"{NAMES[base]}, {DATA[data]}, {memory}"
        rows.append([name, *shown_means, by_presets, by_class_means])
    return as_markdown(Layout(SHORT_HEADS, [cells(rows, short=True)]))


def like_for_like(runs: Sequence[RunRecord]) -> str:
    """The EMA chain minus CCL-DC, both answered by the same kind of network, in Markdown."""
    rows: list[list[str | Paired | None]] = []
    for base, data, memory in SETTINGS:
        gains = _over_ccldc(runs, base, data, memory)
        rows.append([f"{base}, {data}, memory {memory}", *gains])
    return as_markdown(Layout(LIKE_HEADS, [cells(rows)]))


def _over_ccldc(
    runs: Sequence[RunRecord], base: str, data: str, memory: int
) -> list[Paired | None]:
    """The EMA chain minus CCL-DC: by presets, by peers, by slow copies, by class means."""
    here = [r for r in runs if (r.data, r.memory) == (data, memory)]
    chain = {r.seed: r for r in here if r.method == f"{base}+ema-chain"}
    rival = {r.seed: r for r in here if _is_ccldc(r, base)}
    both = [(_by(chain, kind), _by(rival, kind)) for kind in ("peers", "ema", "means")]
    preset = difference(_by(chain, "average"), both[0][1])
    return [preset, *(difference(*b) for b in both)]


def _is_ccldc(run: RunRecord, base: str) -> bool:
    """Whether it trained CCL-DC: alone, or with slow copies that only answer."""
    copies = run.method == f"{base}+ccldc-ema" and run.config.variant.get("shadow_weight") == 0
    return copies or run.method == f"{base}+ccldc"


def _by(runs: dict[int, RunRecord], kind: str) -> dict[int, float]:
    """AA by seed, as these networks answer; nothing where there are none."""
    found: dict[int, float | None] = {}
    for seed, run in runs.items():
        if kind == "means":
            found[seed] = (run.summary.ncm or {}).get("AA")
        else:
            alone = run.metrics if kind == "peers" and not run.summary.answers else {}
            found[seed] = run.summary.answers.get(kind, alone).get("AA")
    return {seed: aa for seed, aa in found.items() if aa is not None}


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
    write_between(HOME / "wrappers.md", *LIKE, like_for_like(runs))
    write_between(HOME.parents[1] / "README.md", *SHORT, in_short(runs))
    (HOME / "wrappers.svg").write_text(picture(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
