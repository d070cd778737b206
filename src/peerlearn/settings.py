"""Settings: the values that build a part, with their help and range beside each of them."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from peerlearn.errors import UserError, did_you_mean, nearest

Values = Mapping[str, Any]


def setting(default: Any, about: str, **limits: Any) -> Any:
    """A field of a `Settings` class. limits: gt, ge, lt, le."""
    return Field(default, description=about, **limits)


def about(text: str, **limits: Any) -> Any:
    """What `Annotated` says of a keyword-only argument that is a setting. limits as above."""
    return Field(description=text, **limits)


OLD_NAMES = {  # of settings, still understood in this version, and their present names
    "answer": "predict_with",
    "collaboration.answer": "predict_with",
    "lesson_weight": "distill_weight",
    "collaboration.lesson_weight": "collaboration.distill_weight",
}
OLD_PREDICT_WITH = {"shadow": "ema"}  # values of `answer`, and of `predict_with`


def with_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their present names: `answer` is called `predict_with`.

    >>> with_present_names({"answer": "shadow", "peers": 2})
    {'predict_with': 'ema', 'peers': 2}
    """
    return dict(present_name(name, value) for name, value in settings.items())


def present_name(name: str, value: Any) -> tuple[str, Any]:
    """Return the present name of a setting, and its value as that name has it."""
    present = OLD_NAMES.get(name, name)
    if present != "predict_with":
        return present, value
    if isinstance(value, list):  # of a sweep
        return present, [present_name(name, one)[1] for one in value]
    return present, OLD_PREDICT_WITH.get(value, value) if isinstance(value, str) else value


def old_name_note(
    name: str, value: Any, form: Callable[[str, Any], str] = "{}={!r}".format
) -> str | None:
    """Return what a setting that was given is called now; None for a present name and value.

    >>> old_name_note("answer", "shadow")
    "answer='shadow' is now predict_with='ema'"
    """
    present = present_name(name, value)
    return None if present == (name, value) else f"{form(name, value)} is now {form(*present)}"


class Choices:
    """Says in the `Annotated` type of a text which texts there are to choose from.

    They are looked at when they are asked for, so that those that plug-ins add are among them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = names


class Settings(BaseModel):
    """Values that build one part; what does not fit is refused in one line, all faults at once.

    >>> class Replay(Settings):
    ...     replay_batch: int = setting(64, "memory images per step", ge=1)
    >>> Replay(replay_batch=0)
    Traceback (most recent call last):
    peerlearn.errors.UserError: Replay: replay_batch must be at least 1, got 0
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and kind in (int, float, int | None):
            raise ValueError(f"{info.field_name} must be a number, got {value}")
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            faults = "; ".join(faults_of(error, type(self)).values())
            raise UserError(f"{self._title()}: {faults}") from None

    # tells pydantic that settings within settings can be checked by the class around them
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def _title(cls) -> str:
        """A nested `Settings` is called as the class around it."""
        return cls.__qualname__.removesuffix(".Settings").rpartition(".")[2]


def settings_of(part: Callable[..., Any]) -> type[Settings]:
    """The settings of a part: itself, its class `Settings`, or its keyword-only arguments."""
    if isinstance(part, type) and issubclass(part, Settings):
        return part
    declared = getattr(part, "Settings", None)
    if isinstance(declared, type) and issubclass(declared, Settings):
        return declared
    fields: dict[str, Any] = {}
    for parameter in _signature(part).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (_kind(parameter), default)
    name = getattr(part, "__name__", type(part).__name__)
    try:
        return create_model(name, __base__=Settings, **fields)
    except PydanticUserError as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{name}: its settings must be numbers, texts or truths ({why})") from error


