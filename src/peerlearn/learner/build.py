"""Learners from names and settings: one way, for programs and for the command."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from pydantic.fields import FieldInfo
from torch import nn

from peerlearn.augment import AUGMENTATIONS
from peerlearn.augment.naming import Augment, names_augmentation
from peerlearn.data import DATASETS
from peerlearn.errors import UserError, did_you_mean
from peerlearn.learner import TEACHERS, WRAPPERS
from peerlearn.learner.collaboration import (
    Collaboration,
    Distance,
    PredictWith,
)
from peerlearn.learner.inputs import Devices, check_net
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.wrapper import WrapperBase
from peerlearn.memory import MEMORIES
from peerlearn.memory.base import Memory
from peerlearn.methods import METHODS
from peerlearn.methods.interface import Method
from peerlearn.nets import NETWORKS
from peerlearn.peer import OPTIMIZERS
from peerlearn.peer.model import Layout, Precision
from peerlearn.peer.optimizers import Optimizer
from peerlearn.registry import Registry
from peerlearn.settings import (
    OLD_NAMES,
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

Profile = Literal["paper", "authors"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
NET, MEMORY = "resnet18", "reservoir"  # where nobody chooses others
KEPT_OPTIONS = (  # in a recipe
    "seed", "updates", "predict_with", "ncm_distance", "precision", "layout",
)  # fmt: skip
OWN_OPTIONS = ("device", "compile", "peers_at_once")  # of each machine
# the group of settings that each kind of part has, and where its name is looked up
KINDS: Mapping[str, Registry[Any]] = {
    "method": METHODS,
    "collaboration": WRAPPERS,
    "net": NETWORKS,
    "optim": OPTIMIZERS,
    "memory": MEMORIES,
    "augment": AUGMENTATIONS,
}

REGISTRIES: Sequence[Registry[Any]] = (*KINDS.values(), TEACHERS, DATASETS)


@dataclass(frozen=True)
class Parts:
    """What a learner is made of, each found by its name.

    names: by group; the wrapper's is None for a baseline.
    augment: the augmentation that the method's setting of this name chooses, see `augmented`.
    """

    names: Mapping[str, str | None]
    method: type[Method[Any]]
    wrapper: type[WrapperBase] | None
    net: Callable[..., nn.Module] | None
    optimizer: type[Optimizer]
    memory: type[Memory]
    augment: Augment | None = None

    @classmethod
    def find(
        cls,
        name: str,
        *,
        net: str | None = NET,
        optimizer: str | None = None,
        memory: str = MEMORY,
    ) -> "Parts":
        """The parts of a name such as "er+ccldc"; the optimizer is the method's own by default."""
        base, plus, wrapper = split_name(name)
        method = METHODS[base]
        optimizer = optimizer or method.optim.name
        return cls(
            names={
                "method": METHODS.canonical(base),
                "collaboration": wrapper if plus else None,
                "net": NETWORKS.canonical(net) if net else None,
                "optim": OPTIMIZERS.canonical(optimizer),
                "memory": MEMORIES.canonical(memory),
            },
            method=method,
            wrapper=WRAPPERS[wrapper] if plus else None,
            net=NETWORKS[net] if net else None,
            optimizer=OPTIMIZERS[optimizer],
            memory=MEMORIES[memory],
        )

    def augmented(self, name: Any = None) -> "Parts":
        """The same parts with the augmentation of a name, or else with the method's default.

        A name that is not known is left to be refused together with other faults.
        """
        if not self.method.names_augmentation():
            return self
        name = self.method.Settings.model_fields["augment"].default if name is None else name
        if not isinstance(name, str) or (name not in AUGMENTATIONS and ":" not in name):
            return self
        return replace(self, augment=AUGMENTATIONS[name])

    def title(self, group: str, values: Values) -> str:
        """What the part of a group is, such as "network resnet18"."""
        name = values.get("method.augment") if group == "augment" else self.names[group]
        return f"{KINDS[group].kind} {name}"

    @property
    def settings(self) -> dict[str, type[Settings]]:
        """The settings of each part, by group; of an augmentation only if it has any."""
        found: dict[str, Callable[..., Any] | None] = {
            "method": self.method,
            "collaboration": self.wrapper,
            "net": self.net,
            "optim": self.optimizer,
            "memory": self.memory,
            "augment": self.augment,
        }
        models = {group: settings_of(part) for group, part in found.items() if part is not None}
        if self.augment is not None and not models["augment"].model_fields:
            del models["augment"]
        for group, model in models.items():
            taken = ("name", "size") if group == "memory" else ("name",)
            for name in (name for name in taken if name in model.model_fields):
                part = f"{KINDS[group].kind} {self.names.get(group, '')}".strip()
                raise UserError(f"{part}: a setting cannot be called {name!r}; call it otherwise")
        return models

    def origins(self, values: Values) -> dict[str, str]:
        """Whose the parts are that do not come with Peerlearn, teachers included."""
        named = [(KINDS[group], name) for group, name in self.names.items() if name]
        collaboration = self.collaboration(values)
        named += [(TEACHERS, teacher) for teacher in collaboration.teacher_names]
        named += [(AUGMENTATIONS, name) for name in self._augmentations(values)]
        origins = {f"{kind.kind} {name}": kind.origin(name) for kind, name in named}
        return {part: origin for part, origin in origins.items() if origin}

    def _augmentations(self, values: Values) -> list[str]:
        """The augmentations that settings of the method and of the wrapper name."""
        fields = {
            f"{group}.{key}": field
            for group in ("method", "collaboration")
            if group in self.settings
            for key, field in fields_of(self.settings[group]).items()
        }
        named = [key for key, field in fields.items() if names_augmentation(field)]
        return [values[key] for key in named if values.get(key) is not None]

    def collaboration(self, values: Values) -> Collaboration:
        """What the peers teach each other. values: of every group."""
        if self.wrapper is None:
            return Collaboration()
        own = {k: v for k, v in nest(values)["collaboration"].items() if k != "name"}
        return self.wrapper(**own).collaboration()

    def preset(self, profile: str) -> dict[str, Any]:
        """The published values where they differ from the defaults of a part, by dotted names."""
        if profile not in PROFILES:
            raise UserError(did_you_mean(f"there is no profile {profile!r}", profile, PROFILES))
        found: dict[str, Any] = {}
        if type(self.method.optim) is self.optimizer:
            found["optim"] = self.method.optim.model_dump(exclude_defaults=True)
        found["method"] = dict(self.method.authors) if profile == "authors" else {}
        if self.wrapper is not None:
            found["collaboration"] = self.wrapper.published(self.method.name, profile)
            if "optim" in found:
                found["optim"] |= self.wrapper.optim(self.method.name, profile)
        return flatten(found)

    def refuse_means_without_memory(self, source: Any, memory: int, where: str) -> None:
        """Refuse nearest class means where no images are kept, of which they could be."""
        if source == "ncm" and not (memory and self.method.uses_memory):
            name = self.method.name
            why = "take a memory above 0" if self.method.uses_memory else f"{name} keeps none"
            raise UserError(f"{where}: class means are of images in memory; {why}")

    def build(
        self,
        values: Values,
        stream: StreamInfo,
        *,
        memory: int,
        net: Callable[..., nn.Module] | None = None,
        **options: Any,
    ) -> OnlineLearner:
        """The learner, untrained. values: of every group; options: of `OnlineLearner`."""
        tree = nest(values)
        chosen = {group: model(**tree.get(group, {})) for group, model in self.settings.items()}
        if net is None:
            net = self._network(stream, dict(chosen["net"]))
        kept = self.memory(memory if self.method.uses_memory else 0, **dict(chosen["memory"]))
        for name in {*dict(chosen["memory"])} - {*vars(kept)}:
            raise UserError(
                f"memory {self.memory.name}: must keep its setting {name!r} as an attribute, so "
                "that checkpoints can be compared"
            )
        wrapper, optim = chosen.get("collaboration"), chosen["optim"]
        assert isinstance(optim, Optimizer)
        method = self.method(stream, **dict(chosen["method"]))
        if "augment" in chosen:
            method.choose_augmentation(**dict(chosen["augment"]))
        learner = OnlineLearner(
            method,
            net,
            wrapper.collaboration() if isinstance(wrapper, WrapperBase) else None,
            memory=kept,
            optim=optim,
            **options,
        )
        learner.recipe = {
            "names": dict(self.names),
            "values": flatten({group: part.model_dump() for group, part in chosen.items()}),
            "stream": asdict(stream),
            "memory": memory,
            **{option: options[option] for option in KEPT_OPTIONS if option in options},
            "updates": learner.updates,
            "predict_with": learner.predictors.usual,
        }
        return learner

    def _network(self, stream: StreamInfo, values: dict[str, Any]) -> Callable[..., nn.Module]:
        assert self.net is not None, "either the name of a network or a function that makes one"
        try:
            inspect.signature(self.net).bind(stream.num_classes, **values)
        except TypeError as error:
            raise UserError(
                f"network {self.names['net']}: must take the number of classes, then settings by "
                f"name ({error})"
            ) from error
        if stream.grows:
            return partial(self.net, **values)
        return partial(self.net, stream.num_classes, **values)


