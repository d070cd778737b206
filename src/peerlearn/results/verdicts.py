"""Published beside measured: whether it agrees, whether the order is the same."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from peerlearn.errors import UserError
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.paper.published import Published, doubt, published
from peerlearn.paper.tables import ENSEMBLE, INDEPENDENT, NCM, Line, Measure, Order, Table
from peerlearn.records.read import RunRecord
from peerlearn.records.reproduction import (
    Bound,
    Compared,
    Failing,
    Gap,
    Ordered,
    Reproduction,
    Value,
    Verdict,
)
from peerlearn.results.statistics import ROUNDING, Difference, Known, Paired, paired, spread, welch

Values = Mapping[int, float]  # by seed
FEWEST = 3  # seeds that decide an order: two hardly tell how much their differences vary


class Measured(NamedTuple):
    """The finished runs of a row.

    Args:
        line: the row.
        place: data set and memory of the published figure.
        at: those of the runs.
        runs: by seed.
        scale: at which they were made, and the settings in which they leave it.
        as_published: whether no setting is another than that of the paper.
    """

    line: Line
    place: tuple[str, int]
    at: tuple[str, int]
    runs: Mapping[int, RunRecord]
    scale: str
    as_published: bool

    def values(self, measure: Measure) -> dict[int, float]:
        """A measure by seed, of the runs that have it."""
        found = {seed: value_of(run, measure) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}


def value_of(run: RunRecord, measure: Measure) -> float | None:
    """A measure of a run; FM as the paper's figures have it, without negative terms."""
    metric, by = measure
    if metric == "seconds":
        return run.cost.train_seconds
    if by == NCM:
        return (run.summary.ncm or {}).get(metric)
    if by == INDEPENDENT:
        peers = [found for p in run.summary.peers if (found := p.get(metric)) is not None]
        return sum(peers) / len(peers) if peers else None
    if by != ENSEMBLE:
        place = int(by.rpartition(" ")[2]) - 1
        each = [p.get(metric) for p in run.summary.peers]
        return each[place] if place < len(each) else None
    if metric == "FM":
        rows = AccuracyMatrix(run.matrix, fm_floor_zero=True)
        return rows.forgetting if len(rows) > 1 else None
    return run.metrics.get(metric)


def reproduction(table: Table, found: Sequence[Measured], scale: str, profile: str) -> Reproduction:
    """A table of the paper, from what is there of its runs."""
    by_place = {(one.line.label, one.place): one for one in found}
    places = list(dict.fromkeys(one.place for one in found))
    orders = []
    for place, order in product(places, table.orders):
        first = by_place.get((order.first.label, place))
        second = by_place.get((order.second.label, place))
        if first and second:
            orders += [
                _ordered(*sides, first, second, more=order.more and not k)
                for k, sides in enumerate(_sides(table, order))
            ]
    return Reproduction(
        name=table.name,
        source=table.source,
        title=table.title,
        says=table.says,
        scale=scale,
        profile=profile,
        rows=[_compared(one, m) for one in found for m in table.measures],
        orders=orders,
        bound=_bound(found) if table.measures[0] in BOUND else None,
        best=_best(table, found) if _is_grid(table) else {},
    )


def refuse_mixed_data(found: Sequence[Measured]) -> None:
    """Refuse runs on different states of the same data: they cannot stand in one table."""
    states: dict[str, dict[str, RunRecord]] = {}
    for one in found:
        for run in one.runs.values():
            if run.config.fingerprint:
                states.setdefault(run.data, {}).setdefault(run.config.fingerprint, run)
    for data, several in states.items():
        if len(several) > 1:
            folders = " and ".join(str(run.folder) for run in several.values())
            raise UserError(f"{data}: {folders} are on different images; keep them apart")


def _compared(one: Measured, measure: Measure) -> Compared:
    known = _published(one, measure)
    values = [*one.values(measure).values()]
    gap = None
    if known and len(values) > 1 and one.as_published:
        gap = welch(_known(values), Known(*known))
    doubts = _doubt(one, measure)
    return Compared(
        **_row(one, measure),
        published=known and Value(mean=known.mean, std=known.std, n=known.n),
        doubt=doubts,
        measured=_value(values),
        gap=gap and _gap(gap),
        verdict=_agreement(one, known, gap, doubts) if values else "",
    )


