"""Runs as a table: means over seeds, the gain over the baseline, and what both cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from peerlearn.errors import UserError
from peerlearn.report.reading import Cost, Run, mean_std, method_key
from peerlearn.report.statistics import PairedTest, paired_test

METRICS = ("AA", "LA", "FM", "RF")
STREAM = (  # settings in which a method and its baseline must agree
    *("tasks", "batch", "blur", "train_per_class", "test_per_class", "image_size"),
    *("width", "stem", "pool", "normalise", "replay_batch", "updates", "precision"),
)


class Spread(NamedTuple):
    """A mean over seeds and its sample standard deviation, None for one seed."""

    mean: float
    std: float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one data set with one memory size; only finished runs are counted."""

    data: str
    memory: int
    method: str
    n: int
    seeds: tuple[int, ...]
    metrics: Mapping[str, Spread | None]  # AA, LA, FM, RF in [0, 1]
    cost: Cost  # means over the seeds
    gain: PairedTest | None  # of AA, over the method before the +
    note: str  # what the numbers leave out; empty if nothing

    @property
    def baseline(self) -> str:
        """The method before the +."""
        return self.method.partition("+")[0]


def summarise(runs: Sequence[Run]) -> list[Row]:
    """Return a row per data, memory and method, each baseline before its variants.

    Finished runs that share a row must agree in all settings but the seed.
    """
    series: dict[tuple[str, int, str], list[Run]] = {}
    for run in sorted(runs, key=lambda r: (r.data, r.memory, method_key(r.method), r.seed)):
        series.setdefault((run.data, run.memory, run.method), []).append(run)
    for some in series.values():
        _check_alike(_done(some))
    return [
        _row(some, series.get((data, memory, method.partition("+")[0]), []))
        for (data, memory, method), some in series.items()
    ]


def _done(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.done]


def _check_alike(runs: Sequence[Run]) -> None:
    """Refuse to average runs that are not the same experiment on different seeds."""
    for before, run in pairwise(runs):
        both = f"{before.folder} and {run.folder}"
        if before.seed == run.seed:
            raise UserError(f"{both} are both seed {run.seed}; remove one of the two folders")
        for name in {**before.settings, **run.settings}:
            mine, yours = before.settings.get(name), run.settings.get(name)
            if name not in ("seed", "device", "threads") and mine != yours:
                raise UserError(
                    f"{both} differ in the setting {name} ({mine!r:.60}, {yours!r:.60}), so their "
                    "mean says nothing; keep them in different folders and make a table of each"
                )


def _row(runs: Sequence[Run], baseline: Sequence[Run]) -> Row:
    done, alone = _done(runs), _done(baseline)
    states = [run.status for run in runs if not run.done]
    notes = [f"{states.count(state)} {state}" for state in sorted(set(states))]
    other = [name for name in STREAM if done and alone and _differ(name, done[0], alone[0])]
    if other:
        notes.append(f"no gain: {', '.join(other)} unlike its baseline")
    cost = {name: _spread([getattr(r.cost, name) for r in done]) for name in Cost._fields}
    first = runs[0]
    return Row(
        data=first.data,
        memory=first.memory,
        method=first.method,
        n=len(done),
        seeds=tuple(run.seed for run in done),
        metrics={name: _spread([run.metrics.get(name) for run in done]) for name in METRICS},
        cost=Cost(**{name: spread and spread.mean for name, spread in cost.items()}),
        gain=_gain(done, alone) if "+" in first.method and not other else None,
        note=", ".join(notes),
    )


def _differ(name: str, a: Run, b: Run) -> bool:
    return bool(a.settings.get(name) != b.settings.get(name))


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return Spread(*mean_std(known)) if known else None


def _gain(runs: Sequence[Run], baseline: Sequence[Run]) -> PairedTest | None:
    after, before = (
        {r.seed: aa for r in some if (aa := r.metrics.get("AA")) is not None and math.isfinite(aa)}
        for some in (runs, baseline)
    )
    both = [seed for seed in after if seed in before]
    return paired_test([after[k] for k in both], [before[k] for k in both]) if both else None
