"""From what was typed to every setting of a run, and where each value comes from.

Flags beat files, files beat presets, presets beat defaults.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from peerlearn.config.learner_config import LearnerConfig
from peerlearn.config.names import MEMORY, NET, PROFILES, load_augmentations, split_name
from peerlearn.data import DATASETS
from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.settings import (
    CLASS,
    STREAMS,
    EvaluationSettings,
    MachineSettings,
    MemorySettings,
    ProbeSettings,
    RunSettings,
    StreamSettings,
    stream_settings,
)
from peerlearn.files import user_path
from peerlearn.methods.interface import methods_without_tasks
from peerlearn.records.schema import MACHINE, PROBES
from peerlearn.settings import (
    Settings,
    faults_of,
    fields_of,
    flatten,
    matching,
    nest,
    present_name,
    settings_of,
)

GENERAL: Sequence[tuple[str, str, type[Settings]]] = (  # what no part of a learner has
    ("the run", "", RunSettings),
    ("the memory", "memory.", MemorySettings),
    ("the stream", "stream.", StreamSettings),
    ("the evaluation", "evaluation.", EvaluationSettings),
    ("the probes", "probes.", ProbeSettings),
    ("the machine", "machine.", MachineSettings),
)
# what a flag or a key means that names a part, or the size of one
ALIASES = {
    "memory": "memory.size",
    "memory_policy": "memory.name",
    "net": "net.name",
    "optimizer": "optim.name",
    "method": "method.name",
    "stream": "stream.name",
}
_METHOD = ("method.name", "collaboration.name")
_PARTS = ("net.name", "optim.name", "memory.name")
STREAM = "stream.name"
AUGMENT = "method.augment"
ONE_PASS = ("evaluation.evaluate_every", "evaluation.prequential", "realtime", "budget")
PRECISION = "machine.precision"
IDENTITY = ("data", *_METHOD, "memory.size", "seed")


class Given(NamedTuple):
    """A value that a person gave."""

    name: str  # as it was written
    value: Any
    origin: str  # flag or file
    where: str  # the flag, or the file and its line
    usual: bool = False  # in the record of a run: its preset or a default, chosen by nobody


@dataclass(frozen=True)
class Resolved:
    """Every setting of a run, by dotted names, with the origin of each value.

    usual: what the values would be if nothing but the parts had been chosen.
    variant: the settings that differ from that, by short names, in a fixed order.
    unused: what was given and has no meaning for this run.
    """

    config: LearnerConfig
    values: Mapping[str, Any]
    origins: Mapping[str, str]
    usual: Mapping[str, Any]
    variant: Mapping[str, Any]
    unused: tuple[Given, ...] = ()

    @property
    def method(self) -> str:
        """The method's name, and after a plus that of its wrapper."""
        base, wrapper = self.config.names["method"], self.config.names["collaboration"]
        return f"{base}+{wrapper}" if wrapper else f"{base}"

    @property
    def data(self) -> str:
        """The data set as a person calls it: its name, or that of its folder."""
        data = str(self.values["data"])
        if data in DATASETS:
            return data
        name = os.path.basename(os.path.realpath(user_path(data)))
        return f"{name}_folder" if name in DATASETS else name

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
        found = self.config.origins()
        data = str(self.values["data"])
        if data in DATASETS and (origin := DATASETS.origin(data)):
            found[f"{DATASETS.kind} {data}"] = origin
        return found

    def with_precision(self, chosen: str) -> "Resolved":
        """The run in which `auto` has become what it chose."""
        values = {**self.values, PRECISION: chosen}
        usual = _usual_parts(self.config, _protocol(str(self.values["data"]), self.method))
        return replace(
            self,
            values=values,
            origins={**self.origins, PRECISION: "auto"},
            variant=_variant(values, {**self.usual, **usual}),
        )

    def with_seed(self, seed: int) -> "Resolved":
        """The run with another seed, and nothing else changed."""
        return replace(
            self,
            values={**self.values, "seed": seed},
            origins={**self.origins, "seed": "flag"},
        )

    def check(self) -> None:
        """Refuse what cannot work together, before any other run has begun."""
        method, named = self.config.method, self.values[STREAM] != CLASS
        hides = "stream" if named else "blur" if self.values["stream.blur"] else ""
        if method.needs_boundaries and hides:
            raise UserError(
                f"--{hides}: hides where tasks end, and {method.name} must be told; leave it out, "
                f"or take {methods_without_tasks()}"
            )
        if not method.gives_logits and self.config.distillation().needs_logits:
            raise UserError(
                f"{self.method}: {method.name} has no logits to teach with; take it alone"
            )
        if self.run.rehearse:
            self._check_rehearsal(hides)
        self._check_predict_with()
        for key in PROBES:
            if self.values[key] and not method.gives_logits:
                flag = key.partition(".")[2].replace("_", "-")
                raise UserError(f"--{flag}: {method.name} has no logits to look at; leave it out")

        for key in ONE_PASS if self.stream.epochs > 1 else ():
            if self.values[key]:
                flag = key.rpartition(".")[2].replace("_", "-")
                raise UserError(f"--{flag}: is for images that pass once; leave it or --epochs out")
        if self.run.realtime_store and method.stores:
            raise UserError(
                f"--realtime-store: {method.name} keeps {' and '.join(method.stores)} with its "
                "images, which only a step finds out; leave it out"
            )

    def _check_predict_with(self) -> None:
        """Refuse networks, or class means, that the learner will not have."""
        source = self.run.predict_with
        self.config.check_class_means(source, self.memory, "--predict-with ncm")
        has_ema = self.config.distillation().has_ema
        if source in ("ema", "average") and not has_ema:
            raise UserError(
                f"--predict-with {source}: {self.method} has no EMA copies; choose peers or ncm, "
                f"or a wrapper that has some, such as {self.config.names['method']}+ema"
            )

    def _check_rehearsal(self, hides: str) -> None:
        """Refuse steps on the memory alone where they cannot be taken. hides: as in `check`."""
        method = self.config.method
        if not method.can_rehearse():
            raise UserError(
                f"--rehearse: {method.name} cannot take steps on the memory alone, as "
                f"{method.no_rehearsal}; leave it out"
            )
        if not self.memory or not method.uses_memory:
            why = "take --memory above 0" if method.uses_memory else f"{method.name} has none"
            raise UserError(f"--rehearse: there is no memory; {why}, or leave it out")
        if hides and not self.run.rehearse_every:
            raise UserError(
                f"--rehearse: --{hides} hides where tasks end; say after how many stream images "
                "with --rehearse-every"
            )

    @cached_property
    def run(self) -> RunSettings:
        """The settings of the run itself."""
        return RunSettings(**{name: self.values[name] for name in RunSettings.model_fields})

    @cached_property
    def stream(self) -> StreamSettings:
        """The settings of its stream."""
        return stream_settings(self.values[STREAM])(**nest(self.values)["stream"])

    @cached_property
    def machine(self) -> MachineSettings:
        """The settings of the machine."""
        return MachineSettings(**nest(self.values)["machine"])


