"""Mutated files of CIFAR: whatever is in them, they are read or refused in words."""

import io
import pickle
import pickletools
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from peerlearn.data import load
from peerlearn.errors import UserError

PLAIN = 1000  # bytes: what is longer is pixels
RECONSTRUCT = np.array(0).__reduce__()[0]


def case(seed: int, folder: Path) -> str:
    """Write a data set with a mutated file into `folder`; say whether it was read or refused."""
    rng = random.Random(seed)
    style = rng.choice(STYLES)
    files = dict(whole(style, rng.choice(list(WRITERS))))
    name = rng.choice(list(files))
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        files[name] = rng.choice(MUTATIONS)(files[name], rng)
    place = folder / style
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (place / name).write_bytes(content)
    try:
        data = load(place)
    except UserError as error:
        if not str(error).isprintable():
            raise AssertionError(f"not one line: {error!r}") from error
        return "refused"
    if not len(data.train) or data.train.x.shape[1:] != (3, 32, 32):
        raise AssertionError(f"read as {data.train.x.shape}")
    return "read"


# Whole files, as each writer has them


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes as Python 2 did: every text a byte string, every truth value a number."""

    dispatch = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]  # noqa: RUF012

    def save_text(self, text: str | bytes) -> None:
        data = text.encode("latin1") if isinstance(text, str) else text
        short, long = b"U" + bytes([len(data) % 256]), b"T" + struct.pack("<i", len(data))
        self.write((short if len(data) < 256 else long) + data)

    def save_truth(self, value: bool) -> None:
        self.save(int(value))

    dispatch[str] = dispatch[bytes] = save_text
    dispatch[bool] = save_truth


def by_python2(content: Any) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(content)
    return file.getvalue().replace(b"numpy._core", b"numpy.core")


WRITERS: dict[str, Callable[[Any], bytes]] = {
    "python 2": by_python2,
    "protocol 2": lambda content: pickle.dumps(content, protocol=2),
    "protocol 4": lambda content: pickle.dumps(content, protocol=4),
}


def pixels(count: int) -> Any:
    return (np.arange(count * 3072) % 251).astype(np.uint8).reshape(count, 3072)


@cache
def whole(style: str, writer: str) -> dict[str, bytes]:
    """The files of a data set of a few images."""
    write, names = WRITERS[writer], ["airplane", "automobile", "bird"]
    if style == "cifar10":
        parts = {f"data_batch_{i}": 2 for i in range(1, 6)} | {"test_batch": 1}
        keys, meta = ["labels"], {"batches.meta": {"label_names": names, "num_vis": 3072}}
    else:
        parts, keys = {"train": 3, "test": 2}, ["fine_labels", "coarse_labels"]
        meta = {"meta": {"fine_label_names": names, "coarse_label_names": names}}
    files = {
        part: write(
            {
                "batch_label": f"{part} of {len(parts)}",
                **{key: [i % 3 for i in range(count)] for key in keys},
                "data": pixels(count),
                "filenames": [f"bird_s_{i:06}.png" for i in range(count)],
            }
        )
        for part, count in parts.items()
    }
    return files | {name: write(content) for name, content in meta.items()}


# Mutations of bytes


@lru_cache(100)
def pieces(data: bytes) -> list[bytes]:
    """The pickle cut into its steps; what cannot be cut is one piece."""
    starts = [0]
    with suppress(ValueError, IndexError, OverflowError):  # where it was mutated before
        starts.extend(at for _, _, at in pickletools.genops(data) if at)
    return [data[start:end] for start, end in pairwise([*starts, len(data)])]


@lru_cache(100)
def plain_places(data: bytes) -> list[int]:
    """The places outside the pixels, and the end."""
    places, at = [len(data)], 0
    for piece in pieces(data):
        if len(piece) < PLAIN:
            places.extend(range(at, at + len(piece)))
        at += len(piece)
    return places


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data + b"\0")
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.choice(plain_places(data))
        changed[at] = rng.choice((rng.randrange(256), changed[at] ^ 1 << rng.randrange(8)))
    return bytes(changed)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice((rng.choice(plain_places(data)), rng.randrange(len(data) + 1)))]


def splice(data: bytes, rng: random.Random) -> bytes:
    other = rng.choice(list(whole(rng.choice(STYLES), rng.choice(list(WRITERS))).values()))
    start, length = rng.choice(plain_places(other)), rng.choice((1, 4, 30, 300, 4000))
    at = rng.choice(plain_places(data))
    return data[:at] + other[start : start + length] + data[at + rng.choice((0, length)) :]


def noise(_: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(60))


# Mutations of steps

NUMBERS = (0, 1, 2, 255, 256, 3072, 2**15, 2**31 - 1, 2**31, 2**32 - 1)
STRANGE = (
    *(bytes([code]) for code in range(256)),
    *(bytes([code]) + struct.pack("<I", n) for code in b"TXBJrj" for n in NUMBERS),
    *(bytes([code]) + struct.pack("<Q", n) for code in b"\x8d\x8e\x95\x96" for n in (1, 2**40)),
    *(b"\x8a" + bytes([n]) + b"\xff" * n for n in (0, 1, 8, 9, 255)),  # long numbers
    *(b"\x8b" + struct.pack("<i", n) for n in (0, 2**31 - 1, -1)),
    *(b"L" + b"9" * n + b"L\n" for n in (1, 20, 5000)),
    b"I01\n",
    b"F1e999\n",
    b"G\x7f\xf0\0\0\0\0\0\0",
    b"S'a'\n",
    b"Va\n",
    b"Pa\n",  # names of objects that are kept elsewhere
    b"\x8c\x01aQ",
    b"\x82\x01",  # numbers of registered classes
    b"\x83\x01\0",
    b"\x84\x01\0\0\0",
    b"cnumpy\nndarray\n",  # what is called, and how
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"c_codecs\nencode\n",
    b"cposix\nsystem\n",
    b"(inumpy\nndarray\n",
    b"cnumpy\nndarray\n(K\x01o",
    b"cnumpy\nndarray\n)\x81",
    b"cnumpy\nndarray\n)}\x92",
    b")R",
    b"}b",
    b"}\x8c\x08__dict__Nsb",
    b"N}\x8c\x08__code__Ns\x86b",
)


def edit(data: bytes, rng: random.Random) -> bytes:
    """Delete, repeat, swap, replace or insert steps, seldom those with pixels."""
    steps = list(pieces(data))
    for _ in range(rng.choice((1, 1, 2, 4))):
        small = [i for i, step in enumerate(steps) if len(step) < PLAIN]
        i, j = (rng.choice(small or range(len(steps))) for _ in range(2))
        if rng.random() < 0.1:
            i = rng.randrange(len(steps))
        what = rng.randrange(6)
        if what == 0 and len(steps) > 1:
            del steps[i]
        elif what == 1:
            steps.insert(i, steps[j] * rng.choice((1, 1, 2, 50)))
        elif what == 2:
            steps[i], steps[j] = steps[j], steps[i]
        elif what == 3:
            steps[i] = rng.choice(STRANGE)
        elif what == 4:
            steps.insert(i, rng.choice(STRANGE))
        else:  # another argument, or the same for another step
            step = steps[i]
            steps[i] = rng.choice((step[:1] + steps[j][1:], step[:1] + step[1:][::-1]))
    return b"".join(steps)


def program(_: bytes, rng: random.Random) -> bytes:
    """Strange steps only."""
    steps = [rng.choice(STRANGE) for _ in range(rng.randrange(1, 40))]
    return b"\x80\x02}" + b"".join(steps) + b"."


# Files that are doctored on purpose


class Made:
    """Pickled as the call of a function with a state."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


