"""From what was typed to every setting of a run, and where each value comes from.

Flags beat files, files beat presets, presets beat defaults.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from peerlearn.data import DATASETS
from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.settings import (
    MachineSettings,
    MemorySettings,
    RunSettings,
    StreamSettings,
)
from peerlearn.learner.build import KINDS, PROFILES, Parts, split_name
from peerlearn.memory import MEMORIES
from peerlearn.nets import NETWORKS
from peerlearn.peer import OPTIMIZERS
from peerlearn.records.schema import MACHINE
from peerlearn.registry import Registry
from peerlearn.settings import Settings, faults_of, fields_of, flatten, matching, nest, settings_of

# what a flag or a key means that names a part, or the size of one
ALIASES = {
    "memory": "memory.size",
    "memory_policy": "memory.name",
    "net": "net.name",
    "optimizer": "optim.name",
    "method": "method.name",
}
CHOICES: Mapping[str, tuple[str, Registry[Any]]] = {  # flags that choose a part
    "net": ("network, or package.module:function", NETWORKS),
    "optimizer": ("optimizer", OPTIMIZERS),
    "memory-policy": ("which images stay in memory", MEMORIES),
}
_NAMES = ("method.name", "collaboration.name", "net.name", "optim.name", "memory.name")
IDENTITY = ("data", "method.name", "collaboration.name", "memory.size", "seed")


class Given(NamedTuple):
    """A value that a person gave."""

    name: str  # as it was written
    value: Any
    origin: str  # flag or file
    where: str  # the flag, or the file and its line


@dataclass(frozen=True)
class Resolved:
    """Every setting of a run, by dotted names, with the origin of each value.

    variant: the settings that differ from the preset, by short names, in a fixed order.
    unused: what was given and has no meaning for this run.
    """

    parts: Parts
    values: Mapping[str, Any]
    origins: Mapping[str, str]
    variant: Mapping[str, Any]
    unused: tuple[Given, ...] = ()

    @property
    def method(self) -> str:
        """The method's name, and after a plus that of its wrapper."""
        base, wrapper = self.parts.names["method"], self.parts.names["collaboration"]
        return f"{base}+{wrapper}" if wrapper else f"{base}"

    @property
    def data(self) -> str:
        """The data set as a person calls it: its name, or that of its folder."""
        data = str(self.values["data"])
        return data if data in DATASETS else Path(data).resolve().name

    @property
    def memory(self) -> int:
        """Images kept for replay."""
        return int(self.values["memory.size"])

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.values["seed"])

    @cached_property
    def plugins(self) -> dict[str, str]:
        """Whose the parts are that do not come with Peerlearn: "method mine" -> "mine.py 1f3c"."""
        found = self.parts.origins(self.values)
        data = str(self.values["data"])
        if data in DATASETS and (origin := DATASETS.origin(data)):
            found[f"{DATASETS.kind} {data}"] = origin
        return found

    @cached_property
    def run(self) -> RunSettings:
        """The settings of the run itself."""
        return RunSettings(**{name: self.values[name] for name in RunSettings.model_fields})

    @cached_property
    def stream(self) -> StreamSettings:
        """The settings of its stream."""
        return StreamSettings(**nest(self.values)["stream"])

    @cached_property
    def machine(self) -> MachineSettings:
        """The settings of the machine."""
        return MachineSettings(**nest(self.values)["machine"])