def resolve(method: str, given: Iterable[Given] = (), *, seed: int | None = None) -> Resolved:
    """The settings of one run of a method, such as "er+ccldc"."""
    given = _without_blocks_of_others(method, [*map(_renamed, given)])
    if seed is not None:
        given.append(Given("seed", seed, "flag", "--seeds"))
    choice = _choices(given)
    protocol = _protocol(choice.get("data", RunSettings().data), method)
    chosen = {**{key: protocol[key] for key in _PARTS if key in protocol}, **choice}
    config = LearnerConfig.of(
        method,
        net=chosen.get("net.name", NET),
        optimizer=chosen.get("optim.name"),
        memory_policy=chosen.get("memory.name", MEMORY),
    )
    usual_augment = {**protocol, **_published(config, choice.get("profile"))}.get(AUGMENT)
    if (augment := choice.get(AUGMENT, usual_augment)) is not None:
        config = config.replace(values={AUGMENT: augment})
    fixed = config.method.fixed
    stream = fixed.get(STREAM) or choice.get(STREAM, protocol.get(STREAM, CLASS))
    models = _models(config, f"{stream}")
    keys = _fields(models)
    preset = _preset(config, protocol, choice.get("profile"), keys)
    usual = {**_defaults(keys), **preset}
    names = {f"{group}.name": name for group, name in config.names.items()}
    last, unused = _by_key(given, [*keys, *names], method)
    unused += [last.pop(key) for key in [*last] if key in fixed]
    values = {**usual, **{key: item.value for key, item in last.items() if key in keys}}
    load_augmentations(keys, values)
    values = _checked(models, values, {key: item.where for key, item in last.items()}, method)
    settings = {"data": values.pop("data"), **names, **values}
    by_preset = {*preset, *(key for key in _PARTS if key in protocol)}
    origins = {key: "preset" if key in by_preset else "default" for key in settings}
    origins |= {key: item.origin for key, item in last.items()} | dict.fromkeys(_METHOD, "flag")
    variant = _variant(settings, {**usual, **_usual_parts(config, protocol)})
    config = config.replace(values=_of_parts(config, settings))
    return Resolved(config, settings, origins, {**usual, **names}, variant, tuple(unused))


