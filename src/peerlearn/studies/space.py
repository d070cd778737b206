"""What a search may choose: the paper's grids by name, or a file of one's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.config_file import read_mapping
from peerlearn.experiment.resolve import ALIASES, Given, Resolved, resolve
from peerlearn.optim import OPTIMIZERS
from peerlearn.records.study import Range
from peerlearn.safe_yaml import from_yaml
from peerlearn.settings import matching, settings_of
from peerlearn.studies.grid import settings_in

Space = Mapping[str, Sequence[Any] | Range]  # by dotted names
NAMES = ("baseline", "lambda", "randaugment")
# what a search may change: how one learns, never what is learnt, measured or kept
GROUPS = ("method.", "collaboration.", "optim.")


@cache
def _published() -> dict[str, Any]:
    text = resources.files("peerlearn.studies").joinpath("spaces.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = from_yaml(text)
    return content


def space_of(run: Resolved, names: Sequence[str] = ()) -> dict[str, Sequence[Any] | Range]:
    """What to search for a method: named grids of the paper, or files; the usual ones if none.

    >>> from peerlearn.experiment.resolve import resolve
    >>> list(space_of(resolve("er+ccldc"), ["lambda"]))
    ['collaboration.label_weight', 'collaboration.distill_weight']
    """
    usual = ("lambda", "randaugment") if run.config.wrapper else ("baseline",)
    found: dict[str, Sequence[Any] | Range] = {}
    for name in names or usual:
        if name in NAMES:
            found |= _named(name, run)
        elif name.endswith((".yaml", ".yml")):
            found |= _from_file(Path(name), run)
        else:
            raise UserError(did_you_mean(f"--space: there is no space {name!r:.60}", name, NAMES))
    if not found:
        named = " and ".join(names or usual)
        raise UserError(f"--space: {run.method} has no setting of {named}; name others, or a file")
    return found


def _named(name: str, run: Resolved) -> dict[str, Sequence[Any]]:
    content = _published()[name]
    if name == "baseline":
        own = content.get(run.config.names["method"], {})
        content = own if run.config.names["method"] == "ocm" else {**content["usual"], **own}
    known = {*_keys(run), *_of_optimizers(content.get("optim.name", ()))}
    return {key: values for key, values in content.items() if key in known}


def _of_optimizers(names: Sequence[str]) -> set[str]:
    """The settings of some optimizers, and the choice among them."""
    fields = [field for name in names for field in settings_of(OPTIMIZERS[name]).model_fields]
    return {*(f"optim.{field}" for field in fields), *(["optim.name"] if fields else [])}


def _from_file(path: Path, run: Resolved) -> dict[str, Sequence[Any] | Range]:
    """A space as it is written: lists, and ranges {from: 1e-4, to: 1e-1, log: true}."""
    content, lines = read_mapping(path)
    known = [*_keys(run), *(key for key in _of_optimizers([*OPTIMIZERS]) if key not in run.values)]
    found: dict[str, Sequence[Any] | Range] = {}
    for name, value in settings_in(content):
        where = f"{path}, line {lines.get(name, 1)}"
        keys = matching(ALIASES.get(name, name), known)
        if len(keys) != 1:
            near = [key.rpartition(".")[2] for key in known if key.startswith(GROUPS)]
            raise UserError(did_you_mean(f"{where}: no setting {name!r:.60} here", name, near))
        if not keys[0].startswith(GROUPS):
            raise UserError(
                f"{where}: {keys[0]} decides what is learnt or measured, not how; a search may "
                "change method.*, collaboration.* and optim.*"
            )
        found[keys[0]] = _range(value, where) if isinstance(value, dict) else _list(value, where)
    return found


def _keys(run: Resolved) -> list[str]:
    return [key for key in run.values if key not in ("method.name", "collaboration.name")]


def _list(value: Any, where: str) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(one, list | dict) for one in values):
        raise UserError(f"{where}: needs a list of values, or {{from: 1e-4, to: 1e-1, log: true}}")
    return values


def _range(value: Mapping[str, Any], where: str) -> Range:
    names = {"from": "low", "to": "high", "log": "log", "step": "step"}
    try:
        given = {names[key]: float(part) if key != "log" else part for key, part in value.items()}
        found = Range.model_validate(given)
        if not found.low < found.high or (found.log and found.low <= 0):
            raise ValueError
        if found.step is not None and (found.log or not 0 < found.step <= found.high - found.low):
            raise ValueError
    except (KeyError, TypeError, ValueError, ValidationError):
        form = "{from: 1e-4, to: 1e-1, log: true} or {from: 1, to: 4, step: 1}"
        raise UserError(f"{where}: {dict(value)!s:.60} is no range {form}") from None
    return found


def applies(key: str, chosen: Mapping[str, Any], run: Resolved) -> bool:
    """Whether a setting has a meaning beside what was chosen: momentum is SGD's alone."""
    if not key.startswith("optim.") or key == "optim.name":
        return True
    return key in _of_optimizers([chosen.get("optim.name", run.config.names["optim"])])