def doctored(_: bytes, rng: random.Random) -> bytes:
    """A whole file but for some part of its array or its labels."""

    def mostly(right: Any, *wrong: Any) -> Any:
        return right if rng.random() < 0.9 else rng.choice(wrong)

    raw = pixels(2).tobytes()
    code = mostly("u1", "i1", "u2", "i4", "f8", "O", "O8", "S3", "V9", "?", "M8[ns]", "u1,O", "", 1)
    order = mostly("|", "<", ">", "=", "<>", "", "x", 1, None)
    fields = mostly(None, ("a", "b"), (), 1)
    of = Made(np.dtype, (code, False, True), (3, order, None, fields, None, -1, -1, 0))
    form = mostly((2, 3072), *SHAPES)
    content = mostly(raw, raw[:-1], raw + b"\0", b"", [1, 2], [None] * 9, "text", 7, None, of)
    state = (mostly(1, 2, None), form, mostly(of, None, 1), mostly(False, True, 1, 2, of), content)
    state = mostly(state, list(state), state[:-1], (*state, 1), None, {}, {"a": 1})
    given = mostly((np.ndarray, (0,), b"b"), (np.ndarray, (2**40,), b"O"), (), (1, 2))
    data = Made(RECONSTRUCT, given, state)
    labels = mostly([0, 1], np.array([0, 1]), [-1, 0], [0, 2**70], [None] * 2, [[0], [1]], data)
    write = rng.choice(list(WRITERS.values()))
    return write({"data": mostly(data, [data], raw), "labels": labels, "fine_labels": labels})


