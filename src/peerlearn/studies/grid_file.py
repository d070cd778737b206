"""Grids from YAML files: lists, ranges, what is excluded and included; see docs/sweeps.md."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from peerlearn.errors import UserError
from peerlearn.experiment.config_file import note_old_names, read_mapping
from peerlearn.experiment.settings import parse_seeds
from peerlearn.studies.grid import (
    OWN,
    Axis,
    Exclusion,
    Grid,
    axis_of,
    of_the_machine,
    refuse_unknown,
    settings_in,
    without,
)

MOST_VALUES = 10_000  # of a range
_RANGE = ("from", "to", "step", "count", "log")
_FORM = "{from: 1, to: 4, step: 1} or {from: 1e-4, to: 1e-1, count: 4, log: true}"

Where = Callable[[str], str]  # the place of a key, for messages


def from_file(path: Path) -> Grid:
    """A grid from a YAML file; see docs/sweeps.md."""
    content, lines = read_mapping(path)

    def where(key: str) -> str:
        return f"{path}, line {lines.get(key, 1)}"

    grid = _grid(content, where)
    exclude = [
        Exclusion(_wanted(entry, place), place)
        for entry, place in _entries(content, "exclude", where("exclude"))
    ]
    include = [
        _included(grid, entry, place)
        for entry, place in _entries(content, "include", where("include"))
    ]
    return replace(grid, exclude=tuple(exclude), include=tuple(include))


def _included(grid: Grid, entry: Mapping[str, Any], place: str) -> Grid:
    """A grid within another, of which it takes the seeds and the settings with a single value."""
    if "exclude" in entry or "include" in entry:
        raise UserError(f"{place}: cannot hold exclude or include itself; write further entries")
    inner = _grid(entry, lambda _: place)
    if not inner.methods:
        refuse_unknown([inner])  # a misspelt one
        raise UserError(f"{place}: needs methods of its own, such as methods: [er, er+ccldc]")
    fixed = {name: axis for name, axis in grid.axes.items() if len(axis.values) == 1}
    return replace(
        inner,
        axes={**without(fixed, inner.axes), **inner.axes},
        seeds=inner.seeds or grid.seeds,
    )


def _grid(content: Mapping[str, Any], where: Where) -> Grid:
    """Methods, seeds and axes of a file, or of an entry of `include`."""
    own = {key for key in OWN if key in content}
    if isinstance(content.get("method"), dict):  # settings of the method, as in a run's config.yaml
        own.remove("method")
    for one, many in (("method", "methods"), ("seed", "seeds")):
        if {one, many} <= own:
            raise UserError(f"{where(one)}: {one} is given beside {many}; say one of them")
    settings = {key: value for key, value in content.items() if key not in own}
    axes: dict[str, Axis] = {}
    note_old_names(dict(settings_in(settings)), where)
    for key, value in settings_in(settings):
        values = _values(value, where(key))
        if not values:
            raise UserError(f"{where(key)}: {key} has no value; give one, or leave it out")
        if of_the_machine(key) and len(values) > 1:
            raise UserError(f"{where(key)}: {key} is for all runs alike; give it one value")
        axis = axis_of(key.replace("-", "_"), values, "file", where(key))
        if not without({key: axis}, axes):
            raise UserError(f"{where(key)}: {key} is set twice, by another name; say it once")
        axes[key.replace("-", "_")] = axis
    return Grid(_methods(content, own, where), axes, _seeds(content, own, where))


def _methods(content: Mapping[str, Any], own: Iterable[str], where: Where) -> tuple[str, ...]:
    for key in {"method", "methods"} & {*own}:
        names = content[key] if isinstance(content[key], list) else [content[key]]
        if not names or not all(isinstance(name, str) and name for name in names):
            form = "names such as [er, er+ccldc]"
            raise UserError(f"{where(key)}: {key} must be {form}, got {content[key]!s:.40}")
        return tuple(dict.fromkeys(names))
    return ()


def _seeds(content: Mapping[str, Any], own: Iterable[str], where: Where) -> tuple[int, ...]:
    for key in {"seed", "seeds"} & {*own}:
        values = _values(content[key], where(key))
        try:
            return parse_seeds(",".join(map(str, values)))
        except UserError as error:
            raise UserError(f"{where(key)}: {str(error).removeprefix('--seeds: ')}") from None
    return ()


def _entries(
    content: Mapping[str, Any], name: str, where: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """The entries of `exclude` or `include`, and the place of each."""
    entries = content.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(one, dict) and one for one in entries):
        raise UserError(f"{where}: {name} must be a list of mappings, such as - {{method: er}}")
    for number, one in enumerate(entries, 1):
        place = f"{where}, entry {number} of {name}"
        yield {str(key): value for key, value in one.items()}, place


def _wanted(entry: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, value in settings_in(entry):
        if key in ("seed", "seeds"):
            found[key] = list(_seeds(entry, [key], lambda _: where))
        elif key == "data":
            found[key] = [os.path.normpath(str(one)) for one in _values(value, where)]
        else:
            found[key] = _values(value, where)
    return found


def _values(value: Any, where: str) -> list[Any]:
    """The values that one, a list or a range stands for."""
    if isinstance(value, dict):
        return _range(value, where)
    return value if isinstance(value, list) else [value]


def _range(content: Mapping[str, Any], where: str) -> list[float]:
    """The values of {from: 1e-4, to: 1e-1, count: 4, log: true}, or {from: 1, to: 4, step: 1}."""

    def wrong(why: str) -> UserError:
        return UserError(f"{where}: a range {why}; write {_FORM}")

    def number(key: str) -> float:
        try:
            if isinstance(content[key], bool) or not math.isfinite(float(content[key])):
                raise ValueError
            return float(content[key])
        except (TypeError, ValueError, OverflowError):
            raise wrong(f"must have a number as {key}, got {content[key]!r:.40}") from None

    if unknown := [key for key in content if key not in _RANGE]:
        raise wrong(f"has no {unknown[0]!r:.40}")
    if missing := [key for key in ("from", "to") if key not in content]:
        raise wrong(f"needs {missing[0]!r}")
    if ("step" in content) == ("count" in content):
        raise wrong("needs either step or count")
    low, high, log = number("from"), number("to"), content.get("log", False)
    if low > high:
        raise wrong(f"begins with the lower end, got from {low:g} to {high:g}")
    if not isinstance(log, bool) or (log and ("step" in content or low <= 0)):
        raise wrong("with log: true has a count and begins above 0")
    if "step" in content:
        step = number("step")
        if step <= 0 or (high - low) / step > MOST_VALUES:
            raise wrong(f"has a step above 0 and at most {MOST_VALUES} values, got {step:g}")
        return [_plain(low + k * step) for k in range(int((high - low) / step + 1e-9) + 1)]
    count = int(number("count"))
    if not 2 <= count <= MOST_VALUES or count != number("count"):
        raise wrong(f"has a count from 2 to {MOST_VALUES}, got {content['count']!r:.40}")
    shares = [k / (count - 1) for k in range(count)]
    return [_plain(low * (high / low) ** s if log else low + (high - low) * s) for s in shares]


def _plain(value: float) -> float:
    """A number without the rounding of its arithmetic: 0.3, not 0.30000000000000004."""
    short = float(f"{value:.12g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
