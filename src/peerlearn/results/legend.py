"""How to read a table or a page: the words for what it shows, and for nothing else."""

from collections.abc import Iterable, Sequence

from peerlearn.metrics.along import ALONG
from peerlearn.metrics.table import EVERY, METRICS
from peerlearn.results.along import in_words
from peerlearn.results.series import Group, Series
from peerlearn.units import printable


def legend(groups: Sequence[Group]) -> list[str]:
    """How to read a table, a sentence per line."""
    shared = [f"{printable(group.name)}: the same for all." for group in groups if group.shared]
    metrics = [EVERY[name] for name in metrics_in(groups)]
    named = dict.fromkeys(printable(group.against) for group in groups if group.against)
    rivals = " and ".join(named) or "the method before the +"
    good = {m.direction: [o.name for o in metrics if o.direction == m.direction] for m in metrics}
    return [
        f"{', '.join(m.name for m in metrics)} in percent: mean ± sample standard deviation over n "
        "finished seeds; "
        + "; ".join(f"{', '.join(names)}: {direction}" for direction, names in good.items())
        + ".",
        f"gain: points of AA over {rivals}, on the n seeds both have, with its 95 % interval; p of "
        "a two-sided paired t-test.",
        *(f"{m.name}: {m.formula}." for m in metrics if m.name in ALONG),
        *notes_on_points(groups),
        *notes_on_steps(groups),
        "forward, backward: images per stream image. training: without evaluation.",
        *shared,
    ]


def metrics_in(groups: Sequence[Group]) -> list[str]:
    """The metrics that a table has a column for."""
    return [name for name in known_in(groups) if EVERY[name].main]


def known_in(groups: Sequence[Group]) -> list[str]:
    """Every metric of a matrix, and those along the stream that some row has."""
    series = _all(groups)
    return [name for name in EVERY if name in METRICS or any(one.values(name) for one in series)]


def notes_on_points(groups: Sequence[Group]) -> list[str]:
    """How metrics along the stream were had."""
    notes = []
    ways = dict.fromkeys(filter(None, map(points_of, _all(groups))))
    if len(ways) == 1:
        notes.append(f"Points: {next(iter(ways))}, at ends of tasks all.")
    elif ways:
        notes.append("Rows evaluated at other points are not compared in what rests on them.")
    windows = {w for one in _all(groups) if (w := one.along["window"]) is not None}
    if windows:
        sizes = " or ".join(f"{window:,.0f}" for window in sorted(windows))
        notes.append(f"Window of the prequential curve: {sizes} images.")
    return notes


def notes_on_steps(groups: Sequence[Group]) -> list[str]:
    """What k and updates are, if they are shown."""
    known = any(one.cost("relative") is not None for one in _all(groups))
    k = "k: computing of a step, in steps of er on the same batch and replay."
    updates = "updates: steps per stream image."
    return [k] * known + [updates] * differing(map(updates_of, _all(groups)))


def points_of(one: Series) -> str:
    """Where a series was evaluated along the stream, nothing if it was not."""
    way = one.way("A_AUC")
    return in_words(way) if way else ""


def updates_of(one: Series) -> str:
    """Steps per stream image, nothing if they were not counted."""
    found = one.cost("updates_per_image")
    return "" if found is None else f"{found:.3g}"


def differing(shown: Iterable[str]) -> bool:
    """Whether there is more than one text, besides none.

    >>> differing(["0.1", "", "0.1"]), differing(["0.1", "0.05"])
    (False, True)
    """
    return len({*shown} - {""}) > 1


def _all(groups: Sequence[Group]) -> list[Series]:
    return [one for group in groups for one in group.series]
