"""The table of means, what is still unfinished, and the further measures."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from peerlearn.metrics.table import EVERY
from peerlearn.records.read import RunRecord
from peerlearn.report.headline import tone
from peerlearn.report.markup import Child, Html, join, table, tag
from peerlearn.results.formats import number, points
from peerlearn.results.layout import NOTHING
from peerlearn.results.legend import differing, known_in, metrics_in, points_of, updates_of
from peerlearn.results.series import Group, Series
from peerlearn.results.statistics import Spread, spread

MOST_UNFINISHED = 60  # rows of runs without an end
WHO = {"peers": "peers", "ema": "EMA copies", "average": "average of peers and EMA"}


class Price(NamedTuple):
    """A column of what a method takes."""

    cost: str
    name: str
    unit: str
    text: Callable[[float], str]


PRICES = (
    Price("relative", "k", "steps of er", lambda k: f"{k:.1f}"),
    Price("updates_per_image", "Updates", "per stream image", lambda rate: f"{rate:.3g}"),
    Price("forward_per_image", "Images forward", "per stream image", lambda n: f"{n:.1f}"),
    Price("train_seconds", "Training", "seconds", lambda seconds: f"{seconds:,.0f}"),
    Price("peak_bytes", "Peak memory", "MB", lambda size: f"{size / 1e6:,.1f}"),
    Price("kept_bytes", "Kept", "MB", lambda size: f"{size / 1e6:,.1f}"),
)


class Columns(NamedTuple):
    """What a table of means shows. points: whether rows say where they were evaluated."""

    metrics: Sequence[str]
    prices: Sequence[Price]
    points: bool


def columns_of(groups: Sequence[Group]) -> Columns:
    """The columns that have something to say, as those of other tables."""
    series = [one for group in groups for one in group.series]
    left_out = set()
    if all(one.cost("relative") is None for one in series):
        left_out.add("relative")
    if not differing(map(updates_of, series)):
        left_out.add("updates_per_image")
    prices = [price for price in PRICES if price.cost not in left_out]
    return Columns(metrics_in(groups), prices, differing(map(points_of, series)))


def summary_table(groups: Sequence[Group]) -> Html:
    """Means, gains and costs, a block of rows per group, the best values marked."""
    arrows = {True: "↑", False: "↓"}
    columns = columns_of(groups)
    head: list[Child] = ["Method", "n"]
    head += [
        join(name, " ", tag("span", f"% {arrows[EVERY[name].higher_is_better]}", class_="unit"))
        for name in columns.metrics
    ]
    head.append(join("Gain in AA", tag("span", "points, 95 % interval", class_="unit under")))
    head += [join(p.name, tag("span", p.unit, class_="unit under")) for p in columns.prices]
    rows: list[list[Child]] = []
    for group in groups:
        title = tag("th", group.name, colspan=len(head), scope="colgroup", class_="group-row")
        rows.append([title])
        rows += [summary_row(group, one, columns) for one in group.series]
    return table(head, rows, label="Means over the seeds", class_="summary")


def summary_row(group: Group, one: Series, columns: Columns) -> list[Child]:
    """The row of one series."""
    states = [run.state for run in one.runs if not run.done]
    badges = [
        tag("span", f"{states.count(state)} {state}", class_=f"badge {state}")
        for state in sorted(set(states))
    ]
    badges += [tag("span", "at chance level", class_="badge chance")] if one.at_chance else []
    name = tag("span", one.name, class_="variant" if one.wrapper else None)
    notes = [one.why, one.uneven, points_of(one) if columns.points else ""]
    whys = [tag("span", note, class_="why") for note in notes if note]
    cells: list[Child] = [tag("th", name, badges, whys, scope="row"), len(one.done)]
    cells += [
        metric_cell(one.spread(m), one.label in group.best.get(m, ())) for m in columns.metrics
    ]
    cells.append(gain_cell(one))
    for price in columns.prices:
        found = one.cost(price.cost)
        cells.append(NOTHING if found is None else price.text(found))
    return cells


def metric_cell(found: Spread | None, best: bool = False) -> Html:
    """Mean ± sample standard deviation in percent."""
    if found is None:
        return tag("td", NOTHING)
    deviation = "" if found.std is None else f" ± {100 * found.std:.1f}"
    text = join(number(100 * found.mean, ".1f"), tag("span", deviation, class_="spread"))
    tip = None
    if found.low is not None and found.high is not None:
        ends = number(100 * found.low, ".1f"), number(100 * found.high, ".1f")
        tip = f"95 % interval of the mean: {ends[0]} to {ends[1]}"
    if not best:
        return tag("td", text, data_tip=tip)
    shown = tag("strong", text)
    return tag("td", shown, tag("span", " best", class_="unseen"), class_="best", data_tip=tip)


def gain_cell(one: Series) -> Html:
    """The gain in AA with its interval, coloured where it leaves out zero."""
    pair = one.gain and one.gain.metrics.get("AA")
    if not one.gain or not pair:
        return tag("td", NOTHING)
    value, _, interval = points(pair).partition(" ")
    under = interval or ("one seed" if pair.n == 1 else "equal in all seeds: no p")
    tip = f"over {one.gain.baseline.name}, n {pair.n}"
    tip += "" if pair.p is None else f", p {pair.p:.2g}"
    said = tag("span", value, class_=f"change {tone('AA', pair)}")
    return tag("td", said, tag("span", under, class_="unit under"), data_tip=tip)


def unfinished_table(groups: Sequence[Group]) -> Html | None:
    """How far the first runs without an end have got, None if there are none."""
    found = [
        (group, one, run)
        for group in groups
        for one in group.series
        for run in one.runs
        if not run.done
    ]
    if not found:
        return None
    rows = [unfinished_row(group, one, run) for group, one, run in found[:MOST_UNFINISHED]]
    head = ["Method", "Runs on", "Seed", "Status", "Tasks reached", "AA so far %"]
    more = f"The first {len(rows)} of {len(found):,}." if len(rows) < len(found) else ""
    return join(
        tag("h3", "Not finished"),
        tag("p", more) if more else None,
        table(head, rows, label="Runs not finished"),
    )


def unfinished_row(group: Group, one: Series, run: RunRecord) -> list[Child]:
    """How far one run has got."""
    tasks, sofar = run.config.settings.get("stream.tasks"), run.accuracy_over_stream
    reached = f"{len(sofar)} of {tasks}" if isinstance(tasks, int) else len(sofar)
    badge = tag("span", run.state, class_=f"badge {run.state}")
    aa = f"{100 * sofar[-1]:.1f}" if sofar else NOTHING
    return [one.name, group.name, run.seed, badge, reached, aa]


def further_table(groups: Sequence[Group]) -> Html:
    """The other measures: further metrics, single peers, nearest class mean, slow copies."""
    others = [EVERY[name] for name in known_in(groups) if not EVERY[name].main]
    runs = [run for group in groups for one in group.series for run in one.done]
    answers = dict.fromkeys(who for run in runs for who in run.summary.answers)
    rows: list[list[Child]] = []
    for group in groups:
        for one in group.series:
            peers = [
                aa for r in one.done for p in r.summary.peers if (aa := p.get("AA")) is not None
            ]
            ncm = [aa for r in one.done if (aa := (r.summary.ncm or {}).get("AA")) is not None]
            said = {who: [r.summary.answers.get(who, {}) for r in one.done] for who in answers}
            by = [[aa for m in some if (aa := m.get("AA")) is not None] for some in said.values()]
            found = [one.spread(metric.name) for metric in others]
            found += [spread(values) if values else None for values in (peers, ncm, *by)]
            rows.append([one.name, group.name, *map(metric_cell, found)])
    head = ["Method", "Runs on", *(f"{m.title.capitalize()} ({m.name}) %" for m in others)]
    head += ["AA of one peer alone %", "AA by nearest class mean %"]
    head += [f"AA, {WHO.get(who, who)} predict %" for who in answers]
    return tag(
        "details",
        tag("summary", "Further measures: backward transfer, single peers, nearest class mean"),
        table(head, rows, label="Further measures"),
    )
