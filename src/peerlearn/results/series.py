"""What a comparison consists of: series of runs, their gains, and the groups they stand in."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from peerlearn.metrics.along import ALONG
from peerlearn.metrics.table import SHOWN
from peerlearn.records.folder import shown
from peerlearn.records.read import RunRecord
from peerlearn.records.schema import Cost
from peerlearn.results.along import HOW, Way, way_of
from peerlearn.results.statistics import Paired, Spread, spread

Facts = Mapping[str, Any]


def labelled(name: str, parts: Facts) -> str:
    """A name and the settings that belong to it.

    >>> labelled("er", {"lr": 0.01})
    'er, lr=0.01'
    """
    return ", ".join([name, *(f"{part}={shown(value):.40}" for part, value in parts.items())])


@dataclass(frozen=True)
class Gain:
    """A wrapper against its baseline, over the seeds that both have finished."""

    baseline: "Series"
    seeds: tuple[int, ...]
    metrics: Mapping[str, Paired]  # wrapper minus baseline, by the metric's name


@dataclass(frozen=True)
class Series:
    """Runs that differ in nothing but the seed (and the machine)."""

    runs: tuple[RunRecord, ...]
    facts: Facts  # all that decides numbers, the seed left out
    label: str = ""  # the method and its variant
    name: str = ""  # the label without what all series of its group share
    gain: Gain | None = None
    why: str = ""  # why a wrapper has no gain

    @property
    def method(self) -> str:
        """The method, and after a plus its wrapper."""
        return self.runs[0].method

    @property
    def base(self) -> str:
        """The method before the plus."""
        return self.method.partition("+")[0]

    @property
    def wrapper(self) -> str:
        """What stands after the plus."""
        return self.method.partition("+")[2]

    @property
    def variant(self) -> dict[str, Any]:
        """The settings that differ from the preset, by their short names."""
        return self.runs[0].config.variant

    @property
    def done(self) -> list[RunRecord]:
        """The finished runs; only these enter means."""
        return [run for run in self.runs if run.done]

    @property
    def drawn(self) -> list[RunRecord]:
        """The finished runs, or, while there is none, what the others have so far."""
        begun = [run for run in self.runs if run.matrix]
        return [run for run in begun if run.done] or begun

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the finished runs."""
        return tuple(run.seed for run in self.done)

    @property
    def note(self) -> str:
        """What the numbers leave out; empty if nothing."""
        states = [run.state for run in self.runs if not run.done]
        notes = [f"{states.count(state)} {state}" for state in sorted(set(states))]
        return ", ".join([*notes, *filter(None, (self.why, self.uneven))])

    @property
    def uneven(self) -> str:
        """Of which metrics along the stream some finished runs have nothing, or something else."""
        few: dict[str, list[str]] = {}
        for name in (name for name in SHOWN if name in ALONG):
            n = len(self._measured(name))
            if n and self.way(name) is None:
                few.setdefault("not evaluated alike", []).append(name)
            elif 0 < n < len(self.done):
                few.setdefault(f"in {n} of {len(self.done)} seeds", []).append(name)
        return ", ".join(f"{' and '.join(names)} {what}" for what, names in few.items())

    def values(self, metric: str) -> dict[int, float]:
        """A metric by seed, of the finished runs that have it; none if these had it unlike."""
        return self._measured(metric) if self.way(metric) is not None else {}

    def way(self, metric: str) -> Way | None:
        """What a metric rests on; None if no finished run has it or they had it unlike."""
        there = self._measured(metric)
        ways = {way_of(run, metric) for run in self.done if run.seed in there}
        return ways.pop() if len(ways) == 1 else None

    def _measured(self, metric: str) -> dict[int, float]:
        found = {run.seed: run.metrics.get(metric) for run in self.done}
        return {k: v for k, v in found.items() if v is not None and math.isfinite(v)}

    @property
    def along(self) -> dict[str, float | None]:
        """How it was evaluated along the stream; None for what was not asked, or not alike."""
        ways = [run.summary.along for run in self.done]
        known = {name: {way[name] for way in ways if name in way} for name in HOW}
        return {name: found.pop() if len(found) == 1 else None for name, found in known.items()}

    def spread(self, metric: str) -> Spread | None:
        """The mean of a metric over the seeds, None if no run has it."""
        values = self.values(metric)
        return spread(list(values.values())) if values else None

    @property
    def spread_by_means(self) -> Spread | None:
        """The mean AA by nearest class means over the seeds, None if a finished run lacks it."""
        found = [(run.summary.ncm or {}).get("AA") for run in self.done]
        known = [aa for aa in found if aa is not None]
        return spread(known) if known and len(known) == len(found) else None

    def cost(self, name: str, seeds: Iterable[int] | None = None) -> float | None:
        """The mean of a cost over the finished runs, of these seeds if given."""
        chosen = set(self.seeds if seeds is None else seeds)
        costs = [getattr(run.cost, name) for run in self.done if run.seed in chosen]
        known = [cost for cost in costs if cost is not None]
        return math.fsum(known) / len(known) if known else None

    @property
    def costs(self) -> dict[str, float | None]:
        """The mean of every cost, by name."""
        return {name: self.cost(name) for name in Cost.model_fields}

    @property
    def chance(self) -> tuple[float, ...]:
        """AA of guessing after each task: one over the classes so far."""
        runs = self.done[:1] or self.runs  # the finished ones have all had the same tasks
        longest = max((run.accuracy for run in runs), key=lambda a: len(a.ensemble))
        steps = range(1, len(longest.ensemble) + 1)
        if not longest.class_names:
            return ()
        whole = len(longest.class_names)
        return tuple(1 / min(whole, longest.classes_until(step)) for step in steps)

    @property
    def chance_at_end(self) -> float | None:
        """AA of guessing after the last task, from the summaries alone where these know it."""
        classes = self.done[0].summary.classes if self.done else 0
        if classes:
            return 1 / classes
        return self.chance[-1] if self.chance else None

    @property
    def at_chance(self) -> bool:
        """Whether AA cannot be told from guessing: its interval, or one seed, is not above it."""
        aa = self.spread("AA")
        chance = None if aa is None else self.chance_at_end
        if aa is None or chance is None:
            return False
        return (aa.mean if aa.low is None else aa.low) <= chance


@dataclass(frozen=True)
class Group:
    """What stands side by side: all series on the same data with the same memory."""

    data: str
    memory: int
    series: tuple[Series, ...]
    shared: Facts = field(default_factory=dict)  # what the variants of all series have in common
    best: Mapping[str, frozenset[str]] = field(default_factory=dict)  # labels, by metric
    against: str = ""  # the series that all are set against; "" for the baseline of each

    @property
    def name(self) -> str:
        """The heading of the group."""
        return labelled(f"{self.data}, memory {self.memory}", self.shared)

    @property
    def gains(self) -> list[tuple[Series, Gain]]:
        """The series that can be set against a baseline."""
        return [(series, series.gain) for series in self.series if series.gain]

    @property
    def chances(self) -> list[tuple[float, ...]]:
        """AA of guessing after each task; more than one where streams differ."""
        curves = dict.fromkeys(s.chance for s in self.series if s.drawn and s.chance)
        return [c for c in curves if not any(c != d and c == d[: len(c)] for d in curves)]
