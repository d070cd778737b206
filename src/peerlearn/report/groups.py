"""Runs put in order: by data and memory, then by method, with their means and comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from peerlearn.report.charts import Look
from peerlearn.report.reading import Matrix, Run, mean_std, method_key

COLOURS = 8


@dataclass(frozen=True)
class Series:
    """All runs of one method on the same data with the same memory."""

    method: str
    runs: tuple[Run, ...]

    @property
    def done(self) -> list[Run]:
        """The runs that came to their end; only these enter means."""
        return [run for run in self.runs if run.done]

    @property
    def drawn(self) -> list[Run]:
        """The finished runs, or, while there is none, what the others have so far."""
        return self.done or [run for run in self.runs if run.ensemble]

    @property
    def label(self) -> str:
        """The method, marked as unfinished if no run has come to its end."""
        return self.method if self.done else f"{self.method} (unfinished)"

    @property
    def is_ccldc(self) -> bool:
        """Whether this is a method with the whole of CCL-DC."""
        return self.method.endswith("+ccldc")

    def metric(self, name: str, seeds: frozenset[int] | None = None) -> list[float]:
        """Return a metric of every finished run that has it, of these seeds if given."""
        runs = [run for run in self.done if seeds is None or run.seed in seeds]
        return [value for run in runs if (value := run.metrics.get(name)) is not None]

    def cost(self, name: str, seeds: frozenset[int] | None = None) -> float | None:
        """Return the mean of a cost over the finished runs, None if none has it."""
        runs = [run for run in self.done if seeds is None or run.seed in seeds]
        values = [value for run in runs if (value := getattr(run.cost, name)) is not None]
        return mean_std(values)[0] if values else None

    def mean_matrix(self) -> Matrix:
        """Return the mean accuracy matrix, as far as every drawn run has got."""
        matrices = [run.ensemble for run in self.drawn]
        rows = [list(zip(*parts, strict=True)) for parts in zip(*matrices, strict=False)]
        return tuple(tuple(mean_std(cell)[0] for cell in row) for row in rows)

    def mean_memory(self) -> list[list[float]]:
        """Return stored images per task and class slot, mean over the drawn runs."""
        stored = [run.memory_classes for run in self.drawn if run.memory_classes]
        rows = zip(*stored, strict=False)
        return [[mean_std(slot)[0] for slot in zip(*row, strict=False)] for row in rows]


@dataclass(frozen=True)
class Group:
    """What can be compared: methods on the same data with the same memory."""

    key: str
    data: str
    memory: int
    series: tuple[Series, ...]

    @property
    def name(self) -> str:
        """The heading of the group."""
        return f"{self.data}, memory {self.memory}"


@dataclass(frozen=True)
class Pair:
    """A baseline and its CCL-DC, over the seeds that both have finished."""

    group: Group
    alone: Series
    peers: Series
    seeds: frozenset[int]

    def means(self, name: str) -> tuple[float, float] | None:
        """Return a metric of the baseline and of its CCL-DC in percent."""
        before, after = (s.metric(name, self.seeds) for s in (self.alone, self.peers))
        if not before or not after:
            return None
        return 100 * mean_std(before)[0], 100 * mean_std(after)[0]

    def costs(self, name: str) -> tuple[float, float] | None:
        """Return a cost of the baseline and of its CCL-DC."""
        before, after = (s.cost(name, self.seeds) for s in (self.alone, self.peers))
        return None if before is None or after is None else (before, after)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Return the runs by data and memory, each with its methods, baselines before CCL-DC."""
    ordered = sorted(runs, key=lambda r: (r.data, r.memory, method_key(r.method), r.seed))
    groups = []
    for n, ((data, memory), some) in enumerate(groupby(ordered, lambda r: (r.data, r.memory))):
        series = tuple(Series(m, tuple(same)) for m, same in groupby(some, lambda r: r.method))
        groups.append(Group(f"g{n}", data, memory, series))
    return groups


def find_pairs(groups: Sequence[Group]) -> list[Pair]:
    """Return every baseline that has finished beside its CCL-DC on at least one same seed."""
    pairs = []
    for group in groups:
        by_name = {series.method: series for series in group.series}
        for series in group.series:
            alone = by_name.get(series.method.removesuffix("+ccldc"))
            if not series.is_ccldc or alone is None:
                continue
            seeds = frozenset(r.seed for r in alone.done) & {r.seed for r in series.done}
            pair = Pair(group, alone, series, seeds)
            if seeds and pair.means("AA"):
                pairs.append(pair)
    return pairs


def assign_looks(runs: Sequence[Run]) -> dict[str, Look]:
    """Give each method a colour of its own, or, if there are too many, one per baseline.

    A baseline and its variants are then told apart by line, shape and fill.
    """
    methods = sorted({run.method for run in runs}, key=method_key)
    names = methods
    if len(methods) > COLOURS:
        names = list(dict.fromkeys(method.split("+", 1)[0] for method in methods))
    colours = {name: i % COLOURS for i, name in enumerate(names)}
    with_peers = {run.method for run in runs if len(run.peer_metrics) > 1}
    looks: dict[str, Look] = {}
    for method in methods:
        colour = colours[method if method in colours else method.split("+", 1)[0]]
        peers = method in with_peers
        rank = sum(look.colour == colour and look.peers == peers for look in looks.values())
        looks[method] = Look(colour, peers, rank)
    return looks