def rebuilt(
    recipe: Mapping[str, Any], net: Callable[..., nn.Module] | None = None, **options: Any
) -> OnlineLearner:
    """The learner of a recipe, untrained.

    net: makes its network, if the recipe does not name one; options: `OWN_OPTIONS`.
    """
    for option in (option for option in options if option not in OWN_OPTIONS):
        problem = f"restore: takes no {option!r:.60}, as the checkpoint says what its learner is"
        raise UserError(did_you_mean(problem, option, ("net", *OWN_OPTIONS)))
    try:
        names = dict(recipe["names"])
        told = dict(recipe["stream"])
        if told.get("class_ids") is not None:
            told["class_ids"] = tuple(told["class_ids"])
        kept = {option: recipe[option] for option in KEPT_OPTIONS if option in recipe}
        values, memory = with_present_names(recipe["values"]), recipe["memory"]
        stream = StreamInfo(**told)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"recipe of the learner: is damaged ({error!r:.60})") from error
    if "predict_with" in values:  # as a setting of the wrapper, in checkpoints of before
        kept["predict_with"] = values.pop("predict_with")
    named = {**names, "augmentation": values.get("method.augment")}
    if named["augmentation"] in [*AUGMENTATIONS]:
        del named["augmentation"]
    for kind, name in named.items():
        if name is not None and (not isinstance(name, str) or ":" in name):
            raise UserError(
                f"recipe of the learner: its {kind} is {name!r:.60}, which would be run as a "
                "program; build the learner yourself with the same settings, then load()"
            )
    if names.get("net") is None and net is None:
        raise UserError("recipe of the learner: its network was made by a function; give net=...")
    wrapper = names.get("collaboration")
    parts = Parts.find(
        f"{names.get('method')}+{wrapper}" if wrapper else str(names.get("method")),
        net=names.get("net"),
        optimizer=names.get("optim"),
        memory=names.get("memory") or MEMORY,
    ).augmented(values.get("method.augment"))
    return parts.build(values, stream, memory=memory, net=net, **kept, **options)


