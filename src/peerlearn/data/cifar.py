"""CIFAR-10 and CIFAR-100 from their official Python files.

The files are pickles, which can run any code when they are loaded. Ours are read with a
reader that knows arrays and plain values and refuses everything else.
"""

import pickle
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError

PIXELS = 3 * 32 * 32


class _Layout(NamedTuple):
    name: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str
    names: str

    @property
    def remedy(self) -> str:
        return f"unpack https://www.cs.toronto.edu/~kriz/{self.archive} again"


_CIFAR10 = _Layout(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    labels="labels",
    names="label_names",
)
_CIFAR100 = _Layout(
    name="cifar100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test=("test",),
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
)


def cifar10(folder: str | PathLike[str]) -> Dataset:
    """Read CIFAR-10: 10 classes, (3, 32, 32) images, 50,000 to train and 10,000 to test.

    `folder` is `cifar-10-batches-py` or the folder that holds it.
    """
    return _load(Path(folder), _CIFAR10)


def cifar100(folder: str | PathLike[str]) -> Dataset:
    """Read CIFAR-100 with its 100 fine labels; sizes as in CIFAR-10.

    `folder` is `cifar-100-python` or the folder that holds it.
    """
    return _load(Path(folder), _CIFAR100)


def _load(folder: Path, layout: _Layout) -> Dataset:
    nested = folder / layout.folder
    root = nested if nested.is_dir() else folder
    if root == folder and not (root / layout.meta).exists():
        raise UserError(
            f"{folder}: no {layout.folder} here; name the folder that holds it, "
            f"or {layout.remedy.removesuffix(' again')} there"
        )
    names = _class_names(root / layout.meta, layout)
    train = _image_set([root / part for part in layout.train], names, layout)
    test = _image_set([root / part for part in layout.test], names, layout)
    return Dataset(train, test, layout.name)


def _class_names(path: Path, layout: _Layout) -> tuple[str, ...]:
    names = _read(path, layout).get(layout.names)
    if not isinstance(names, list) or not all(isinstance(n, str | bytes) for n in names):
        raise UserError(f"{path}: {layout.names} is not a list of names; {layout.remedy}")
    return tuple(_text(name) for name in names)


def _image_set(paths: Sequence[Path], names: tuple[str, ...], layout: _Layout) -> ImageSet:
    parts = [_images_and_labels(path, len(names), layout) for path in paths]
    x = np.concatenate([images for images, _ in parts]).reshape(-1, 3, 32, 32)
    y = torch.tensor([label for _, labels in parts for label in labels], dtype=torch.int64)
    return ImageSet(torch.from_numpy(x), y, names)


def _images_and_labels(
    path: Path, num_classes: int, layout: _Layout
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    content = _read(path, layout)
    data, labels = content.get("data"), content.get(layout.labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (PIXELS,):
        raise UserError(f"{path}: data is not an array (N, {PIXELS}) of uint8; {layout.remedy}")
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(isinstance(k, int) and 0 <= k < num_classes for k in labels)
    ):
        raise UserError(
            f"{path}: {layout.labels} are not {len(data)} whole numbers "
            f"from 0 to {num_classes - 1}; {layout.remedy}"
        )
    return data, labels


def _read(path: Path, layout: _Layout) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = _ArrayReader(file, encoding="bytes").load()
    except FileNotFoundError:
        raise UserError(f"{path}: the file is missing; {layout.remedy}") from None
    except _RefusedError as refused:
        raise UserError(
            f"{path}: asks to load {refused}, which no CIFAR file needs and which may be harmful; "
            f"delete it and {layout.remedy}"
        ) from None
    except Exception as error:  # a damaged pickle may raise anything
        kind = type(error).__name__
        raise UserError(f"{path}: cannot be read ({kind}); {layout.remedy}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no dictionary; {layout.remedy}")
    return {_text(key): value for key, value in content.items() if isinstance(key, str | bytes)}


def _text(value: str | bytes) -> str:
    """Python 2 wrote the official files: its strings arrive as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else value


class _RefusedError(Exception):
    """The pickle names a global that image files do not need."""


def _blank_array(*_: object) -> npt.NDArray[np.uint8]:
    """Stand in for numpy's `_reconstruct`: the pickled state brings shape, type and data."""
    return np.empty(0, np.uint8)


def _dtype(code: str | bytes, *_: object) -> np.dtype[Any]:
    """Stand in for `numpy.dtype`: numpy 2.4.0 to 2.4.4 warn of the flags in old files."""
    return np.dtype(_text(code))


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for `_codecs.encode`, as which Python 3 writes bytes for Python 2."""
    if encoding != "latin1":
        raise _RefusedError(f"_codecs.encode for {encoding!r}")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _blank_array,
    ("numpy._core.multiarray", "_reconstruct"): _blank_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _ArrayReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _RefusedError(repr(f"{module}.{name}")) from None
