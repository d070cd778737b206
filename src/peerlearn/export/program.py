"""A program of `torch.export`, read and run without what could run anything else.

`torch.export.load` stays unused on purpose. A doctored `.pt2` can make it run code: it unpickles
sample inputs, weights and constants, loads compiled libraries, and evaluates the text of sizes and
guards. Digests that lie in the same folder reveal damage, not intent. So the archive is read as
what it is, a zip of JSON and plain numbers, and its operators are called one by one, if they are
known to compute and do nothing else. A doctored program can answer wrongly or ask for too much
memory; it cannot name any code.
"""

import io
import operator
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from peerlearn.files import Unreadable, from_json

OUTPUTS = ("logits", "probabilities")


class Step(NamedTuple):
    """One operator of a program: what it is called with, and what its results are called."""

    call: Callable[..., Any]
    positional: list["Argument"]
    named: dict[str, "Argument"]
    results: list[Any]  # names, nested as results are
    forget: list[str]  # names that no later step asks for


Values = dict[str, Any]  # by name
Argument = Callable[[Values], Any]


class Program:
    """A program of `torch.export`, run by its operators; see the head of this module.

    Args:
        content: of a `.pt2` file whose operators are core ATen ones, on the CPU.
    """

    def __init__(self, content: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            if any(info.compress_type != zipfile.ZIP_STORED for info in records.values()):
                raise Unreadable("is compressed")  # may be far larger than it looks

            def read(name: str) -> bytes:
                return archive.read(records[name])

            tensors = {
                **_tensors(read, "data/weights/", "model_weights_config.json"),
                **_tensors(read, "data/constants/", "model_constants_config.json"),
            }
            module = from_json(read("models/model.json").decode())["graph_module"]
        self._fixed: Values = {}
        self._input = ""
        for spec in module["signature"]["input_specs"]:
            ((kind, facts),) = spec.items()
            if kind == "user_input":
                self._input = facts["arg"]["as_tensor"]["name"]
            else:
                self._fixed[facts["arg"]["name"]] = tensors[facts[f"{kind}_name"]]
        outputs = [spec["user_output"]["arg"] for spec in module["signature"]["output_specs"]]
        self._outputs: list[str] = [arg["as_tensor"]["name"] for arg in outputs]
        if len(self._outputs) != len(OUTPUTS):
            raise Unreadable(f"gives {len(self._outputs)} results")
        self._steps = _steps(module["graph"]["nodes"], {*self._outputs})

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Logits and probabilities."""
        values = {**self._fixed, self._input: images}
        for step in self._steps:
            positional = [argument(values) for argument in step.positional]
            named = {name: argument(values) for name, argument in step.named.items()}
            _keep(step.results, step.call(*positional, **named), values)
            for name in step.forget:
                del values[name]
        return [values[name] for name in self._outputs]


# What the archive calls them by number, and we by name
_DTYPES = {1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64,
           6: torch.float16, 7: torch.float32, 8: torch.float64, 12: torch.bool,
           13: torch.bfloat16}  # fmt: skip
_MEMORY_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}
_LAYOUTS = {7: torch.strided}
_DEVICES = {"cpu": torch.device("cpu")}
_OF_NUMBERS = {
    f"_operator.{name}": getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
}  # sizes are computed with these
_ALSO = {"linalg_vector_norm.default", "adaptive_max_pool2d.default"}  # beyond the core operators


def _tensors(read: Callable[[str], bytes], place: str, index: str) -> dict[str, Tensor]:
    """The tensors of a part of the archive, by name; those that share a record share memory."""
    config = from_json(read(place + index).decode())["config"]
    found, records = {}, {}
    for name, facts in config.items():
        if facts["use_pickle"]:
            raise Unreadable("holds a pickle, which could run code")
        meta, path = facts["tensor_meta"], facts["path_name"]
        if path not in records:
            content = bytearray(read(place + path))
            dtype = _DTYPES[meta["dtype"]]
            records[path] = (
                torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
            )
        sizes, strides = ([n["as_int"] for n in meta[key]] for key in ("sizes", "strides"))
        offset = meta["storage_offset"]["as_int"]
        found[name] = records[path].as_strided(sizes, strides, offset)  # refuses what lies outside
    return found


def _steps(nodes: list[dict[str, Any]], wanted: set[str]) -> list[Step]:
    """The operators in their order. wanted: names to keep to the end."""
    steps = []
    for node in reversed(nodes):  # the last one to ask for a value is the first to be met
        if node["target"].startswith("torch.ops.aten._assert"):
            continue
        call, results = _operator(node["target"]), [_names(one) for one in node["outputs"]]
        asked: list[str] = []
        arguments = [(one["name"], _argument(one["arg"], asked)) for one in node["inputs"]]
        numbers = node["target"] in _OF_NUMBERS  # whose arguments have no names
        made = [*_flat(results)]
        forget = {name for name in [*asked, *made] if name not in wanted}
        wanted |= {*asked, *made}
        steps.append(
            Step(
                call,
                [argument for _, argument in arguments if numbers],
                {name: argument for name, argument in arguments if not numbers},
                results[0] if len(results) == 1 else results,
                sorted(forget),
            )
        )
    return steps[::-1]


def _operator(target: str) -> Callable[..., Any]:
    """What a name stands for, if it is known to compute and do nothing else.

    >>> _operator("torch.ops.aten.relu.default")
    <OpOverload(op='aten.relu', overload='default')>
    >>> _operator("torch.ops.aten.from_file.default")
    Traceback (most recent call last):
    peerlearn.files.Unreadable: asks for torch.ops.aten.from_file.default
    """
    if target in _OF_NUMBERS:
        return _OF_NUMBERS[target]  # type: ignore[no-any-return]
    name = target.removeprefix("torch.ops.aten.")
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if name != target and isinstance(found, torch._ops.OpOverload):
        # kernels of gradients trust the indices that they are given
        core = torch.Tag.core in found.tags and "backward" not in packet
        if (core or name in _ALSO) and not found._schema.is_mutable:
            return found
    raise Unreadable(f"asks for {target:.80}")


def _argument(arg: Mapping[str, Any], asked: list[str]) -> Argument:
    """How an argument is had of the values so far. asked: takes the names that it needs."""
    ((kind, value),) = arg.items()
    match kind:
        case "as_tensor":
            asked.append(value["name"])
            return operator.itemgetter(value["name"])
        case "as_name":
            asked.append(value)
            return operator.itemgetter(value)
        case "as_sym_int" | "as_sym_bool" | "as_optional_tensor":
            return _argument(value, asked)
        case "as_tensors":
            return _list([_argument({"as_tensor": one}, asked) for one in value])
        case "as_sym_ints" | "as_sym_bools" | "as_optional_tensors":
            return _list([_argument(one, asked) for one in value])
    return partial(_constant, _value(kind, value))


def _constant(value: Any, _: Values) -> Any:
    return value


def _list(parts: list[Argument]) -> Argument:
    return lambda values: [part(values) for part in parts]


def _value(kind: str, value: Any) -> Any:
    """A value that stands in the archive itself."""
    match kind:
        case "as_none":
            return None
        case "as_int" | "as_ints" | "as_bool" | "as_bools" | "as_string":
            return value
        case "as_float":
            return float(value)  # infinity is a text
        case "as_floats":
            return [*map(float, value)]
        case "as_scalar_type":
            return _DTYPES[value]
        case "as_memory_format":
            return _MEMORY_FORMATS[value]
        case "as_layout":
            return _LAYOUTS[value]
        case "as_device":
            return _DEVICES[value["type"]]
    raise Unreadable(f"has an argument {kind:.40}")


def _names(result: Mapping[str, Any]) -> Any:
    """The name of a result; a list of them if it is a list."""
    ((kind, value),) = result.items()
    if kind == "as_tensors":
        return [one["name"] for one in value]
    return value["name"] if kind == "as_tensor" else value["as_name"]


def _flat(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else [one for part in names for one in _flat(part)]


def _keep(names: Any, result: Any, values: Values) -> None:
    if isinstance(names, str):
        values[names] = result
    else:
        for name, one in zip(names, result, strict=True):
            _keep(name, one, values)
