"""The configuration of a learner: names and values, from which it is built, restored, recorded."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo
from torch import nn

from peerlearn.augment import AUGMENTATIONS
from peerlearn.augment.naming import Augment, names_augmentation
from peerlearn.config.names import (
    KINDS,
    MEMORY,
    NET,
    PROFILES,
    PredictWith,
    load_augmentations,
    split_name,
)
from peerlearn.distill import TEACHERS, WRAPPERS
from peerlearn.distill.distillation import Distillation, WrapperBase
from peerlearn.errors import UserError, did_you_mean
from peerlearn.memory import MEMORIES
from peerlearn.memory.base import Memory
from peerlearn.methods import METHODS
from peerlearn.methods.class_means import Distance
from peerlearn.methods.interface import Method
from peerlearn.nets import NETWORKS
from peerlearn.nets.processor import Precision
from peerlearn.optim import OPTIMIZERS
from peerlearn.peer import Layout
from peerlearn.settings import (
    Settings,
    Values,
    fields_of,
    flatten,
    matching,
    nest,
    old_name_note,
    present_name,
    settings_of,
    with_present_names,
)
from peerlearn.stream.base import StreamInfo


class LearnerConfig(BaseModel):
    """The names of a learner's parts, the values of their settings, and its options.

    A checkpoint and the record of a run hold it as JSON, and `OnlineLearner.from_config` builds
    the learner again.

    Args:
        names: of the parts, by group of settings: "method", "collaboration" (None for a baseline),
            "net" (None for one that is made by a function), "optim" and "memory".
        values: settings of the parts by dotted names; those that are absent have their defaults.
        stream: what the stream tells before its first batch.
        memory: images kept for replay.
        seed, updates, predict_with, ncm_distance, precision, layout: as for `OnlineLearner`.

    >>> config = LearnerConfig.of("er+ccldc", net="small")
    >>> config = config.replace(stream=StreamInfo(num_classes=4), memory=50)
    >>> config.arguments()["distillation"].peers
    2
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    names: Mapping[str, str | None]
    values: Mapping[str, Any] = {}
    stream: StreamInfo | None = None
    memory: int = 0
    seed: int = 0
    updates: int | None = None
    predict_with: PredictWith | None = None
    ncm_distance: Distance | None = None
    precision: Precision = "fp32"
    layout: Layout = "auto"

    @field_validator("names")
    @classmethod
    def _all_groups(cls, names: Mapping[str, str | None]) -> Mapping[str, str | None]:
        if names.keys() != (groups := {*KINDS} - {"augment"}):
            raise ValueError(f"need a name for each of {', '.join(sorted(groups))}")
        return names

    @classmethod
    def of(
        cls,
        name: str,
        *,
        net: str | None = NET,
        optimizer: str | None = None,
        memory_policy: str = MEMORY,
    ) -> "LearnerConfig":
        """Return the configuration of a name such as "er+ccldc", with all values at their defaults.

        The optimizer is the method's own by default.
        """
        method, plus, wrapper = split_name(name)
        names = {
            "method": METHODS.canonical(method),
            "collaboration": wrapper if plus else None,
            "net": NETWORKS.canonical(net) if net else None,
            "optim": OPTIMIZERS.canonical(optimizer or METHODS[method].optim.name),
            "memory": MEMORIES.canonical(memory_policy),
        }
        config = cls(names=names)
        _ = config.parts  # a name that is not known is refused here
        return config

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "LearnerConfig":
        """Return the configuration of a checkpoint, refused if it would run code that it names."""
        values = record.get("values")
        if isinstance(values, Mapping):  # of a checkpoint in which a setting has its old name
            values = with_present_names(values)
            record = {**record, "values": values}
            if "predict_with" in values:
                record["predict_with"] = values.pop("predict_with")
        try:
            config = cls.model_validate(record)
        except ValidationError as error:
            fault = error.errors()[0]
            why = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            raise UserError(f"config of the learner: is damaged ({why})") from None
        named = {**config.names, "augmentation": config.values.get("method.augment")}
        if named["augmentation"] in [*AUGMENTATIONS]:
            del named["augmentation"]
        for kind, name in named.items():
            if name is not None and (not isinstance(name, str) or ":" in name):
                raise UserError(
                    f"config of the learner: its {kind} is {name!r:.60}, which would be run as a "
                    "program; build the learner yourself with the same settings, then load()"
                )
        return config

    def replace(self, **changes: Any) -> "LearnerConfig":
        """Return the same configuration with other fields; `build` checks them."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return LearnerConfig.model_construct(**{**fields, **changes})

    # --- the parts that the names stand for

    @cached_property
    def method(self) -> type[Method[Any]]:
        """The class of the method."""
        return METHODS[str(self.names["method"])]

    @cached_property
    def wrapper(self) -> type[WrapperBase] | None:
        """The class of the wrapper; None for a baseline."""
        name = self.names["collaboration"]
        return WRAPPERS[name] if name is not None else None

    @cached_property
    def augmentation(self) -> Augment | None:
        """The augmentation that the method's setting of this name chooses.

        A name that is not known is refused later, together with other faults.
        """
        if not self.method.names_augmentation():
            return None
        usual = self.method.Settings.model_fields["augment"].default
        name = self.values.get("method.augment", usual)
        if not isinstance(name, str) or (name not in AUGMENTATIONS and ":" not in name):
            return None
        return AUGMENTATIONS[name]

    @cached_property
    def parts(self) -> dict[str, Callable[..., Any]]:
        """The parts by group, without those that there are not."""
        net = self.names["net"]
        found: dict[str, Callable[..., Any] | None] = {
            "method": self.method,
            "collaboration": self.wrapper,
            "net": NETWORKS[net] if net else None,
            "optim": OPTIMIZERS[str(self.names["optim"])],
            "memory": MEMORIES[str(self.names["memory"])],
            "augment": self.augmentation,
        }
        return {group: part for group, part in found.items() if part is not None}

    @cached_property
    def settings(self) -> dict[str, type[Settings]]:
        """The settings of each part, by group; of an augmentation only if it has any."""
        models = {group: settings_of(part) for group, part in self.parts.items()}
        if "augment" in models and not models["augment"].model_fields:
            del models["augment"]
        for group, model in models.items():
            taken = ("name", "size") if group == "memory" else ("name",)
            for name in (name for name in taken if name in model.model_fields):
                part = f"{KINDS[group].kind} {self.names.get(group, '')}".strip()
                raise UserError(f"{part}: a setting cannot be called {name!r}; call it otherwise")
        return models

    def title(self, group: str) -> str:
        """Return what the part of a group is, such as "network resnet18"."""
        name = self.values.get("method.augment") if group == "augment" else self.names[group]
        return f"{KINDS[group].kind} {name}"

    def origins(self) -> dict[str, str]:
        """Return where the parts come from that are not Peerlearn's own, teachers included."""
        named = [(KINDS[group], name) for group, name in self.names.items() if name]
        named += [(TEACHERS, teacher) for teacher in self.distillation().teacher_names]
        named += [(AUGMENTATIONS, name) for name in self._augmentations()]
        origins = {f"{kind.kind} {name}": kind.origin(name) for kind, name in named}
        return {part: origin for part, origin in origins.items() if origin}

    def _augmentations(self) -> list[str]:
        """Return the augmentations that settings of the method and of the wrapper name."""
        fields = {
            f"{group}.{key}": field
            for group in ("method", "collaboration")
            if group in self.settings
            for key, field in fields_of(self.settings[group]).items()
        }
        named = [key for key, field in fields.items() if names_augmentation(field)]
        return [self.values[key] for key in named if self.values.get(key) is not None]

    def distillation(self) -> Distillation:
        """Return what the peers teach each other."""
        if self.wrapper is None:
            return Distillation()
        own = nest(self.values).get("collaboration", {})
        return self.wrapper(**{k: v for k, v in own.items() if k != "name"}).distillation()

    def preset(self, profile: str) -> dict[str, Any]:
        """Return the published values that differ from the defaults of a part, by dotted names."""
        if profile not in PROFILES:
            raise UserError(did_you_mean(f"there is no profile {profile!r}", profile, PROFILES))
        method, wrapper = self.method, self.wrapper
        found: dict[str, Any] = {}
        if type(method.optim) is self.parts["optim"]:
            found["optim"] = method.optim.model_dump(exclude_defaults=True)
        found["method"] = dict(method.authors) if profile == "authors" else {}
        if wrapper is not None:
            found["collaboration"] = wrapper.published(method.name, profile)
            if "optim" in found:
                found["optim"] |= wrapper.optim(method.name, profile)
        return flatten(found)

    def check_class_means(self, source: Any, memory: int, where: str) -> None:
        """Refuse nearest class means where no images are kept, of which they could be."""
        if source == "ncm" and not (memory and self.method.uses_memory):
            name = self.method.name
            why = "take a memory above 0" if self.method.uses_memory else f"{name} keeps none"
            raise UserError(f"{where}: class means are of images in memory; {why}")

    # --- values

    @cached_property
    def fields(self) -> dict[str, FieldInfo]:
        """The settings of all parts by dotted names."""
        models = self.settings.items()
        return {k: f for group, model in models for k, f in fields_of(model, f"{group}.").items()}

    def with_settings(
        self, name: str, settings: Values, profile: str = PROFILES[0]
    ) -> "LearnerConfig":
        """Return the same parts with settings, by any names that mean one thing only.

        Settings that are not given have their published values, else their defaults. name: of the
        learner, for messages.
        """
        given = flatten(
            {k: v.model_dump() if isinstance(v, Settings) else v for k, v in settings.items()}
        )
        given = _present_names(name, given)
        config = self.replace(predict_with=given.pop("predict_with", self.predict_with))
        preset = self.preset(profile)
        augment = given.get("augment", given.get("method.augment", preset.get("method.augment")))
        if augment is not None:
            config = config.replace(values={"method.augment": augment})
        fields = config.fields
        values = {key: field.default for key, field in fields.items() if not field.is_required()}
        values |= preset
        for key, value in given.items():
            found = matching(key, fields)
            if not found:
                short = [key.rpartition(".")[2] for key in fields]
                last = key.rpartition(".")[2]
                raise UserError(did_you_mean(f"{name} has no setting {key!r}", last, short))
            if len(found) > 1:
                raise UserError(f"{name}: {key!r} is ambiguous; say {' or '.join(found)}")
            values[found[0]] = value
        load_augmentations(fields, values)
        return config.replace(values=values)

    @cached_property
    def chosen(self) -> dict[str, Settings]:
        """The settings of each part with their values, validated."""
        tree = nest(self.values)
        return {group: model(**tree.get(group, {})) for group, model in self.settings.items()}

    # --- building

    def arguments(self, net: Callable[..., nn.Module] | None = None) -> dict[str, Any]:
        """Return what `OnlineLearner` is built with.

        net: makes its network, if the configuration does not name one.
        """
        if self.stream is None:
            raise UserError("config of a learner: has no stream; give it a StreamInfo")
        if net is None and self.names["net"] is None:
            raise UserError(
                "config of the learner: its network was made by a function; give net=..."
            )
        chosen = self.chosen
        wrapper = chosen.get("collaboration")
        method = self.method(self.stream, **dict(chosen["method"]))
        if "augment" in chosen:
            method.choose_augmentation(**dict(chosen["augment"]))
        options = ("seed", "updates", "predict_with", "ncm_distance", "precision", "layout")
        return {
            "method": method,
            "net": self._network(dict(chosen["net"])) if net is None else net,
            "distillation": wrapper.distillation() if isinstance(wrapper, WrapperBase) else None,
            "memory": self._memory(dict(chosen["memory"])),
            "optim": chosen["optim"],
            **{name: getattr(self, name) for name in options},
        }

    def _memory(self, values: Mapping[str, Any]) -> Memory:
        policy: Any = self.parts["memory"]
        memory: Memory = policy(self.memory if self.method.uses_memory else 0, **values)
        for name in {*values} - {*vars(memory)}:
            raise UserError(
                f"memory {policy.name}: must keep its setting {name!r} as an attribute, so that "
                "checkpoints can be compared"
            )
        return memory

    def _network(self, values: Mapping[str, Any]) -> Callable[..., nn.Module]:
        assert self.stream is not None
        net = self.parts["net"]
        try:
            inspect.signature(net).bind(self.stream.num_classes, **values)
        except TypeError as error:
            raise UserError(
                f"network {self.names['net']}: must take the number of classes, then settings by "
                f"name ({error})"
            ) from error
        if self.stream.grows:
            return partial(net, **values)
        return partial(net, self.stream.num_classes, **values)


def _present_names(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their present names; each old one is noted in a warning."""
    found: dict[str, Any] = {}
    for old, value in given.items():
        key, present = present_name(old, value)
        if key in found or (key != old and key in given):
            raise UserError(f"{name}: {old} and {key} are the same setting; give only {key}")
        if note := old_name_note(old, value):
            warnings.warn(note, DeprecationWarning, stacklevel=4)
        found[key] = present
    return found