def _agreement(
    one: Measured, known: Published | None, gap: Difference | None, doubts: str
) -> Verdict:
    if known is None:
        return "no figure"
    if not one.as_published:
        return "other scale"
    if gap is None:
        return ""
    if doubts:
        return "doubtful in the paper"
    return "agrees" if not gap.sign else "higher" if gap.sign > 0 else "lower"


def _doubt(one: Measured, measure: Measure) -> str:
    known = _published(one, measure)
    return doubt(measure.metric, one.line.method, one.place[0]) if known else ""


def _sides(table: Table, order: Order) -> list[tuple[Measure, Measure]]:
    """By which measures the two rows are compared."""
    if order.by is None:
        return [(measure, measure) for measure in table.measures]
    metric = table.measures[0].metric
    return [(Measure(metric, order.by[0]), Measure(metric, order.by[1]))]


def _ordered(
    own: Measure, rival: Measure, first: Measured, second: Measured, *, more: bool
) -> Ordered:
    theirs = _published(first, own), _published(second, rival)
    there = welch(Known(*theirs[0]), Known(*theirs[1])) if theirs[0] and theirs[1] else None
    mine, others = first.values(own), second.values(rival)
    seeds = [seed for seed in mine if seed in others]
    here = paired([mine[k] for k in seeds], [others[k] for k in seeds]) if seeds else None
    doubts = _doubt(first, own) or _doubt(second, rival)
    return Ordered(
        **_row(first, own),
        other=second.line.label if own == rival else f"{second.line.label}, {rival.by}",
        published=there and _gap(there),
        measured=here and _gap(here),
        n=len(seeds),
        verdict=_order(there.sign if there else int(more) or None, here, doubts),
    )


def _order(there: int | None, here: Paired | None, doubts: str) -> Verdict:
    """there: the sign of the published difference, 0 if it is open, None if none was published."""
    if here is None:
        return ""
    if there is None:
        return "no figure"
    if doubts:
        return "doubtful in the paper"
    if not there:
        return "undecided in the paper"
    if here.n < FEWEST:
        return "too few seeds"
    if not here.sign:
        return "undecided here"
    return "same order" if there == here.sign else "opposite order"


# the inequality is about these
BOUND = [Measure(metric) for metric in ("AA", "LA", "FM", "RF")]


def _bound(found: Sequence[Measured]) -> Bound | None:
    """The inequality AA >= LA (1 - RF), which holds for each task, on the means of every run."""
    fails, count = [], 0
    for one in found:
        for seed, run in one.runs.items():
            aa, la, rf = (run.metrics.get(name) for name in ("AA", "LA", "RF"))
            if aa is None or la is None or rf is None:
                continue
            count += 1
            bound = la * (1 - rf)
            if aa < bound - ROUNDING:
                data, memory = one.at
                row = one.line.label
                fails.append(
                    Failing(row=row, data=data, memory=memory, seed=seed, aa=aa, bound=bound)
                )
    return Bound(runs=count, fails=fails) if count else None


def _is_grid(table: Table) -> bool:
    """Whether it looks for the best settings of one method."""
    return len({line.method for line in table.lines}) == 1 and all(
        line.settings for line in table.lines
    )


def _best(table: Table, found: Sequence[Measured]) -> dict[str, str]:
    """By measure, the row with the highest mean, once all rows have one."""
    best = {}
    for measure in table.measures:
        values = {one.line.label: [*one.values(measure).values()] for one in found}
        if all(values.values()):
            means = {label: spread(some).mean for label, some in values.items()}
            best[measure.label] = max(means, key=means.__getitem__)
    return best


def _row(one: Measured, measure: Measure) -> dict[str, Any]:
    return {
        "row": one.line.label,
        "data": one.place[0],
        "memory": one.place[1],
        "at_data": one.at[0],
        "at_memory": one.at[1],
        "metric": measure.metric,
        "by": measure.by,
        "scale": one.scale,
    }


def _published(one: Measured, measure: Measure) -> Published | None:
    if one.line.settings:
        return None
    return published(measure.metric, one.line.method, *one.place, measure.by)


def _known(values: Sequence[float]) -> Known:
    found = spread(values)
    return Known(found.mean, found.std or 0.0, found.n)


def _value(values: Sequence[float]) -> Value | None:
    if not values:
        return None
    found = spread(values)
    return Value(mean=found.mean, std=found.std, n=found.n)


def _gap(found: Difference | Paired) -> Gap:
    return Gap(difference=found.difference, low=found.low, high=found.high, p=found.p)
