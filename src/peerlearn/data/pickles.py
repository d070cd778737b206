"""Pickles of plain values and whole-number arrays, read without running what they ask for.

Python's own reader imports and calls what a file names. Even where that is forbidden, a few bytes
can make it take all memory (a memo place far out), overflow the stack (a key of nested tuples) or
leave an array half filled. This reader knows what Python 2 and 3 write for dictionaries of texts,
numbers, lists and arrays, and refuses the rest. It calls nothing, it copies no byte more often than
the file has it, and it makes an array only after its content was found to fit its shape.
"""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_STEPS = 400_000  # the largest file of CIFAR takes 200,000
MAX_AXES = 8
WHOLE_NUMBERS = frozenset({"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"})
ADMITTED = frozenset(
    {
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.ndarray",
        "numpy.dtype",
        "_codecs.encode",  # as which Python 3 writes bytes for Python 2
    }
)


class NotPlainError(Exception):
    """The bytes are no pickle, or hold more than plain values and arrays; the text says what."""


class ForbiddenError(NotPlainError):
    """The pickle asks for a function or class, which the text names."""


def read_plain(data: bytes) -> object:
    """Return the value of a pickle; texts of Python 2 are bytes, arrays are read-only.

    >>> read_plain(pickle.dumps({"data": np.array([[1, 2]], np.uint8)}, protocol=2))
    {'data': array([[1, 2]], dtype=uint8)}
    """
    try:
        value = _Machine(data).run()
    except (IndexError, KeyError):
        raise NotPlainError("it is cut off or damaged") from None
    except UnicodeError:
        raise NotPlainError("a text in it cannot be decoded") from None
    if isinstance(value, dict):
        return {key: _finished(part) for key, part in value.items()}
    return _finished(value)


class _Global:
    """A function or class that the file names; it is never called."""

    def __init__(self, name: str) -> None:
        if name not in ADMITTED:
            raise ForbiddenError(repr(name[:80]))
        self.name = name


class _Type:
    """Stands in for numpy's dtype: what it is made of, then the order of its bytes."""

    def __init__(self, code: str) -> None:
        if code not in WHOLE_NUMBERS:
            raise NotPlainError("it has an array that is not of whole numbers")
        self.code, self.order = code, "|"

    def build(self, state: Any) -> None:
        match state:
            case (_, str() | bytes() as order, None, None, None, *_):
                self.order = _text(order)
            case _:
                self.order = ""
        if self.order not in ("<", ">", "|", "="):
            raise NotPlainError("it has an array of a strange type")


class _Array:
    """Stands in for numpy's ndarray: nothing at first, then its shape, type and content."""

    values: npt.NDArray[Any] | None = None

    def build(self, state: Any) -> None:
        match state:
            case (1, tuple(shape), _Type() as of, 0 | 1 as by_columns, content):
                pass
            case _:
                raise NotPlainError("it has a strange array")
        if not isinstance(content, bytes | memoryview):
            raise NotPlainError("it has an array whose content is no bytes")
        if not 0 < len(shape) <= MAX_AXES or not all(type(n) is int and n > 0 for n in shape):
            raise NotPlainError("it has an array of a strange shape")
        if math.prod(shape) * int(of.code[1]) != len(content):
            raise NotPlainError("it has an array whose content does not fit its shape")
        flat = np.frombuffer(content, of.order + of.code)
        self.values = flat.reshape(shape, order="F" if by_columns else "C")