def combinations(space: Space, run: Resolved) -> Iterator[dict[str, Any]]:
    """Every point of a grid, each once."""
    if continuous := [key for key, values in space.items() if isinstance(values, Range)]:
        raise UserError(f"--search grid: {continuous[0]} is a range; list its values, or take tpe")
    lists = [list(values) for values in space.values() if not isinstance(values, Range)]
    seen = set()
    for values in product(*lists):
        chosen = dict(zip(space, values, strict=True))
        chosen = {key: value for key, value in chosen.items() if applies(key, chosen, run)}
        if (point := tuple(chosen.items())) not in seen:
            seen.add(point)
            yield chosen


def checked(method: str, given: Sequence[Given], space: Space) -> dict[str, Sequence[Any] | Range]:
    """The space with every value as a run would have it; refused if no run could.

    A range of a setting that is a whole number becomes one of whole numbers.
    """
    run = resolve(method, given)
    named = {ALIASES.get(name, name) for item in given for name in [item.name.replace("-", "_")]}
    names = space.get("optim.name", [run.config.names["optim"]])
    optimizers = [] if isinstance(names, Range) else [{"optim.name": name} for name in names]
    found: dict[str, Sequence[Any] | Range] = {}
    for key, values in space.items():
        if any(key == name or key.endswith(f".{name}") for name in named):
            raise UserError(f"{key}: is searched, and given as well; leave one of them out")
        beside = [one for one in optimizers if applies(key, one, run)]
        if not beside:
            raise UserError(f"--space: {key} is no setting of {run.config.names['optim']}")
        typed = partial(_typed, method, given, beside[0] if key[:6] == "optim." else {}, key)
        if isinstance(values, Range):
            found[key] = _checked_range(values, typed)
        else:
            found[key] = [typed(value) for value in values]
    return found


def _typed(
    method: str, given: Sequence[Given], beside: Mapping[str, Any], key: str, value: Any
) -> Any:
    """A value of a setting as a run would have it."""
    tried = as_given({**beside, key: value}, "--space")
    return resolve(method, [*given, *tried]).values[key]


def _checked_range(values: Range, typed: Callable[[Any], Any]) -> Range:
    low, high = values.low, values.high
    whole = type(typed(int(low) if low.is_integer() else low)) is int
    for end in (low, high):
        typed(int(end) if end.is_integer() else end)
    step = values.step or (1.0 if whole and not values.log else None)
    return values.model_copy(update={"step": step, "whole": whole})


def as_given(chosen: Mapping[str, Any], where: str) -> list[Given]:
    """What a trial chose, as settings of a run; they beat files, as flags do."""
    return [Given(key, value, "flag", where) for key, value in chosen.items()]
