"""Everything that decides the numbers of one run, and where each value comes from.

Flags beat files, files beat presets, presets beat defaults.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from peerlearn.errors import UserError, did_you_mean

SCHEMA = 1


def _about(text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"about": text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. None: the setting does not apply to this method."""

    data: str = _about("data set, or the path of an image folder", "mini")
    method: str = _about("method, and after a plus how it collaborates", "er+ccldc")
    memory: int = _about("images kept for replay", 200)
    seed: int = _about("decides everything that is drawn", 0)
    # the stream
    tasks: int = _about("tasks that the classes are divided into", 5)
    batch: int = _about("stream batch", 10)
    blur: float = _about("share of images dealt out to other tasks; above 0 hides boundaries", 0.0)
    train_per_class: int | None = _about("only the first so many training images of each class")
    test_per_class: int | None = _about("only the first so many test images of each class")
    image_size: int | None = _about("resize the images of a folder to so many pixels")
    # the network
    width: int = _about("channels of the first stage; 64 is the full ResNet-18", 64)
    stem: str = _about("first layers: 3x3 (32 and 64 pixels) or 7x7 (224)", "3x3")
    pool: str = _about("last pooling: global or 2x2", "global")
    normalise: bool = _about("subtract ImageNet's mean and divide by its deviation", False)
    # the method
    replay_batch: int = _about("memory images per step", 64)
    updates: int = _about("steps per stream batch", 1)
    lr: float = _about("learning rate of AdamW", 5e-4)
    weight_decay: float = _about("weight decay of AdamW", 1e-4)
    beta2: float = _about("second decay rate of AdamW", 0.999)
    profile: str = _about("paper, or authors to differ where their code does", "paper")
    alpha: float | None = _about("derpp: weight of the stored logits")
    beta: float | None = _about("derpp: weight of the second draw")
    similarity_weight: float | None = _about("ocm: weight of similarities after the first task")
    # collaboration
    peers: int | None = _about("networks that learn together")
    label_weight: float | None = _about("weight of the labels on every view (lambda1)")
    lesson_weight: float | None = _about("weight of the lessons (lambda2)")
    temperature: float | None = _about("by which answers are softened in a lesson (tau)")
    stages: int | None = _about("views after the image itself")
    ops: int | None = _about("operations of each RandAugment (N)")
    magnitude: int | None = _about("magnitude of RandAugment (M), 0 to 30")
    per_sample: bool | None = _about("draw RandAugment for each image, not once for the batch")
    # the machine
    device: str = _about("cpu or cuda", "cpu")
    precision: str = _about("fp32; on cuda also bf16 or fp16", "fp32")
    threads: int = _about("of the processor; 0 for all", 0)


FIELDS = {f.name: f for f in dataclasses.fields(Settings)}
MACHINE = ("device", "threads")  # taken over from a run that is resumed, unless given
METHOD_OWN = ("alpha", "beta", "similarity_weight")  # read by some methods only
COLLABORATION = ("peers", "label_weight", "lesson_weight", "temperature")
CHAIN = ("stages", "ops", "magnitude", "per_sample")


class Published(NamedTuple):
    """The paper's protocol for a data set."""

    memories: tuple[int, ...]  # the sizes in its tables; the first one is the default
    settings: Mapping[str, Any]


DATA = {
    "mini": Published((200,), {"tasks": 5, "width": 16, "ops": 3, "magnitude": 15}),
    "cifar10": Published((500, 1000), {"tasks": 5, "ops": 3, "magnitude": 15}),
    "cifar100": Published((1000, 2000, 5000), {"tasks": 10, "ops": 3, "magnitude": 15}),
    "tiny": Published(
        (2000, 5000, 10000), {"tasks": 100, "pool": "2x2", "ops": 1, "magnitude": 11}
    ),
    "imagenet100": Published(
        (5000,), {"tasks": 10, "stem": "7x7", "normalise": True, "ops": 3, "magnitude": 11}
    ),
}


class Resolved(NamedTuple):
    """Settings with the origin of each value: default, preset, file or flag."""

    settings: Settings
    origins: dict[str, str]


