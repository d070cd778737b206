"""CIFAR-10 and CIFAR-100 from their official Python files.

The files are pickles, which can run any code when they are loaded; `read_plain` runs none.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.pickles import ForbiddenError, NotPlainError, read_plain
from peerlearn.errors import UserError
from peerlearn.files import Unreadable, read_bytes

PIXELS = 3 * 32 * 32
MAX_BYTES = 1 << 29  # the largest official file has a third of that
MAX_NAMES, LONGEST_NAME = 1000, 200


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
    if (
        not isinstance(names, list)
        or not 0 < len(names) <= MAX_NAMES
        or not all(map(_is_name, names))
    ):
        raise UserError(f"{path}: {layout.names} is not a list of names; {layout.remedy}")
    return tuple(map(_text, names))


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
    if isinstance(labels, np.ndarray) and len(labels) == len(data):
        labels = labels.tolist()
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(k) is int and 0 <= k < num_classes for k in labels)
    ):
        raise UserError(
            f"{path}: {layout.labels} are not {len(data)} whole numbers "
            f"from 0 to {num_classes - 1}; {layout.remedy}"
        )
    return data, labels


def _read(path: Path, layout: _Layout) -> dict[str, Any]:
    try:
        content = read_plain(_bytes(path, layout))
    except ForbiddenError as forbidden:
        raise UserError(
            f"{path}: asks to load {forbidden}, which no CIFAR file needs and which may be "
            f"harmful; delete it and {layout.remedy}"
        ) from None
    except NotPlainError as error:
        raise UserError(f"{path}: cannot be read ({error}); {layout.remedy}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no dictionary; {layout.remedy}")
    return {_text(key): value for key, value in content.items()}


def _bytes(path: Path, layout: _Layout) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES)
    except Unreadable as error:
        raise UserError(f"{path}: {error}, no CIFAR file; {layout.remedy}") from None
    except FileNotFoundError:
        raise UserError(f"{path}: the file is missing; {layout.remedy}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {layout.remedy}") from error


def _is_name(value: object) -> bool:
    return (
        isinstance(value, str | bytes) and len(value) <= LONGEST_NAME and _text(value).isprintable()
    )


def _text(value: str | bytes) -> str:
    """Python 2 wrote the official files: its texts arrive as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else value
