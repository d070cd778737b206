"""Every table and figure of the paper that is made of runs: rows, columns, what is compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from peerlearn.errors import UserError, did_you_mean

METHODS = ("er", "derpp", "er_ace", "ocm", "gsa", "onpro")
PLACES = (
    ("cifar10", 500), ("cifar10", 1000),
    ("cifar100", 1000), ("cifar100", 2000), ("cifar100", 5000),
    ("tiny", 2000), ("tiny", 5000), ("tiny", 10000),
    ("imagenet100", 5000),
)  # fmt: skip
REFERENCES = ("finetune", "joint")  # rows that --only may add; the paper does not have them
USUAL = (("cifar100", 2000),)  # of ablations and analyses
ENSEMBLE, INDEPENDENT, NCM = "ensemble", "independent", "ncm"
PEER_1, PEER_2 = "peer 1", "peer 2"


class Line(NamedTuple):
    """A row: a method, and the settings in which it leaves its preset.

    >>> Line("er+ccldc", {"stages": 2}).label
    'er+ccldc, stages=2'
    """

    method: str
    settings: Mapping[str, Any] = {}

    @property
    def base(self) -> str:
        """The method before the plus."""
        return self.method.partition("+")[0]

    @property
    def label(self) -> str:
        """The row in words."""
        return ", ".join([self.method, *(f"{k}={v}" for k, v in self.settings.items())])


class Measure(NamedTuple):
    """A number of a run: a metric, or "seconds", and who answers."""

    metric: str
    by: str = ENSEMBLE

    @property
    def label(self) -> str:
        """The measure in words."""
        return self.metric if self.by == ENSEMBLE else f"{self.metric}, {self.by}"


class Order(NamedTuple):
    """Two rows that the paper compares.

    Args:
        first, second: the rows; the difference is first minus second.
        by: who answers in each; none: as each measure of the table says.
        more: whose first measure the paper says is larger in the first row, where it prints no
            numbers.
    """

    first: Line
    second: Line
    by: tuple[str, str] | None = None
    more: bool = False


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper.

    Args:
        name: by which it is asked for.
        source: where it is in the paper.
        title: what it shows.
        lines: its rows.
        measures: what is measured of each.
        orders: which rows are compared.
        places: data sets and memory sizes.
        says: what the paper finds, where it prints no numbers.
    """

    name: str
    source: str
    title: str
    lines: tuple[Line, ...]
    measures: tuple[Measure, ...]
    orders: tuple[Order, ...] = ()
    places: tuple[tuple[str, int], ...] = USUAL
    says: str = ""

    def only(self, methods: Sequence[str]) -> "Table":
        """Return the table with the rows of these methods, before the plus, and references."""
        bases = list(dict.fromkeys(line.base for line in self.lines))
        for name in methods or [""]:
            if name not in (known := (*bases, *REFERENCES)):
                raise UserError(did_you_mean(f"--only: {self.name} has no {name!r}", name, known))
        kept = tuple(line for line in self.lines if line.base in methods)
        kept += tuple(Line(name) for name in REFERENCES if name in methods)
        orders = tuple(o for o in self.orders if o.first in kept and o.second in kept)
        return replace(self, lines=kept, orders=orders)


def _each(methods: Sequence[str], *wrappers: str) -> tuple[Line, ...]:
    return tuple(Line(f"{m}+{w}" if w else m) for m in methods for w in wrappers)


def _orders(methods: Sequence[str], *pairs: tuple[str, str]) -> tuple[Order, ...]:
    """For each method, by wrappers: the first is compared with the second."""
    named = [[_each([m], w)[0] for w in pair] for m in methods for pair in pairs]
    return tuple(Order(first, second) for first, second in named)


GAIN = _orders(METHODS, ("ccldc", ""))
BOTH = _each(METHODS, "", "ccldc")
TWO = ("er", "er_ace")


def _main(name: str, source: str, title: str) -> Table:
    return Table(name, source, title, BOTH, (Measure(name.upper()),), GAIN, PLACES)


def _varied(key: str, values: Sequence[Any]) -> tuple[Line, ...]:
    return tuple(Line("er+ccldc", {key: value}) for value in values)


NO_REPLAY, REPLAY = Line("er", {"memory": 0}), Line("er")
UPDATES, OFFLINE = Line("er", {"updates": 5}), Line("er", {"epochs": 5})
STAGES = _varied("stages", range(6))
WEIGHTS = (0.25, 0.5, 1, 2, 4, 8)