def resolve(method: str, given: Iterable[Given] = (), *, seed: int | None = None) -> Resolved:
    """The settings of one run of a method, such as "er+ccldc"."""
    given = _without_blocks_of_others(method, list(given))
    if seed is not None:
        given.append(Given("seed", seed, "flag", "--seeds"))
    choice = _choices(given)
    parts = Parts.find(
        method,
        net=choice.get("net.name", "resnet18"),
        optimizer=choice.get("optim.name"),
        memory=choice.get("memory.name", "reservoir"),
    )
    models = _models(parts)
    keys = _fields(models)
    preset = {k: v for k, v in _preset(parts, choice).items() if k in keys}
    values = {**_defaults(models), **preset}
    origins = {key: "preset" if key in preset else "default" for key in values}
    names = {f"{group}.name": name for group, name in parts.names.items()}
    before, unused, where = dict(values), [], {}
    for item in given:
        key = _key(item, [*keys, *names], method)
        if key is None:
            unused.append(item)
        else:
            origins[key], where[key] = item.origin, item.where
            if key in keys:
                values[key] = item.value
    values = _checked(models, values, where, method)
    settings = {"data": values.pop("data"), **names, **values}
    return Resolved(
        parts,
        {key: value for key, value in settings.items() if value is not None},
        {key: origins.get(key, "default") for key in settings}
        | {"method.name": "flag", "collaboration.name": "flag"},
        _variant(parts, settings, before),
        tuple(unused),
    )


def refuse_unused(resolved: Sequence[Resolved], methods: Sequence[str]) -> None:
    """Say so if something was given that none of the runs can use."""
    for item in resolved[0].unused:
        if any(item not in other.unused for other in resolved):
            continue
        known = sorted({key.rpartition(".")[2] for key in every_key()} | {*ALIASES})
        if matching(item.name, every_key()):
            raise UserError(
                f"{item.where}: {' and '.join(methods)} cannot use it; leave it out, or choose a "
                "method that can"
            )
        problem = f"{item.where}: there is no setting {item.name!r}"
        raise UserError(did_you_mean(problem, item.name.replace("-", "_"), known))


def every_key() -> dict[str, str]:
    """The dotted name of every setting of every part there is; the part that has it."""
    found = dict.fromkeys(_fields(_models(None)), "")
    for group, registry in KINDS.items():
        for name, part in registry.items():
            for key in fields_of(settings_of(part), f"{group}."):
                found.setdefault(key, name)
    return found


def every_part(methods: Sequence[str] = ()) -> list[tuple[str, str, type[Settings]]]:
    """What can be set, for these methods or for all: title, prefix of the names, class."""
    shared = [("the run", *_models(None)[0]), ("the memory", *_models(None)[1])]
    shared += [("the stream", *_models(None)[2]), ("the machine", *_models(None)[3])]
    if not methods:
        found = {(group, name): None for group, kind in KINDS.items() for name in kind}
    else:
        parts = [Parts.find(method) for method in methods]
        found = {(group, name): None for p in parts for group, name in p.names.items() if name}
    own = [
        (f"{KINDS[group].kind} {name}", f"{group}.", settings_of(KINDS[group][name]))
        for group, name in found
    ]
    return shared + [entry for entry in own if entry[2].model_fields]