class _Machine:
    """A pickle is a program: its steps work on a stack with marks, and on a memo."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.push = self.stack.append
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.encoded = 0  # bytes

    def run(self) -> Any:
        for _ in range(MAX_STEPS):
            code = self.byte()
            if code == STOP:
                return self.stack.pop()
            if code not in _STEPS:
                raise NotPlainError(f"it has a step {bytes([code])!r}, which such files do without")
            _STEPS[code](self)
        raise NotPlainError(f"it has over {MAX_STEPS} steps")

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def view(self, length: int) -> memoryview:
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise IndexError
        return memoryview(self.data)[start : self.at]

    def take(self, length: int) -> bytes:
        return bytes(self.view(length))

    def number(self, length: int) -> int:
        return int.from_bytes(self.view(length), "little")

    def signed(self, length: int) -> int:
        return int.from_bytes(self.view(length), "little", signed=True)

    def text(self, length: int) -> str:
        return str(self.view(length), "utf-8")

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise IndexError
        text = self.text(end - self.at)
        self.at += 1
        return text

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError
        return self.pop_from(len(self.stack) - count)

    def pop_from(self, start: int) -> list[Any]:
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def append(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise NotPlainError("it adds to what is no list")
        self.stack[-1].extend(items)

    def set(self, items: list[Any]) -> None:
        target, keys, values = self.stack[-1], items[::2], items[1::2]
        if not isinstance(target, dict) or not all(isinstance(key, str | bytes) for key in keys):
            raise NotPlainError("it has a dictionary whose keys are no texts")
        target.update(zip(keys, values, strict=False))

    def reduce(self) -> None:
        called, given = self.pop(2)
        match getattr(called, "name", None), given:
            case "_codecs.encode", (str(text), "latin1"):
                self.encoded += len(text)
                if self.encoded > len(self.data):
                    raise NotPlainError("it repeats a text")
                self.push(text.encode("latin1"))
            case "numpy.dtype", (str() | bytes() as code, *_):
                self.push(_Type(_text(code)))
            case ("numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct"), _:
                self.push(_Array())
            case name, _:
                raise ForbiddenError(f"{name} in a strange way" if name else "what it made itself")

    def build(self) -> None:
        made, state = self.pop(2)
        if not isinstance(made, _Type | _Array):
            raise NotPlainError("it changes what is no array")
        made.build(state)
        self.push(made)


def _finished(value: object) -> object:
    return value.values if isinstance(value, _Array) else value


def _text(value: object) -> str:
    """Python 2 wrote the official files: its texts are bytes."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise NotPlainError("it has something else where a text belongs")
    return value


STOP = pickle.STOP[0]
_STEPS: dict[int, Callable[[_Machine], object]] = {
    code[0]: step
    for code, step in {
        pickle.PROTO: lambda m: m.byte(),
        pickle.FRAME: lambda m: m.take(8),
        pickle.MARK: lambda m: m.marks.append(len(m.stack)),
        pickle.NONE: lambda m: m.push(None),
        pickle.NEWFALSE: lambda m: m.push(False),
        pickle.NEWTRUE: lambda m: m.push(True),
        pickle.BININT: lambda m: m.push(m.signed(4)),
        pickle.BININT1: lambda m: m.push(m.byte()),
        pickle.BININT2: lambda m: m.push(m.number(2)),
        pickle.LONG1: lambda m: m.push(m.signed(m.byte())),
        pickle.SHORT_BINSTRING: lambda m: m.push(m.take(m.byte())),
        pickle.BINSTRING: lambda m: m.push(m.view(m.number(4))),  # long: pixels, so not copied
        pickle.SHORT_BINBYTES: lambda m: m.push(m.take(m.byte())),
        pickle.BINBYTES: lambda m: m.push(m.view(m.number(4))),
        pickle.SHORT_BINUNICODE: lambda m: m.push(m.text(m.byte())),
        pickle.BINUNICODE: lambda m: m.push(m.text(m.number(4))),
        pickle.EMPTY_TUPLE: lambda m: m.push(()),
        pickle.TUPLE: lambda m: m.push(tuple(m.pop_from(m.marks.pop()))),
        pickle.TUPLE1: lambda m: m.push(tuple(m.pop(1))),
        pickle.TUPLE2: lambda m: m.push(tuple(m.pop(2))),
        pickle.TUPLE3: lambda m: m.push(tuple(m.pop(3))),
        pickle.EMPTY_LIST: lambda m: m.push([]),
        pickle.APPEND: lambda m: m.append(m.pop(1)),
        pickle.APPENDS: lambda m: m.append(m.pop_from(m.marks.pop())),
        pickle.EMPTY_DICT: lambda m: m.push({}),
        pickle.SETITEM: lambda m: m.set(m.pop(2)),
        pickle.SETITEMS: lambda m: m.set(m.pop_from(m.marks.pop())),
        pickle.BINPUT: lambda m: m.put(m.byte()),
        pickle.LONG_BINPUT: lambda m: m.put(m.number(4)),
        pickle.MEMOIZE: lambda m: m.put(len(m.memo)),
        pickle.BINGET: lambda m: m.push(m.memo[m.byte()]),
        pickle.LONG_BINGET: lambda m: m.push(m.memo[m.number(4)]),
        pickle.GLOBAL: lambda m: m.push(_Global(f"{m.line()}.{m.line()}")),
        pickle.STACK_GLOBAL: lambda m: m.push(_Global(".".join(map(_text, m.pop(2))))),
        pickle.REDUCE: lambda m: m.reduce(),
        pickle.BUILD: lambda m: m.build(),
    }.items()
}