SHAPES = (
    (3, 3072),
    (1, 3072),
    (3072, 2),
    (6144,),
    (),
    (0, 3072),
    (0, 2**62),
    (-2, -3072),
    (2**63, 3072),
    (2**200, 0),
    (2, 3072, *[1] * 70),
    (True, 6144),
    (None, 3072),
    [2, 3072],
    2,
)


def bomb(_: bytes, rng: random.Random) -> bytes:
    return rng.choice([content for content in BOMBS.values() if len(content) < PLAIN])


FAR = struct.pack("<I", 2**31 - 1)
BOMBS = {
    "an object array shorter than its shape": pickle.dumps(
        Made(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (9**6,), np.dtype("O"), False, [1]))
    ),
    "a memo place far out": b"\x80\x02Nr" + FAR + b".",
    "a key of nested tuples": b"\x80\x02})" + b"\x85" * 390_000 + b"Ns.",
    "a value of nested lists": b"\x80\x02}\x8c\x01k" + b"]" * 190_000 + b"a" * 189_999 + b"s.",
    "a key that holds itself twice, and so on": b"}q\1)q\0"
    + b"h\0h\0\x86q\0" * 60
    + b"h\1h\0Ns.",
    "a long name, again and again": b"\x80\x02}U\x0blabel_names]T\0\0\x10\0"
    + b"a" * 2**20
    + b"q\0("
    + b"h\0" * 20_000
    + b"es.",
    "a list in itself": b"\x80\x02]q\0h\0a.",
    "a dictionary in itself": b"\x80\x02}q\0\x8c\x04datah\0s.",
    "a text that is encoded again and again": b"c_codecs\nencode\nq\0X\0\0\x10\0"
    + b"a" * 2**20
    + b"q\1\x8c\6latin1q\2"
    + b"h\0h\1h\2\x86R" * 9_000
    + b".",
    "an array whose text is another's": b"\x80\x02T" + FAR + b"a.",
    "a frame without an end": b"\x80\x04\x95" + b"\xff" * 8 + b"}.",
    "bytes without an end": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"a.",
    "a long number": b"\x80\x02\x8b" + FAR + b"a.",
    "a number of many digits": b"I" + b"9" * 500_000 + b"\n.",
    "sets": b"\x80\x04" + b"\x8f" * 900_000 + b".",
    "dictionaries": b"\x80\x04" + b"}" * 1_500_000 + b".",
    "a function that is changed": b"c_codecs\nencode\n}\x8c\x01aNsb.",
    "a class that is changed": b"cnumpy\nndarray\nN}\x8c\x01aNs\x86b.",
}

STYLES = ("cifar10", "cifar100")
MUTATIONS = (
    *[flip, edit, edit, edit, doctored, doctored, cut, splice, program] * 10,
    noise,
    bomb,
)
