"""How much of many runs a page shows: of few everything, of many the series that lead.

Every section asks this module which series it may draw. A file of what is not drawn is not read.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from peerlearn.records.read import RunRecord
from peerlearn.records.schema import MOST_TASKS
from peerlearn.report.markup import Html, tag
from peerlearn.results.series import Group, Series

FEW_RUNS = 60  # up to so many, everything is shown
MOST_ENVIRONMENTS = 300  # runs whose environment is looked at


class Limit(NamedTuple):
    """What one kind of charts may take on a page.

    per_group: series of a group. series, runs, numbers: of the page; a run is one whose files are
    read, and a series has as many numbers as tasks, to the power of `power`.
    """

    per_group: int
    series: int
    runs: int
    numbers: int
    power: int


LIMITS = {
    "rows": Limit(1200, 1200, 10**9, 10**9, 0),  # a row of a table each
    "curves": Limit(12, 600, 1500, 12_000, 1),  # side by side in a chart
    "single": Limit(12, 600, 300, 40_000, 2),  # a chart each, with every number
}


@dataclass(frozen=True)
class Detail:
    """What a page shows of some groups.

    shown: the groups with the series that each kind of charts has, by the names of `LIMITS`.
    seeds: whether single runs are shown beside the means.
    """

    groups: Sequence[Group]
    shown: dict[str, Sequence[Group]]
    seeds: bool

    @property
    def environments(self) -> list[RunRecord]:
        """The runs whose environment is shown: all, or one of each series."""
        series = [one for group in self.groups for one in group.series]
        if self.seeds:
            return [run for one in series for run in one.runs]
        return [(one.done or one.runs)[0] for one in series[:MOST_ENVIRONMENTS]]

    def left_out(self, kind: str, *, seeds: bool = False) -> Html | None:
        """What charts of a kind leave out and how to see it, None if nothing.

        seeds: the charts would show single runs too.
        """
        whole, drawn = _labels(self.groups), _labels(self.shown[kind])
        missing = {place: one for place, one in whole.items() if place not in drawn}
        if not missing and (self.seeds or not seeds):
            return None
        parts = []
        if missing:
            parts.append(
                f"Of {len(whole):,} series these are {len(drawn):,}: of each group, as long as "
                "there is room, those with the highest mean AA and their baselines."
            )
        if seeds and not self.seeds:
            parts.append("Of each only the mean over its seeds.")
        example = next(iter((missing or whole).values()))
        own = [run.folder.parent for run in example.runs if run.parts is None]
        if not own:  # of a file of results, whose runs have no folders
            return tag("p", " ".join(parts), class_="rest")
        folders = dict.fromkeys(shlex.quote(str(folder)) for folder in own)
        line = " ".join(["peerlearn report", *(f"{folder}/seed*" for folder in folders)])
        more = f" All of {example.name}: " if seeds else " To see another: "
        return tag("p", " ".join(parts), more, tag("code", line), class_="rest")


def choose_detail(groups: Sequence[Group]) -> Detail:
    """Decide what a page shows."""
    if sum(len(one.runs) for group in groups for one in group.series) <= FEW_RUNS:
        return Detail(groups, dict.fromkeys(LIMITS, groups), seeds=True)
    shown: dict[str, Sequence[Group]] = {}
    chosen = groups
    for kind, limit in LIMITS.items():  # each from what the one before shows: colours are theirs
        chosen = shown[kind] = _chosen(chosen, limit)
    return Detail(groups, shown, seeds=False)


def _chosen(groups: Sequence[Group], limit: Limit) -> list[Group]:
    """The groups with the series for which there is room; each group has its share of it.

    The first series of a group may take more than the share, as long as there is room at all; the
    first of the page is always there.
    """
    room = [limit.series, limit.runs, limit.numbers]
    chosen: list[Group] = []
    for place, group in enumerate(groups):
        share = [amount / (len(groups) - place) for amount in room]
        picked: set[str] = set()
        for one in leading(group)[: limit.per_group]:
            price = [1, len(one.runs), tasks_of(one) ** limit.power]
            over = any(p > r for p, r in zip(price, share if picked else room, strict=True))
            if over and (picked or any(before.series for before in chosen)):
                break
            picked.add(one.label)
            share = [r - p for r, p in zip(share, price, strict=True)]
            room = [r - p for r, p in zip(room, price, strict=True)]
        series = tuple(one for one in group.series if one.label in picked)
        chosen.append(replace(group, series=series))
    return chosen


def leading(group: Group) -> list[Series]:
    """The series of a group, the highest mean AA first, each before its baseline."""
    by_label = {one.label: one for one in group.series}
    spreads = {one.label: one.spread("AA") for one in group.series}
    means = {label: spread.mean if spread else -1.0 for label, spread in spreads.items()}
    order: dict[str, None] = {}
    for label in sorted(by_label, key=lambda label: -means[label]):
        gain = by_label[label].gain
        order |= dict.fromkeys([label, gain.baseline.label] if gain else [label])
    return [by_label[label] for label in order if label in by_label]


def tasks_of(one: Series) -> int:
    """How many tasks the stream of a series has."""
    run = one.runs[0]
    tasks = run.config.settings.get("stream.tasks")
    return min(MOST_TASKS, max(1, tasks if isinstance(tasks, int) else len(run.matrix)))


def _labels(groups: Sequence[Group]) -> dict[tuple[int, str], Series]:
    return {(k, one.label): one for k, group in enumerate(groups) for one in group.series}
