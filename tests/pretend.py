"""A pretend accelerator: tensors that live on `pretend:0` or `pretend:1` and compute on the CPU.

They refuse to meet tensors of the CPU or of the other device, and generators of the CPU, as those
of a real accelerator do. What a real one would let the host wait for is noted in `waits`: values
that the host asks for, and copies from the CPU that were not told to go on without it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

NAME, COUNT = "pretend", 2
waits: list[str] = []  # ops for which the host has to wait until all before them is done

aten = torch.ops.aten
_MOVES = {aten._to_copy.default, aten.copy_.default}
_INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
_VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class Pretend(Tensor):
    """A tensor of the CPU that says it is elsewhere."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor, device: torch.device) -> "Pretend":
        made: Pretend = Tensor._make_wrapper_subclass(
            cls,
            inside.shape,
            dtype=inside.dtype,
            device=device,
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
        )
        made.inside = inside
        return made

    # what torch refuses for such classes, and a device has

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inside.untyped_storage()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretend({self.inside!r}, device='{self.device}')"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # backward in the calling thread: autograd has no thread for a backend written in Python
        with torch._C.DisableTorchFunctionSubclass(), _no_threads():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _compute(func, args, kwargs or {})


def _no_threads() -> Any:
    return torch.autograd.set_multithreading_enabled(False)


def _compute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Do on the CPU what was asked of the device."""
    given: list[Any] = []
    _each([*args, *kwargs.values()], given.append)
    tensors = [one for one in given if isinstance(one, Tensor)]
    ours = [one for one in tensors if isinstance(one, Pretend)]
    asked = kwargs.get("device")
    device = _indexed(torch.device(asked)) if asked is not None else ours[0].device
    if any(isinstance(one, torch.Generator) for one in given):
        raise RuntimeError(f"{func}: a generator of the cpu was given to {NAME}")
    if func not in _MOVES:
        _refuse_strangers(func, args, tensors)
    if _is_waited_for(func, args, kwargs, device):
        waits.append(str(func))
    named = {name: _each(value, _inside) for name, value in kwargs.items()}
    if asked is not None:
        named["device"] = torch.device("cpu")
    found = func(*_each(args, _inside), **named)
    same = {id(_inside(one)): one for one in tensors}  # what was changed in place is handed back
    if any(one.shape != one.inside.shape for one in ours):
        raise NotImplementedError(f"{func}: changes the shape of a tensor of {NAME}")

    def outside(one: Any) -> Any:
        if not isinstance(one, Tensor) or id(one) in same:
            return same.get(id(one), one)
        return one if device.type == "cpu" else Pretend(one, device)

    return _each(found, outside)


def _each(value: Any, action: Callable[[Any], Any]) -> Any:
    """What the action makes of a value; of a list or tuple, of all that is in it."""
    if isinstance(value, list | tuple):
        return type(value)([_each(one, action) for one in value])
    return action(value)


def _inside(one: Any) -> Any:
    return one.inside if isinstance(one, Pretend) else one


def _indexed(device: torch.device) -> torch.device:
    if device.type == NAME and (device.index or 0) >= COUNT:
        raise RuntimeError(f"{device}: there are {COUNT} devices")
    return torch.device(NAME, 0) if device == torch.device(NAME) else device


def _refuse_strangers(func: Any, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Tensors of one op are on one device, but for what CUDA allows: numbers, and indices."""
    indices = {id(one) for one in args[1]} if func in _INDEXED else set()
    takes_numbers = func in _INDEXED or torch.Tag.pointwise in func.tags or "fill" in str(func)

    def may_be_anywhere(one: Tensor) -> bool:
        return one.is_cpu and (id(one) in indices or (takes_numbers and one.ndim == 0))

    met = [one for one in tensors if not may_be_anywhere(one)]
    if len({one.device for one in met}) > 1:
        places = ", ".join(f"{tuple(one.shape)} on {one.device}" for one in met)
        raise RuntimeError(f"{func}: tensors of several devices meet: {places}")


def _is_waited_for(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> bool:
    if func in _INDEXED:  # indices of the cpu have to come, rows of a mask to be counted
        return any(i.is_cpu or not i.dtype.is_signed for i in args[1] if i is not None)
    if func is aten._to_copy.default:
        return device.type == "cpu" or (args[0].is_cpu and not kwargs.get("non_blocking"))
    if func is aten.copy_.default:
        to, of, *told = args
        return to.is_cpu or (of.is_cpu and True not in [*told, kwargs.get("non_blocking")])
    return not _VALUES.isdisjoint(func.tags)


class _Module:
    """What torch asks of `torch.pretend`."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return COUNT

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_all = torch.library.Library("_", "IMPL")
_some = torch.library.Library("aten", "IMPL")  # what would fill an empty tensor of another shape
_SOME = {"arange": ("default", "start", "start_step"), "eye": ("default", "m")}
_make = torch.tensor


def possible() -> bool:
    """Whether this version of torch can have such a device."""
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


@cache
def install() -> None:
    """Make the device known to torch, for the rest of the process."""
    # autograd counts devices at its first use; with threads for them a process could not be forked
    torch.zeros(1, requires_grad=True).sum().backward()
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    _all.fallback(_kernel, "PrivateUse1", with_keyset=False)
    for name, overloads in _SOME.items():
        for overload in overloads:
            op = getattr(getattr(aten, name), overload)
            _some.impl(op, partial(_kernel, op), "PrivateUse1")


def _kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    return _compute(op, args, kwargs)


def tensor(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
    """`torch.tensor`, which a backend written in Python is not told of: made here, then moved."""
    made = _make(data, **kwargs)
    return made if device is None else made.to(device)
