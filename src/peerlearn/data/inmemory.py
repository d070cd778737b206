"""Image sets from what is in memory: arrays, tensors and Hugging Face data sets."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from peerlearn.data.cache import Pixels, Rows, as_tensor, cached_images, cached_text
from peerlearn.data.decode import (
    DECODER,
    MIXED,
    Size,
    check_size,
    common_size,
    pixels_of,
    size_note,
)
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError

Array = Tensor | npt.NDArray[Any]


def arrays(
    train_x: Array,
    train_y: Array | Sequence[int],
    test_x: Array,
    test_y: Array | Sequence[int],
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """Make a data set of arrays or tensors.

    Images are (N, 3, H, W), (N, H, W, 3) or grey, with one channel or without; uint8, other whole
    numbers up to 255, or floats from 0 to 1. Labels are whole numbers from 0. Without
    `class_names`, classes are called by their numbers.

    >>> x, y = np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1]
    >>> arrays(x, y, x, y, ["cat", "dog"]).train.x.shape
    torch.Size([4, 3, 8, 8])
    """
    labels = _labels(train_y, "train_y"), _labels(test_y, "test_y")
    if class_names is None:
        last = max((int(y.max()) for y in labels if len(y)), default=-1)
        class_names = [str(k) for k in range(last + 1)]
    images = _images(train_x, "train_x"), _images(test_x, "test_x")
    train, test = (
        ImageSet(x, y, tuple(class_names)) for x, y in zip(images, labels, strict=True)
    )
    return Dataset(train, test, name)


def huggingface(
    data: Any,
    *,
    train: str = "train",
    test: str = "test",
    image: str | None = None,
    label: str | None = None,
    size: int | None = None,
    **options: Any,
) -> Dataset:
    """Read a Hugging Face data set: its name, or a mapping of loaded splits.

    `train` and `test` name the splits, `image` and `label` the columns; without them, the first
    column of images and the first of class labels. `size` is as in `image_folder`. `options` go to
    `datasets.load_dataset`. Needs: pip install 'peerlearn[hf]'.
    """
    name = data if isinstance(data, str) else "huggingface"
    check_size(name, size)
    splits = _fetch(data, options) if isinstance(data, str) else data
    for split in (train, test):
        if split not in splits:
            raise UserError(f"{name}: no split {split!r}; choose from {', '.join(splits)}")
    parts = [splits[train], splits[test]]
    image = image or _column(name, "image", parts[0], "Image")
    label = label or _column(name, "label", parts[0], "ClassLabel")
    for column in (image, label):
        if column not in parts[0].features:
            known = ", ".join(parts[0].features)
            raise UserError(f"{name}: no column {column!r}; choose from {known}")
    # a fingerprint of the library names the content of a split and all that was done to it
    marks = [str(part._fingerprint) for part in parts]
    key = hashlib.sha256("\n".join([DECODER, *marks, image, str(size)]).encode()).hexdigest()[:32]
    count = sum(map(len, parts))
    x = cached_images(key, count, lambda: _decode(parts, image, size))
    train_y, test_y = (list(part[label]) for part in parts)
    if train_y and isinstance(train_y[0], str):
        raise UserError(
            f"{name}: the labels in column {label!r} are texts; "
            f"number them with data.class_encode_column({label!r})"
        )
    names = getattr(parts[0].features[label], "names", None)
    cut = len(parts[0])
    dataset = arrays(x[:cut], train_y, x[cut:], test_y, names, name.rpartition("/")[2])
    if size is not None or x.shape[2:] != (MIXED, MIXED):
        return dataset
    shown = [f"image {i} of {s}" for s in (train, test) for i in range(len(splits[s]))]
    note = cached_text(f"{key}.sizes", lambda: size_note(shown, _sizes(parts, image)))
    return replace(dataset, notes=(note,) if note else ())


def _fetch(name: str, options: Mapping[str, Any]) -> Any:
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise UserError(
            f"{name}: Hugging Face data needs a library; run: pip install 'peerlearn[hf]'"
        ) from None
    try:
        return datasets.load_dataset(name, **options)
    except Exception as error:  # the library has many errors for "not there"
        why = " ".join(str(error).split())
        raise UserError(f"{name}: cannot be loaded ({why}); check name and network") from error


def _column(name: str, argument: str, part: Any, kind: str) -> str:
    found = [column for column, what in part.features.items() if type(what).__name__ == kind]
    if not found:
        raise UserError(
            f"{name}: no column of type {kind}; give {argument}=, one of {', '.join(part.features)}"
        )
    return str(found[0])


def _decode(parts: Sequence[Any], image: str, size: int | None) -> Rows:
    height, width = (size, size) if size else common_size(_sizes(parts, image))

    def rows() -> Iterator[Pixels]:
        for part in parts:
            for row in part:
                yield pixels_of(row[image], height, width)

    return height, width, rows()


def _sizes(parts: Sequence[Any], image: str) -> list[Size]:
    return [(row[image].height, row[image].width) for part in parts for row in part]


def _labels(given: Array | Sequence[int], argument: str) -> Tensor:
    y = _array(given, argument)
    kind = y.dtype.kind
    if y.ndim == 1 and (kind in "iu" or not y.size):
        return torch.from_numpy(y.astype(np.int64))
    if kind in "USO" and all(isinstance(label, str | bytes) for label in y.flat):
        what = (
            "texts; number them: names, train_y = np.unique(train_y, return_inverse=True); "
            "test_y = np.searchsorted(names, test_y); and give class_names=names"
        )
    elif y.ndim == 2 and y.shape[1] == 1:
        what = f"a column {y.shape}; give np.reshape({argument}, -1)"
    elif y.ndim == 2:
        what = f"rows {y.shape}; if they are one-hot, give np.argmax({argument}, 1)"
    elif y.ndim == 1 and kind in "bf" and (y % 1 == 0).all():
        what = f"{y.dtype}; give np.asarray({argument}, np.int64)"
    else:
        what = f"{y.dtype} of shape {y.shape}; give a whole number from 0 per image"
    raise UserError(f"{argument}: labels are {what}")


def _images(given: Array, argument: str) -> Tensor:
    x = _array(given, argument)
    return _channels_first(as_tensor(x if x.dtype == np.uint8 else _bytes(x, argument)), argument)


def _bytes(x: npt.NDArray[Any], argument: str) -> npt.NDArray[np.uint8]:
    """Return uint8 for other numbers, if it is certain what they mean."""
    if x.dtype.kind not in "iuf":
        raise UserError(f"{argument}: images are {x.dtype}; give uint8, or floats from 0 to 1")
    low, high = (x.min(), x.max()) if x.size else (0, 0)
    has_fractions, fits = x.dtype.kind == "f", 0 <= low <= high <= 255
    if fits and (high <= 1 or not has_fractions):
        whole: npt.NDArray[Any] = np.rint(255 * x) if has_fractions else x
        return whole.astype(np.uint8)
    if fits:
        advice = f"give np.rint({argument}).astype(np.uint8)"
    elif low >= 0 and not has_fractions:
        advice = f"if they have 16 bits, give np.asarray({argument}) >> 8"
    else:
        advice = "if they were normalised, give them as they were before"
    raise UserError(f"{argument}: images are {x.dtype} from {low:.4g} to {high:.4g}; {advice}")


def _channels_first(x: Tensor, argument: str) -> Tensor:
    match tuple(x.shape):
        case _, 3, _, _:
            return x
        case _, _, _, 3:
            return x.permute(0, 3, 1, 2).contiguous()
        case _, _, _, 1:
            return x.permute(0, 3, 1, 2).expand(-1, 3, -1, -1)
        case _, 1, _, _:
            return x.expand(-1, 3, -1, -1)
        case _, _, _:
            return x[:, None].expand(-1, 3, -1, -1)
        case _, 4, _, _:
            advice = f"without transparency it is {argument}[:, :3]"
        case _, _, _, 4:
            advice = f"without transparency it is {argument}[..., :3]"
        case _, length if length == 3 * isqrt(length // 3) ** 2:
            side = isqrt(length // 3)
            advice = f"if these are flat images, give {argument}.reshape(-1, 3, {side}, {side})"
        case _, length if length == isqrt(length) ** 2:
            side = isqrt(length)
            advice = f"if these are flat images, give {argument}.reshape(-1, {side}, {side})"
        case _:
            advice = "convert them"
    raise UserError(
        f"{argument}: images must be (N, 3, H, W), (N, H, W, 3) or (N, H, W), "
        f"not {tuple(x.shape)}; {advice}"
    )


def _array(given: Any, argument: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{argument}: cannot be made an array ({why}); convert it") from error
