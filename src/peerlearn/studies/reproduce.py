"""From a table of the paper to its runs, and from finished runs back to its rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from peerlearn.errors import UserError
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.vocabulary import refuse_unused
from peerlearn.paper.scales import seeds_at, settings_at
from peerlearn.paper.tables import PLACES, USUAL, Line, Table
from peerlearn.records.folder import run_path
from peerlearn.studies.grid import Wish

Place = tuple[str, int]  # data set and memory


@dataclass(frozen=True)
class Asked:
    """What of a table is to be made, and how.

    Args:
        table: of the paper.
        scale: paper or lite.
        given: settings from the command line; they win over those of the scale.
        seeds: none: the usual ones of the scale.
        instead: another place than the published one.
    """

    table: Table
    scale: str
    given: tuple[Given, ...] = ()
    seeds: tuple[int, ...] = ()
    instead: Place | None = None


@dataclass(frozen=True)
class Planned:
    """A row of a table at one place, and the runs that it takes.

    Args:
        line: the row.
        place: of the published figure.
        wishes: one for each seed.
    """

    line: Line
    place: Place
    wishes: tuple[Wish, ...]

    @property
    def at(self) -> Place:
        """The data set and memory of the runs."""
        run = self.wishes[0].run
        return run.data, run.memory

    @property
    def as_published(self) -> bool:
        """Whether no setting is another than that of the row in the paper; the profile may be."""
        run, own = self.wishes[0].run, {*self.line.settings, "profile"}
        return {*run.variant} <= own and ("memory" in own or self.at == self.place)

    @property
    def keys(self) -> dict[int, str]:
        """The folders of the runs below that of all runs, by seed."""
        return {w.run.seed: run_path(Path(), w.run).as_posix() for w in self.wishes}


def planned(asked: Asked) -> list[Planned]:
    """Every row of a table with its runs, all settings known and checked."""
    found = [
        _planned(asked, line, place) for place in asked.table.places for line in asked.table.lines
    ]
    refuse_unused([wish.run for one in found for wish in one.wishes])
    for one in found:
        one.wishes[0].run.check()
    return found


def _planned(asked: Asked, line: Line, place: Place) -> Planned:
    data, memory = asked.instead or place
    where = f"--scale {asked.scale}"
    shortened = settings_at(asked.scale, line.method, data, memory)
    settings = {"data": data, **shortened, **line.settings}
    given = (
        *(Given(name, value, "file", where) for name, value in settings.items()),
        *asked.given,
    )
    run = resolve(line.method, given)
    seeds = asked.seeds or seeds_at(asked.scale, line.method)
    wishes = [Wish(line.method, given, seed, run.with_seed(seed)) for seed in seeds]
    return Planned(line, place, tuple(wishes))


def wishes_of(found: Iterable[Planned]) -> list[Wish]:
    """Every run once, however many rows share it; first those of the first seed."""
    places = {key: w for one in found for w, key in zip(one.wishes, one.keys.values(), strict=True)}
    return sorted(places.values(), key=lambda wish: wish.run.seed)


def narrowed(table: Table, data: Sequence[str], memories: Sequence[int]) -> Table:
    """The table on these data sets and memory sizes alone."""
    places = [p for p in table.places if not data or p[0] in data]
    places = [p for p in places if not memories or p[1] in memories]
    if not places:
        known = ", ".join(f"{name} {memory}" for name, memory in table.places)
        wanted = " ".join([*data, *map(str, memories)])
        raise UserError(f"{table.name}: the paper has no {wanted}; choose from {known}")
    return replace(table, places=tuple(places))


def moved(table: Table, data: str, memory: int | None) -> tuple[Table, Place]:
    """A table that was published on one data set, at its usual place, and where to make it instead.

    memory: as in the paper's tables of that data set; none: the smallest of them.
    """
    known = dict(reversed(PLACES))
    if memory is None and data not in known:
        raise UserError(f"--data: {data:.60} is not of the paper; say also --memory")
    return replace(table, places=USUAL), (data, known[data] if memory is None else memory)


def asked_for(
    table: Table, data: Sequence[str], memories: Sequence[int]
) -> tuple[Table, Place | None]:
    """A table as `narrowed`, or as `moved` if it knows one data set and another is asked for."""
    published = {name for name, _ in table.places}
    if len(published) == 1 and len(data) == 1 and data[0] not in published:
        if len(memories) > 1:
            raise UserError(f"--memory: {table.name} is made on {data[0]} with one; choose it")
        return moved(table, data[0], memories[0] if memories else None)
    return narrowed(table, data, memories), None
