"""How each series is drawn, the same on the whole page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from peerlearn.results.compare import method_key
from peerlearn.results.series import Group

COLOURS = 8
RANKS = 3  # ways to draw in one colour


class Look(NamedTuple):
    """A colour, and a shape and dashes that tell baselines, wrappers and variants apart.

    key: the number by which the page knows the series. Those that share a colour differ in rank.
    """

    key: int
    colour: int
    wrapped: bool
    rank: int = 0

    @property
    def line(self) -> str:
        """The classes of its line: colour and dashes."""
        return f"c{self.colour} {'wrapped' if self.wrapped else 'alone'}{self.rank % RANKS}"

    @property
    def choice(self) -> str:
        """The classes by which the legend shows and hides it."""
        return f"s s{self.key}"


Looks = Mapping[str, Look]  # by the names of series


def assign_looks(groups: Sequence[Group]) -> dict[str, Look]:
    """A look for the name of every series.

    Each has a colour of its own; if there are too many, each method has, with its wrappers and
    variants, as long as these can be told apart.
    """
    series = {one.name: one for group in groups for one in group.series}
    names = sorted(series, key=lambda name: (method_key(series[name].method), len(name), name))
    owners = {name: series[name].base for name in names}
    drawn_alike = Counter((owners[name], bool(series[name].wrapper)) for name in names)
    if len(names) <= COLOURS or max(drawn_alike.values()) > RANKS:
        owners = {name: name for name in names}
    colours = {owner: k % COLOURS for k, owner in enumerate(dict.fromkeys(owners.values()))}
    looks: dict[str, Look] = {}
    ranks: Counter[tuple[int, bool]] = Counter()
    for key, name in enumerate(names):
        drawn = colours[owners[name]], bool(series[name].wrapper)
        looks[name] = Look(key, *drawn, ranks[drawn])
        ranks[drawn] += 1
    return looks