def load_augmentations(fields: Mapping[str, FieldInfo], values: Values) -> None:
    """Make known the augmentations that settings name by their places: `path/to/file.py:name`."""
    for key, field in fields.items():
        place = values.get(key)
        if names_augmentation(field) and isinstance(place, str) and ":" in place:
            AUGMENTATIONS[place]  # looked up, it is loaded


def split_name(name: str) -> tuple[str, str, str]:
    """A method's name, the plus, and the name of its wrapper; a path may hold a plus itself.

    >>> split_name("er+ccldc"), split_name("my+code.py:Mine")
    (('er', '+', 'ccldc'), ('my+code.py:Mine', '', ''))
    """
    if not isinstance(name, str):
        raise UserError(
            f'name: need a method, and after a plus its wrapper, such as "er" or "er+ccldc", '
            f"got {name!r:.60}"
        )
    place, colon, rest = name.rpartition(":")
    base, plus, wrapper = rest.partition("+")
    return f"{place}{colon}{base}", plus, wrapper


def build_learner(
    name: str,
    stream: StreamInfo,
    net: str | Callable[..., nn.Module] = NET,
    *,
    memory: int,
    seed: int = 0,
    profile: str = "paper",
    optimizer: str | None = None,
    memory_policy: str = MEMORY,
    updates: int | None = None,
    predict_with: PredictWith | None = None,
    ncm_distance: Distance | None = None,
    device: Devices = "cpu",
    precision: Precision = "fp32",
    layout: Layout = "auto",
    compile: bool = False,
    peers_at_once: int = 1,
    **settings: Any,
) -> OnlineLearner:
    """The learner of a name such as "er" or "er+ccldc".

    Args:
        name: a method, and after a plus its wrapper.
        stream: what the stream tells its learner; `ClassStream.info`, or your own.
        net: the name of a network, or a function that makes one, see `OnlineLearner`.
        memory: images kept for replay.
        seed: decides everything that is drawn.
        profile: "paper", or "authors" to differ from it where their code does.
        optimizer: its name; the method's own by default.
        memory_policy: which images stay in memory, by name.
        updates: steps per stream batch; the method's own number by default.
        predict_with: "peers", their EMA copies ("ema"), the "average" of both, or nearest class
            means ("ncm"); the wrapper's own by default. `answer` is its old name.
        ncm_distance: of features to class means: "euclidean", or "cosine", which normalises both;
            the method's own by default.
        device: where it runs; "cuda:0,cuda:1" or a list for a device for each peer.
        precision: fp32, bf16 where the processor can, on CUDA also fp16.
        layout: of images and weights in memory; auto is channels_last where that is safe.
        compile: let torch.compile make the networks' features, see `OnlineLearner`.
        peers_at_once: peers that compute side by side, see `OnlineLearner`.
        settings: of the parts, by any name that means one thing only: alpha=0.5, stages=2; or by
            group: method={"alpha": 0.5}, optim=SGD(lr=0.1), chain=ViewChain(stages=2). Those of the
            augmentation as well: augment="randaugment", randaugment_m=9.

    >>> learner = build_learner("er+ccldc", StreamInfo(num_classes=4), "small", memory=50, lr=1e-3)
    >>> learner.optim.lr, learner.collaboration.peers
    (0.001, 2)
    """
    if not isinstance(stream, StreamInfo):
        raise UserError(
            f"stream: need what a stream tells, StreamInfo(num_classes=...), got {stream!r:.60}"
        )
    named = net if isinstance(net, str) else None
    if named is None:
        check_net(net)
    optim = settings.get("optim")
    if isinstance(optim, Optimizer):
        if optimizer not in (None, optim.name):
            raise UserError(
                f"{name}: optim is {optim.name}, optimizer {optimizer}; say one of them"
            )
        optimizer = optim.name
    parts = Parts.find(name, net=named, optimizer=optimizer, memory=memory_policy)
    given = flatten(_as_values(settings))
    predict_with = _present_source(name, predict_with, given)
    parts.refuse_means_without_memory(predict_with, memory, "predict_with ncm")
    preset = parts.preset(profile)
    augment = given.get("augment", given.get("method.augment", preset.get("method.augment")))
    parts = parts.augmented(augment)
    fields: dict[str, FieldInfo] = {}
    for group, model in parts.settings.items():
        fields |= fields_of(model, f"{group}.")
    keys = [*fields]
    values = {key: field.default for key, field in fields.items() if not field.is_required()}
    values |= preset
    for key, value in given.items():
        found = matching(key, keys)
        if not found:
            short = [key.rpartition(".")[2] for key in keys]
            last = key.rpartition(".")[2]
            raise UserError(did_you_mean(f"{name} has no setting {key!r}", last, short))
        if len(found) > 1:
            raise UserError(f"{name}: {key!r} is ambiguous; say {' or '.join(found)}")
        values[found[0]] = value
    load_augmentations(fields, values)
    return parts.build(
        values,
        stream,
        memory=memory,
        net=None if isinstance(net, str) else net,
        seed=seed,
        updates=updates,
        predict_with=predict_with,
        ncm_distance=ncm_distance,
        device=device,
        precision=precision,
        layout=layout,
        compile=compile,
        peers_at_once=peers_at_once,
    )


def _present_source(name: str, predict_with: Any, given: dict[str, Any]) -> Any:
    """Return what predicts, also where its old name says so, which is taken out of `given`."""
    old = [key for key in given if OLD_NAMES.get(key) == "predict_with"]
    if len(old) + (predict_with is not None) > 1:
        both = " and ".join([*old, *(["predict_with"] if predict_with is not None else [])])
        raise UserError(f"{name}: {both} are the same setting; give only predict_with")
    key, value = ("predict_with", predict_with) if not old else (old[0], given.pop(old[0]))
    if note := old_name_note(key, value):
        warnings.warn(note, DeprecationWarning, stacklevel=3)
    return present_name(key, value)[1]


def _as_values(settings: Values) -> dict[str, Any]:
    return {
        name: value.model_dump() if isinstance(value, Settings) else value
        for name, value in settings.items()
    }