def _of_parts(config: LearnerConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the parts of a learner, without their names."""
    fields = [fields_of(model, f"{group}.") for group, model in config.settings.items()]
    return {key: settings[key] for own in fields for key in own}


def _renamed(item: Given) -> Given:
    old = item.name.replace("-", "_")
    name, value = present_name(old, item.value)
    return item if (name, value) == (old, item.value) else item._replace(name=name, value=value)


def _by_key(
    given: Iterable[Given], keys: Sequence[str], method: str
) -> tuple[dict[str, Given], list[Given]]:
    """What counts of what was given, by dotted names, and what has no meaning for this run."""
    found: dict[str, Given] = {}
    unused = []
    for item in given:
        key = _key(item, keys, method)
        before = found.get(key or "")
        if key is None:
            unused.append(item)
        elif before and before.origin == item.origin == "flag" and before.where != item.where:
            raise UserError(f"{item.where}: is given twice, also as {before.where}; say it once")
        else:
            found[key] = item
    return found, unused


def _protocol(data: str, method: str) -> dict[str, Any]:
    """What a data set sets for a method."""
    if data not in DATASETS:
        return {}
    protocol = DATASETS[data].protocol
    memory = {"memory.size": protocol.memories[0]} if protocol.memories else {}
    return {**memory, **protocol.for_method(split_name(method)[0])}


def _without_blocks_of_others(method: str, given: list[Given]) -> list[Given]:
    """Leave out what a file says of another method, wrapper, network, optimizer or memory.

    Of the record of another method's run, or on other data, only what somebody chose is kept.
    """
    base, _, wrapper = split_name(method)
    recorded = {_choice_key(item): item.value for item in given if item.origin == "file"}
    chosen = {"data": recorded.get("data"), **recorded, **_choices(given)}
    chosen |= {"method.name": base, "collaboration.name": wrapper or None}
    other = {key for key in (*_METHOD, *_PARTS, "data") if recorded.get(key) != chosen.get(key)}
    blocks = {key.partition(".")[0] for key in other & {*_METHOD, *_PARTS} & {*recorded}}
    if "method" in blocks or recorded.get(AUGMENT) != chosen.get(AUGMENT):
        blocks.add("augment")  # the settings of another augmentation
    another_run = bool(other & {*_METHOD, "data"})
    dealt = _of_another_stream(recorded, chosen)
    return [
        item
        for item in given
        if item.origin == "flag"
        or not (
            item.name in _METHOD
            or (_choice_key(item).partition(".")[0] in blocks and item.name != "memory.size")
            or (item.usual and another_run)
            or (item.name in dealt and (item.usual or STREAM in recorded))
        )
    ]


def _of_another_stream(recorded: Mapping[str, Any], chosen: Mapping[str, Any]) -> set[str]:
    """The settings that the stream of a file alone has, if another stream is chosen."""
    theirs, ours = recorded.get(STREAM, CLASS), chosen.get(STREAM, CLASS)
    known = theirs != ours and theirs in STREAMS
    return {*fields_of(settings_of(STREAMS[theirs]), "stream.")} if known else set()


def _choices(given: Iterable[Given]) -> dict[str, Any]:
    """What was said of the things that decide which other settings there are."""
    found: dict[str, Any] = {}
    for item in sorted(given, key=lambda item: item.origin == "flag"):
        key = _choice_key(item)
        if key in ("data", "profile", STREAM, AUGMENT, *_PARTS):
            found[key] = str(item.value)
            if not found[key]:
                raise UserError(f"{item.where}: is empty; give it a name, or leave it out")
    return found


def _choice_key(item: Given) -> str:
    """The dotted name of what was given, where it may decide which other settings there are."""
    name = item.name.replace("-", "_")
    return AUGMENT if name == "augment" else ALIASES.get(name, name)


Models = Sequence[tuple[str, type[Settings]]]  # the prefix of their names, and the settings


def _models(config: LearnerConfig, stream: str) -> Models:
    *general, machine = [
        (prefix, stream_settings(stream) if model is StreamSettings else model)
        for _, prefix, model in GENERAL
    ]
    return [*general, *((f"{group}.", s) for group, s in config.settings.items()), machine]


def _fields(models: Models) -> dict[str, FieldInfo]:
    return {k: field for prefix, model in models for k, field in fields_of(model, prefix).items()}


def _defaults(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    return {key: field.default for key, field in fields.items() if not field.is_required()}


def _preset(
    config: LearnerConfig,
    protocol: Mapping[str, Any],
    profile: str | None,
    keys: Mapping[str, FieldInfo],
) -> dict[str, Any]:
    """What the paper, or the code of a method, sets for this data set and method."""
    usual, general = _usual_parts(config, protocol), _fields([entry[1:] for entry in GENERAL])
    found = {}
    for key, value in protocol.items():
        group = key.partition(".")[0]
        meant = usual.get(f"{group}.name") in (None, config.names.get(group))
        if key in general or (key in keys and meant):
            found[key] = value  # a width is meant for the network that the protocol has in mind
        elif key not in keys and group in ("stream", "memory", "machine") and key not in _PARTS:
            raise UserError(did_you_mean(f"a data set's protocol sets {key!r}", key, keys))
    found |= _published(config, profile)
    if config.wrapper is not None:
        found["predict_with"] = config.wrapper.predict_with
    found |= {**config.method.preset, **config.method.fixed}
    return {key: value for key, value in found.items() if key in keys}


def _published(config: LearnerConfig, profile: str | None) -> dict[str, Any]:
    """What a profile sets; a name that there is not is refused later, with the rest."""
    return config.preset(profile if profile in PROFILES else PROFILES[0])


def _usual_parts(config: LearnerConfig, protocol: Mapping[str, Any]) -> dict[str, Any]:
    usual = {"net.name": NET, "memory.name": MEMORY, "optim.name": config.method.optim.name}
    return {key: protocol.get(key, name) for key, name in usual.items()}


def _key(item: Given, keys: Sequence[str], method: str) -> str | None:
    """The dotted name of what was given; None if this run has nothing of that name."""
    name = item.name.replace("-", "_")
    found = matching(ALIASES.get(name, name), keys)
    if len(found) > 1:
        dashes = "--" if item.origin == "flag" else ""
        full = " or ".join(f"{dashes}{key}" for key in found)
        raise UserError(f"{item.where}: ambiguous for {method}; say {full}")
    if item.origin == "flag" and found and found[0] in _METHOD:
        raise UserError(f"{item.where}: name methods before the flags: peerlearn run er+ccldc")
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


def _variant(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in which a run leaves its preset, by their short names."""
    last = [key.rpartition(".")[2] for key in values]
    short = {full: alias for alias, full in ALIASES.items()}
    found = {}
    for key, value in values.items():
        if key in (*IDENTITY, *MACHINE) or value == usual.get(key):
            continue
        name = key.rpartition(".")[2]
        found[short.get(key, name if last.count(name) == 1 else key)] = value
    return found