def _signature(part: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(part, eval_str=True)
    except (TypeError, ValueError, NameError) as error:
        raise UserError(f"{part!r:.60}: its arguments cannot be read ({error})") from error


def _kind(parameter: inspect.Parameter) -> Any:
    """The type of an argument: as annotated, else as its default, else what a text looks like."""
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    if isinstance(parameter.default, bool | int | float | str):
        return type(parameter.default)
    return Annotated[int | float | bool | str | Any, Field(union_mode="left_to_right")]


def fields_of(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """The fields of a class by their dotted names, those of classes within it included.

    >>> class Chain(Settings):
    ...     stages: int = 3
    >>> class Short(Settings):
    ...     chain: Chain = Chain(stages=2)
    >>> fields_of(Short)["chain.stages"].default
    2
    """
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            own = flatten(field.default.model_dump()) if isinstance(field.default, inner) else {}
            for key, part in fields_of(inner).items():
                found[f"{prefix}{name}.{key}"] = part = copy(part)
                part.default = own.get(key, part.default)
        else:
            found[f"{prefix}{name}"] = field
    return found


def flatten(values: Values, prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted names.

    >>> flatten({"optim": {"lr": 0.1}, "seed": 0})
    {'optim.lr': 0.1, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def nest(flat: Values) -> dict[str, Any]:
    """Values with dotted names as a tree, the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        branch = tree
        for step in path:
            branch = branch.setdefault(step, {})
        branch[last] = value
    return tree


def matching(name: str, keys: Iterable[str]) -> list[str]:
    """The dotted names that a name may stand for: itself, or those that end with it.

    >>> matching("lr", ["optim.lr", "method.virtual_lr"])
    ['optim.lr']
    """
    name = name.replace("-", "_")
    keys = list(keys)
    return [name] if name in keys else [key for key in keys if key.endswith(f".{name}")]


def faults_of(error: ValidationError, model: type[BaseModel]) -> dict[str, str]:
    """What is wrong in words, by the dotted name of the field."""
    found = {}
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"])
        got, limits = fault["input"], fault.get("ctx", {})
        if fault["type"] == "extra_forbidden":
            found[name] = did_you_mean(f"there is no setting {name!r}", name, fields_of(model))
        elif fault["type"] == "value_error":
            found[name] = str(limits.get("error", fault["msg"]))
        else:
            found[name] = f"{name} {_must(fault['type'], limits)}"
            found[name] += "" if fault["type"] == "missing" else f", got {got!r:.80}"
            if fault["type"] == "literal_error" and isinstance(got, str):
                choices = get_args(fields_of(model)[name].annotation)
                found[name] += nearest(got, [str(choice) for choice in choices])
    return found


def _must(kind: str, limits: Mapping[str, Any]) -> str:
    words = {
        "greater_than": "must be above {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be below {lt}",
        "less_than_equal": "must be at most {le}",
        "literal_error": "must be {expected}",
        "finite_number": "must be a finite number",
        "missing": "must be given",
    }
    if kind in words:
        return words[kind].format(**{k: _plain(v) for k, v in limits.items()})
    nouns = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    return f"must be {nouns.get(kind.partition('_')[0], 'a text')}"


def _plain(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return str(value).replace("'", "")


def check_steps(steps: Any, name: str = "steps") -> None:
    """Refuse what is not a number of steps, at least one."""
    check_whole(name, steps)
    if steps < 1:
        raise UserError(f"{name} must be at least 1, got {steps}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        *most, last = choices
        raise UserError(f"{name}: unknown {value!r:.40}; choose {', '.join(most)} or {last}")


def check_whole(name: str, number: Any) -> None:
    """Refuse what is not a whole number."""
    if not hasattr(number, "__index__") or isinstance(number, bool):
        raise UserError(f"{name} must be a whole number, got {number!r:.60}")


def described(field: FieldInfo, default: Any) -> str:
    """A field in a line of help: what it is, its choices or range, and its default."""
    notes = []
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if kind]
    within = [note for kind in kinds for note in getattr(kind, "__metadata__", ())]
    for choices in (note for note in (*field.metadata, *within) if isinstance(note, Choices)):
        notes.append(" | ".join(choices.names))
    for kind in kinds:
        if get_origin(kind) is Literal:
            notes.append(" | ".join(map(str, get_args(kind))))
        if kind is bool:
            notes.append("true | false")
    limits = {name: getattr(m, name) for m in field.metadata for name in ("gt", "ge", "lt", "le")
              if getattr(m, name, None) is not None}  # fmt: skip
    words = {"gt": "above {:.15g}", "ge": "from {:.15g}", "lt": "below {:.15g}", "le": "to {:.15g}"}
    if limits:
        notes.append(" ".join(words[name].format(value) for name, value in limits.items()))
    if default is not None and default is not PydanticUndefined:
        notes.append(f"default {str(default).lower() if isinstance(default, bool) else default}")
    return f"{field.description or ''}{' (' + '; '.join(notes) + ')' if notes else ''}".strip()