def resolve(flags: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> Resolved:
    """The settings of one run. `flags` and `file` hold values by name, already converted."""
    file = file or {}
    given = {**file, **flags}
    data = str(given.get("data", Settings.data))
    method = str(given.get("method", Settings.method))
    values: dict[str, Any] = {name: f.default for name, f in FIELDS.items()}
    origins = dict.fromkeys(values, "default")
    layers = [
        ("preset", _preset(data, method, given)),
        ("file", file),
        ("flag", flags),
    ]
    for origin, layer in layers:
        for name, value in layer.items():
            if value is not None:
                values[name], origins[name] = value, origin
    for name in unread(method):
        values[name], origins[name] = None, "default"
    return Resolved(Settings(**values), origins)


def unread(method: str) -> list[str]:
    """The settings that a method has no use for."""
    from peerlearn.learner.presets import PRESETS, find_method

    base, plus, kind = method.partition("+")
    own = find_method(base).own_settings()
    names = [name for name in METHOD_OWN if name not in own]
    if not plus:
        names += [*COLLABORATION, *CHAIN]
    elif kind in PRESETS and PRESETS[kind].stages is not None:
        names.append("stages")
    return names


def _preset(data: str, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the paper, or the code of a method, sets for this data set and method."""
    from peerlearn.augment import ViewChain
    from peerlearn.learner.presets import collaboration, find_method

    base, plus, kind = method.partition("+")
    published = DATA.get(data)
    values: dict[str, Any] = dict(published.settings) if published else {}
    if published:
        values["memory"] = published.memories[0]
    if data == "tiny" and base == "onpro":
        values["pool"] = "global"
    made = find_method(base)
    optim = made.optim
    values |= {"lr": optim.lr, "weight_decay": optim.weight_decay, "beta2": optim.betas[1]}
    values |= {k: v for k, v in made.own_settings().items() if k in FIELDS}
    if plus:
        chain = ViewChain(
            **{
                k: given.get(k, values.get(k))
                for k in ("ops", "magnitude", "stages")
                if given.get(k, values.get(k)) is not None
            }
        )
        c = collaboration(kind, base, chain=chain, profile=given.get("profile", "paper"))
        values |= {name: getattr(c, name) for name in COLLABORATION}
        values |= {name: getattr(c.chain, name) for name in CHAIN}
    return values


def convert(name: str, text: Any, source: str) -> Any:
    """A value of a setting from a flag's text or a file's value; errors name the source."""
    if name not in FIELDS:
        raise UserError(did_you_mean(f"{source}: there is no setting {name!r}", name, FIELDS))
    kind = FIELDS[name].type
    assert not isinstance(kind, str)
    choices = [k for k in typing.get_args(kind) or (kind,) if k is not types.NoneType]
    wanted = choices[0]
    if text is None and types.NoneType in typing.get_args(kind):
        return None
    try:
        if wanted is bool:
            return {"true": True, "false": False}[str(text).lower()]
        if wanted is int:
            return int(str(text))
        if wanted is float:
            return float(str(text))
        return str(text)
    except (KeyError, ValueError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        raise UserError(f"{source}: {name} must be {names[wanted]}, got {text!r}") from None


def read_file(path: Path) -> dict[str, Any]:
    """Settings from a YAML file: a mapping of names to values; a run's config.yaml will do."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        line = str(error).splitlines()[0]
        raise UserError(f"{path}: is not YAML ({line}); write `name: value` lines") from error
    if isinstance(content, dict) and isinstance(content.get("settings"), dict):
        content = content["settings"]
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold `name: value` lines")
    return {str(name): convert(str(name), value, str(path)) for name, value in content.items()}


def differences(ours: Settings, theirs: Mapping[str, Any]) -> list[str]:
    """Settings in which a run on disk is another one, as text; the machine's are left out."""
    return [
        f"{name} {theirs.get(name)!r} there, {value!r} here"
        for name, value in dataclasses.asdict(ours).items()
        if name not in MACHINE and theirs.get(name) != value
    ]


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds as a person writes them.

    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"--seeds: {text!r} is not a list such as 0-2 or 0,3,7")
        seeds += range(int(first), int(last if dash else first) + 1)
    if not seeds:
        raise UserError(f"--seeds: {text!r} holds no seed; write the lower one first")
    return tuple(dict.fromkeys(seeds))


def published_combinations() -> Sequence[tuple[str, int, str]]:
    """Data set, memory and method of every run in the paper's main tables: 108 of them."""
    methods = ("er", "derpp", "er_ace", "ocm", "gsa", "onpro")
    return [
        (data, memory, method + kind)
        for data, published in DATA.items()
        if data != "mini"
        for memory in published.memories
        for method in methods
        for kind in ("", "+ccldc")
    ]
