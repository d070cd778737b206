"""Grids: from lists of methods, settings and seeds to every run that they mean."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.resolve import ALIASES, Given, Resolved, resolve
from peerlearn.experiment.settings import parse_seeds
from peerlearn.experiment.vocabulary import every_key, refuse_unused
from peerlearn.files import user_path
from peerlearn.records.folder import run_path
from peerlearn.records.schema import MACHINE
from peerlearn.settings import matching, present_name

MOST_RUNS = 100_000
OWN = ("methods", "method", "seeds", "seed", "include", "exclude")
_FLAGS = ("out", "root", "jobs", "per_run", "retries", "ray", "fetch", "json", "plugin", "preset")


class Wish(NamedTuple):
    """A run as it was asked for; what a process needs in order to resolve it anew."""

    method: str
    given: tuple[Given, ...]
    seed: int | None
    run: Resolved


@dataclass(frozen=True)
class Axis:
    """The values of a setting, one for each run."""

    values: tuple[Given, ...]


@dataclass(frozen=True)
class Grid:
    """Methods x settings x seeds, less what is excluded.

    Args:
        methods: such as "er+ccldc".
        axes: by the name of the setting, as it was written.
        seeds: none: the usual one.
        exclude: runs that agree with one of these are left out.
        include: further grids.
        preset: settings that the axes win over.
    """

    methods: tuple[str, ...]
    axes: Mapping[str, Axis]
    seeds: tuple[int, ...] = ()
    exclude: tuple["Exclusion", ...] = ()
    include: tuple["Grid", ...] = ()
    preset: tuple[Given, ...] = ()

    def runs(self) -> list[Wish]:
        """Every run once, first those of the first seed; all settings known and checked."""
        grids = [self, *self.include]
        refuse_unknown(grids)
        if (count := sum(grid._size for grid in grids)) > MOST_RUNS:
            raise UserError(f"the grid holds {count} runs, more than {MOST_RUNS}; divide it")
        found = [grid._combinations() for grid in grids]
        _refuse_unused(grids, [wish for wishes in found for wish in wishes])
        own, *others = [one._seeded(wishes) for one, wishes in zip(grids, found, strict=True)]
        for exclusion in self.exclude:
            own = exclusion.kept(own)
        places: dict[Path, Wish] = {}
        for wish in (wish for wishes in (own, *others) for wish in wishes):
            places.setdefault(run_path(Path(), wish.run), wish)
        if not places and self.methods:
            raise UserError(f"{self.exclude[-1].where}: leaves no run; exclude less")
        if not places:
            raise UserError("sweep: no method is named; write methods: [er, er+ccldc], or name one")
        for wish in places.values():
            _check(wish)
        return list(places.values())

    @property
    def _size(self) -> int:
        combinations = math.prod(len(axis.values) for axis in self.axes.values())
        return combinations * len(self.methods) * max(len(self.seeds), 1)

    def _combinations(self) -> list[Wish]:
        """Every run of this grid alone, with the usual seed, nothing excluded."""
        return [
            Wish(method, (*self.preset, *given), None, resolve(method, (*self.preset, *given)))
            for given in product(*(axis.values for axis in self.axes.values()))
            for method in self.methods
        ]

    def _seeded(self, wishes: Sequence[Wish]) -> list[Wish]:
        if not self.seeds:
            return list(wishes)
        return [
            wish._replace(seed=seed, run=wish.run.with_seed(seed))
            for seed in self.seeds
            for wish in wishes
        ]


def refuse_unknown(grids: Iterable[Grid]) -> None:
    """Refuse names that mean nothing to any part, and words of the grid that were misspelt."""
    keys = every_key()
    known = [*OWN, *sorted({key.rpartition(".")[2] for key in keys} | {*ALIASES})]
    groups = {key.partition(".")[0] for key in keys}
    for item in (axis.values[0] for grid in grids for axis in grid.axes.values()):
        if matching(ALIASES.get(item.name, item.name), [*keys, *ALIASES.values()]):
            continue
        first, _, rest = item.name.replace("-", "_").partition(".")
        name = rest if rest and first in groups else first
        if item.origin == "file" and name in _FLAGS:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{item.where}: {name} is no setting of a run; give it as {flag}")
        problem = f"{item.where}: there is no setting {item.name!r:.60}"
        raise UserError(did_you_mean(problem, name, known, "peerlearn sweep er+ccldc --help"))


def _refuse_unused(grids: Sequence[Grid], wishes: Sequence[Wish]) -> None:
    """Refuse a setting that none of the runs can use for which it was given."""
    axes = [axis.values[0] for grid in grids for axis in grid.axes.values()]
    for item in dict.fromkeys((*axes, *grids[0].preset)):
        runs = [wish.run for wish in wishes if item in wish.given]
        if runs and all(item in run.unused for run in runs):
            refuse_unused([replace(run, unused=(item,)) for run in runs])


def _check(wish: Wish) -> None:
    """Refuse a run whose settings cannot work together, at the place where they were given."""
    try:
        wish.run.check()
    except UserError as error:
        flag, _, what = str(error).partition(": ")
        files = [one for one in wish.given if f"--{one.name}" == flag and one.origin == "file"]
        place = f"{files[-1].where}: {files[-1].name}" if files else f"{flag}:"
        raise UserError(f"{place} {what}; a grid file can also exclude it") from None


@dataclass(frozen=True)
class Exclusion:
    """Leaves out runs whose settings all are among these.

    Args:
        wanted: values by the names of settings.
        where: it was written, for messages.
        needed: whether one that leaves out nothing is refused; not where flags changed the grid.
    """

    wanted: Mapping[str, Sequence[Any]]
    where: str
    needed: bool = True

    def kept(self, wishes: Sequence[Wish]) -> list[Wish]:
        """Those that it does not mean."""
        found = [wish for wish in wishes if not self._fits(wish)]
        if self.needed and len(found) == len(wishes):
            self._refuse(wishes)
        return found

    def _fits(self, wish: Wish) -> bool:
        return all(self._agrees(wish, name, values) for name, values in self.wanted.items())

    def _agrees(self, wish: Wish, name: str, values: Sequence[Any]) -> bool:
        found = self._values(wish, name)
        return any(_same(value, wanted) for value in found for wanted in values)

    def _values(self, wish: Wish, name: str) -> list[Any]:
        """What a run has under a name, in all the ways in which people write it."""
        name, run = name.replace("-", "_"), wish.run
        if name in ("method", "methods"):
            return [run.method, wish.method]
        if name in ("seed", "seeds"):
            return [run.seed]
        if name == "data":
            return [run.data, os.path.normpath(str(run.values["data"]))]
        keys = matching(ALIASES.get(name, name), run.values)
        return [run.values[keys[0]]] if len(keys) == 1 else []

    def _refuse(self, wishes: Sequence[Wish]) -> None:
        """Say why nothing was left out, which nobody writes an exclusion for."""
        for name, values in self.wanted.items():
            if not any(self._values(wish, name) for wish in wishes):
                known = {key.rpartition(".")[2] for key in every_key()} | {*ALIASES, "method"}
                problem = f"{self.where}: no run has a setting {name!r:.60}"
                raise UserError(did_you_mean(problem, name, known))
            if not any(self._agrees(wish, name, values) for wish in wishes):
                shown = " or ".join(map(str, values))
                raise UserError(f"{self.where}: no run has {name} {shown:.60}; take the entry out")
        raise UserError(f"{self.where}: no run has all of it at once; take the entry out")


def _same(value: Any, wanted: Any) -> bool:
    """Whether a setting has a value, as a person writes it: 1e-3 is 0.001."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(wanted) == float(value)
        except (TypeError, ValueError):
            return False
    return str(value).lower() == str(wanted).lower()


