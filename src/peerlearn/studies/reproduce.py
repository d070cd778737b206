"""From a table of the paper to its runs, and from finished runs back to its rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peerlearn.errors import UserError
from peerlearn.experiment.identity import differences
from peerlearn.experiment.precision import settle_precision
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.vocabulary import refuse_unused
from peerlearn.paper.scales import seeds_at, settings_at
from peerlearn.paper.tables import PLACES, USUAL, Line, Table
from peerlearn.records.folder import run_path, shown
from peerlearn.records.read import RunRecord
from peerlearn.records.schema import MACHINE
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
        scale: at which they are made, and the settings in which they leave it.
        as_published: whether no setting is another than that of the paper; the profile may be.
    """

    line: Line
    place: Place
    wishes: tuple[Wish, ...]
    scale: str
    as_published: bool

    @property
    def at(self) -> Place:
        """The data set and memory of the runs."""
        run = self.wishes[0].run
        return run.data, run.memory

    @property
    def keys(self) -> dict[int, str]:
        """The folders of the runs below that of all runs, by seed."""
        return {w.run.seed: key_of(w) for w in self.wishes}


def key_of(wish: Wish) -> str:
    """The folder of a run below that of all runs."""
    return run_path(Path(), wish.run).as_posix()


def planned(asked: Asked) -> list[Planned]:
    """Every row of a table with its runs, all settings known and checked."""
    if any(item.name == "seed" for item in asked.given):
        raise UserError("--seed: a table has several; say --seeds 7")
    found = [
        _planned(asked, line, place) for place in asked.table.places for line in asked.table.lines
    ]
    refuse_unused([wish.run for one in found for wish in one.wishes])
    for one in found:
        one.wishes[0].run.check()
    return found


def _planned(asked: Asked, line: Line, place: Place) -> Planned:
    data, memory = asked.instead or place
    shortened = {"data": data, **settings_at(asked.scale, line.method, data, memory)}
    # a row's own settings are as good as flags: another flag cannot change what its name says
    plain = (
        *(Given(name, v, "file", f"--scale {asked.scale}") for name, v in shortened.items()),
        *(Given(name, v, "flag", f"the row {line.label}") for name, v in line.settings.items()),
    )
    run = resolve(line.method, (*plain, *asked.given))
    profile = tuple(item for item in asked.given if item.name == "profile")
    changed = _changed(run, resolve(line.method, (*plain, *profile)))
    seeds = asked.seeds or seeds_at(asked.scale, line.method)
    given = (*plain, *asked.given)
    return Planned(
        line,
        place,
        tuple(Wish(line.method, given, seed, run.with_seed(seed)) for seed in seeds),
        ", ".join([asked.scale, *(f"{name}={shown(v):.40}" for name, v in changed.items())]),
        asked.scale == "paper" and not changed and asked.instead is None,
    )


def _changed(run: Resolved, plain: Resolved) -> dict[str, Any]:
    """The settings that decide numbers in which a run leaves another."""
    changed = [
        key
        for key in {**plain.values, **run.values}
        if key not in MACHINE and run.values.get(key) != plain.values.get(key)
    ]
    return {key.rpartition(".")[2]: run.values.get(key) for key in changed}


def settled(found: Sequence[Planned], out: Path) -> tuple[list[Planned], list[str]]:
    """Rows whose runs have chosen their precision, and a line for each choice."""
    runs, lines = settle_precision([wish.run for one in found for wish in one.wishes], out)
    chosen = iter(runs)
    return [
        replace(one, wishes=tuple(w._replace(run=next(chosen)) for w in one.wishes))
        for one in found
    ], lines


def of_run(wish: Wish, found: RunRecord) -> RunRecord:
    """A record, once it is seen to be of the run that its place says."""
    if differ := differences(found.config, wish.run):
        raise UserError(
            f"{found.folder}: is another run than this table has there: {differ}; leave it out"
        )
    return found


def missing(wishes: Iterable[Wish], there: Mapping[str, RunRecord]) -> list[Wish]:
    """Those that are not there, by their folders; what is there must be what was wished for."""
    keys = [(wish, key_of(wish)) for wish in wishes]
    for wish, key in keys:
        if key in there:
            of_run(wish, there[key])
    return [wish for wish, key in keys if key not in there]


def wishes_of(found: Iterable[Planned]) -> list[Wish]:
    """Every run once, however many rows share it; first those of the first seed."""
    places = {key: w for one in found for w, key in zip(one.wishes, one.keys.values(), strict=True)}
    return sorted(places.values(), key=lambda wish: wish.run.seed)


def narrowed(table: Table, data: Sequence[str], memories: Sequence[int]) -> Table:
    """The table on these data sets and memory sizes alone; each must be one of its own."""
    known = ", ".join(f"{name} {memory}" for name, memory in table.places)
    for wanted, column in ((data, 0), (memories, 1)):
        for one in wanted:
            if one not in [place[column] for place in table.places]:
                raise UserError(f"{table.name}: the paper has no {one}; choose from {known}")
    places = [
        place
        for place in table.places
        if (not data or place[0] in data) and (not memories or place[1] in memories)
    ]
    if not places:
        asked = " ".join([*data, *map(str, memories)])
        raise UserError(f"{table.name}: the paper has no {asked}; choose from {known}")
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