TABLES = {
    table.name: table
    for table in (
        _main("aa", "Table 3", "average accuracy with and without CCL-DC"),
        _main("la", "Table 4", "learning accuracy with and without CCL-DC"),
        _main("rf", "Table 5", "relative forgetting with and without CCL-DC"),
        _main("fm", "Table 10", "forgetting measure with and without CCL-DC"),
        Table(
            "independent",
            "Table 9",
            "one peer alone, and the ensemble of both",
            _each(METHODS, "ccldc"),
            tuple(Measure("AA", by) for by in (PEER_1, PEER_2, INDEPENDENT, ENSEMBLE)),
            tuple(Order(line, line, (ENSEMBLE, INDEPENDENT)) for line in _each(METHODS, "ccldc")),
            PLACES,
            "the ensemble is slightly ahead of a single peer. Both are of the same runs, whose "
            "pairs are not printed, so that the published interval is wider than it need be",
        ),
        Table(
            "ablation",
            "Table 6",
            "what more views, a peer, and the chain add",
            _each(TWO, "", "multiview", "ccl", "ccldc"),
            (Measure("AA"), Measure("LA")),
            _orders(TWO, ("multiview", ""), ("ccl", "multiview"), ("ccldc", "ccl")),
        ),
        Table(
            "schemes",
            "Table 7",
            "directions of the chain",
            _each(TWO, "ccldc-easy-to-hard", "ccldc-same-difficulty", "ccldc"),
            (Measure("AA"), Measure("LA")),
            _orders(
                TWO,
                ("ccldc", "ccldc-easy-to-hard"),
                ("ccldc", "ccldc-same-difficulty"),
                ("ccldc-same-difficulty", "ccldc-easy-to-hard"),
            ),
        ),
        Table(
            "sdc",
            "Table 8",
            "one network that teaches itself, beside two peers",
            _each(["er"], "sdc-easy-to-hard", "sdc", "ccldc-easy-to-hard", "ccldc"),
            (Measure("AA"), Measure("LA")),
            _orders(["er"], ("sdc", "sdc-easy-to-hard"), ("ccldc", "sdc")),
        ),
        Table(
            "untrained",
            "Table 2",
            "a teacher that never learns",
            _each(["er"], "", "untrained"),
            (Measure("AA"),),
            _orders(["er"], ("untrained", "")),
            tuple(place for place in PLACES if place[0] == "cifar100"),
        ),
        Table(
            "stages",
            "Figure 6",
            "stages of the chain",
            STAGES,
            (Measure("AA"), Measure("LA")),
            (Order(STAGES[3], STAGES[0], more=True),),
            says="more stages are better; 3 is chosen for their cost",
        ),
        Table(
            "randaugment",
            "Figure 8",
            "operations and magnitude of RandAugment",
            tuple(
                Line("er+ccldc", {"ops": n, "magnitude": m})
                for n in range(1, 5)
                for m in range(5, 18, 2)
            ),
            (Measure("AA"),),
            says="the best are 3 operations of magnitude 15",
        ),
        Table(
            "lambda",
            "Figure 9",
            "weights of labels and distillation",
            tuple(
                Line("er+ccldc", {"label_weight": one, "distill_weight": two})
                for one in WEIGHTS
                for two in WEIGHTS
            ),
            (Measure("AA"),),
            says="the best are 0.5 for labels and 2 for distillation",
        ),
        Table(
            "ncm",
            "Table 11",
            "nearest class means in place of the classifier",
            _each(("er", "er_ace", "onpro"), "", "ccldc"),
            (Measure("AA", NCM), Measure("AA")),
            _orders(("er", "er_ace", "onpro"), ("ccldc", "")),
        ),
        Table(
            "plasticity-gap",
            "Figure 1",
            "plasticity and stability of ER, from no replay to offline learning",
            (NO_REPLAY, REPLAY, UPDATES, OFFLINE),
            (Measure("LA"), Measure("RF")),
            (Order(OFFLINE, REPLAY, more=True), Order(OFFLINE, UPDATES, more=True)),
            says="offline learning is more plastic than online learning with replay, also with "
            "several updates per batch; how many updates and epochs is not published",
        ),
        Table(
            "time",
            "Figure 12",
            "training time with and without CCL-DC",
            BOTH,
            (Measure("seconds"),),
            tuple(order._replace(more=True) for order in GAIN),
            says="a chart without numbers, of one A100",
        ),
    )
}
EXAMPLE = "forgetting-example"


def table(name: str) -> Table:
    """A table by its name."""
    if name not in TABLES:
        raise UserError(did_you_mean(f"there is no table {name!r}", name, [*TABLES, EXAMPLE]))
    return TABLES[name]