def from_flags(methods: Sequence[str], flags: Iterable[tuple[str, str]], seeds: str | None) -> Grid:
    """A grid from the command line, where a comma parts values: `--lr 1e-3,5e-4`."""
    axes = {}
    for name, text in flags:
        where, key = f"--{name}", name.replace("-", "_")
        if key in axes:
            raise UserError(f"{where}: is given twice; write its values in a list: a,b")
        if key == "config":
            raise UserError(f"{where}: is for peerlearn run; name a grid file first, or --preset")
        if key == "seed":
            if seeds is not None:
                raise UserError("--seed: is given beside --seeds; say one of them")
            seeds = text
            continue
        values = [text] if _whole(key, text) else [part.strip() for part in text.split(",")]
        if not all(values):
            raise UserError(f"{where}: an empty value in {text!r:.60}; write a list such as a,b")
        axes[key] = axis_of(key, values, "flag", where)
    found = parse_seeds(seeds) if seeds is not None else ()
    return Grid(tuple(dict.fromkeys(methods)), axes, found)


def _whole(key: str, text: str) -> bool:
    """Whether a text with commas is one value: cuda:0,cuda:1 are the devices of one run."""
    if key == "data":
        return os.path.isdir(user_path(text))
    return of_the_machine(key)


def combined(file: Grid, flags: Grid) -> Grid:
    """A grid from a file in which flags win: their methods, seeds and settings replace others."""

    def won(grid: Grid, methods: tuple[str, ...]) -> Grid:
        axes = {**without(grid.axes, flags.axes), **flags.axes}
        return replace(grid, methods=methods, axes=axes, seeds=flags.seeds or grid.seeds)

    whole = won(file, flags.methods or file.methods)
    include = () if flags.methods else tuple(won(one, one.methods) for one in file.include)
    changed = bool(flags.methods or flags.axes or flags.seeds)
    exclude = tuple(replace(one, needed=one.needed and not changed) for one in file.exclude)
    return replace(whole, include=include, exclude=exclude)


def with_preset(grid: Grid, preset: Sequence[Given]) -> Grid:
    """A grid whose runs begin with these settings, of which all others win."""
    inner = tuple(replace(one, preset=tuple(preset)) for one in grid.include)
    return replace(grid, include=inner, preset=tuple(preset))


def without(axes: Mapping[str, Axis], others: Iterable[str]) -> dict[str, Axis]:
    """The axes of settings that the others do not set: `lr` also sets `optim.lr`."""
    keys = [*every_key(), *ALIASES.values()]
    taken = {key for name in others for key in _meant(name, keys)}
    return {name: axis for name, axis in axes.items() if not taken.issuperset(_meant(name, keys))}


def _meant(name: str, keys: Sequence[str]) -> list[str]:
    """The settings that a name may stand for; itself if there is none."""
    return matching(ALIASES.get(name, name), keys) or [name]


def settings_in(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names; a range is a leaf, though it is a mapping."""
    for key, value in content.items():
        if isinstance(value, dict) and value and not {"from", "to"} & value.keys():
            yield from settings_in(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def axis_of(key: str, values: Sequence[Any], origin: str, where: str) -> Axis:
    """The values of a setting, and where they were given."""
    name = ALIASES.get(key, key) if origin == "file" else key
    present = [present_name(name, value) for value in values]
    return Axis(tuple(Given(name, value, origin, where) for name, value in present))


def of_the_machine(key: str) -> bool:
    """Whether a setting is one of the machine or of probes: decides no row, is for all runs."""
    found = matching(ALIASES.get(key, key), [*every_key()])
    return bool(found) and all(one.startswith("machine.") or one in MACHINE for one in found)