def read_file(path: Path) -> list[Given]:
    """Settings from a YAML file, nested or with dotted names; a run's config.yaml will do."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        line = str(error).splitlines()[0]
        raise UserError(f"{path}: is not YAML ({line}); write `name: value` lines") from error
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: must hold `name: value` lines")
    lines = _lines(node)
    if isinstance(content.get("settings"), dict):  # the record of a run
        content = content["settings"]
        lines = {key.removeprefix("settings."): line for key, line in lines.items()}
    return [
        Given(ALIASES.get(key, key), value, "file", f"{path}, line {lines.get(key, 1)}")
        for key, value in flatten(content).items()
    ]


def _lines(node: yaml.MappingNode, prefix: str = "") -> dict[str, int]:
    found = {}
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        found[name] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            found |= _lines(value, f"{name}.")
    return found


def _without_blocks_of_others(method: str, given: list[Given]) -> list[Given]:
    """Leave out what a file says of another method, wrapper, network or optimizer."""
    base, _, wrapper = split_name(method)
    chosen = {"method.name": base, "collaboration.name": wrapper or None, **_choices(given)}
    others = [
        item.name.partition(".")[0]
        for item in given
        if item.name in _NAMES and item.origin == "file" and item.value != chosen[item.name]
    ]
    return [
        item
        for item in given
        if item.origin == "flag"
        or (item.name.partition(".")[0] not in others and item.name not in _NAMES[:2])
    ]


def _choices(given: Iterable[Given]) -> dict[str, Any]:
    """What was said of the things that decide which other settings there are."""
    found: dict[str, Any] = {}
    for item in sorted(given, key=lambda item: item.origin == "flag"):
        name = item.name.replace("-", "_")
        key = ALIASES.get(name, name)
        if key in ("data", "profile", *_NAMES[2:]):
            found[key] = str(item.value)
    return found


Models = Sequence[tuple[str, type[Settings]]]  # the prefix of their names, and the settings


def _models(parts: Parts | None) -> Models:
    own: list[tuple[str, type[Settings]]] = [("", RunSettings), ("memory.", MemorySettings)]
    own += [("stream.", StreamSettings)]
    of_parts = parts.settings.items() if parts else ()
    own += [(f"{group}.", model) for group, model in of_parts]
    return [*own, ("machine.", MachineSettings)]


def _fields(models: Models) -> dict[str, FieldInfo]:
    return {k: field for prefix, model in models for k, field in fields_of(model, prefix).items()}


def _defaults(models: Models) -> dict[str, Any]:
    fields = _fields(models).items()
    return {key: field.default for key, field in fields if not field.is_required()}


def _preset(parts: Parts, choice: Mapping[str, Any]) -> dict[str, Any]:
    """What the paper, or the code of a method, sets for this data set and method."""
    data = choice.get("data", RunSettings.model_fields["data"].default)
    found: dict[str, Any] = {}
    if data in DATASETS:
        protocol = DATASETS[data].protocol
        found |= protocol.for_method(parts.method.name)
        if protocol.memories:
            found["memory.size"] = protocol.memories[0]
    profile = choice.get("profile")
    found |= parts.preset(profile if profile in PROFILES else PROFILES[0])  # checked with the rest
    return found


def _key(item: Given, keys: Sequence[str], method: str) -> str | None:
    """The dotted name of what was given; None if this run has nothing of that name."""
    name = item.name.replace("-", "_")
    found = matching(ALIASES.get(name, name), keys)
    if len(found) > 1:
        raise UserError(f"{item.where}: ambiguous for {method}; say {' or '.join(found)}")
    return found[0] if found else None


def _checked(
    models: Models, values: Mapping[str, Any], where: Mapping[str, str], method: str
) -> dict[str, Any]:
    """All values with their types; every fault is told at once, with the flag or line it is in."""
    checked: dict[str, Any] = {}
    faults: list[str] = []
    for prefix, model in models:
        keys = [key for key in fields_of(model, prefix) if key in values]
        own = {key.removeprefix(prefix): values[key] for key in keys}
        try:
            built = model.model_validate(nest(own))
            checked |= flatten({prefix.rstrip("."): built.model_dump()} if prefix else dict(built))
        except ValidationError as error:
            for name, text in faults_of(error, model).items():
                faults.append(f"{where.get(f'{prefix}{name}', method)}: {text}")
    if faults:
        raise UserError("; ".join(faults))
    return checked


def _variant(parts: Parts, values: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in which a run leaves its preset, by their short names."""
    names = {"net.name": "resnet18", "memory.name": "reservoir"}
    usual = {**preset, **names, "optim.name": parts.method.optim.name}
    last = [key.rpartition(".")[2] for key in values]
    short = {full: alias for alias, full in ALIASES.items()}
    found = {}
    for key, value in values.items():
        if key in (*IDENTITY, *MACHINE) or value == usual.get(key):
            continue
        name = key.rpartition(".")[2]
        found[short.get(key, name if last.count(name) == 1 else key)] = value
    return found
