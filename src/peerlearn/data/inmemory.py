"""Image sets from what is in memory: arrays, tensors and Hugging Face data sets."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from peerlearn.data.cache import Pixels, Rows, cached_images
from peerlearn.data.decode import DECODER, MIXED, pixels_of
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

    Images are uint8, (N, 3, H, W), (N, H, W, 3) or grey (N, H, W); labels are whole numbers from 0.
    Without `class_names`, classes are called by their numbers.

    >>> x, y = np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1]
    >>> arrays(x, y, x, y, ["cat", "dog"]).train.x.shape
    torch.Size([4, 3, 8, 8])
    """
    labels = _labels(train_y, "train_y"), _labels(test_y, "test_y")
    if class_names is None:
        last = max((int(y.max()) for y in labels if len(y)), default=-1)
        class_names = [str(k) for k in range(last + 1)]
    train, test = (
        ImageSet(_channels_first(torch.as_tensor(x)), y, tuple(class_names))
        for x, y in zip((train_x, test_x), labels, strict=True)
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
    names = getattr(parts[0].features[label], "names", None)
    cut = len(parts[0])
    return arrays(x[:cut], train_y, x[cut:], test_y, names, name.rpartition("/")[2])


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
    if size is None:
        sizes = {row[image].size for part in parts for row in part}
        width, height = sizes.pop() if len(sizes) == 1 else (MIXED, MIXED)
    else:
        width = height = size

    def rows() -> Iterator[Pixels]:
        for part in parts:
            for row in part:
                yield pixels_of(row[image], height, width)

    return height, width, rows()


def _labels(y: Array | Sequence[int], argument: str) -> Tensor:
    labels = np.asarray(y)
    if labels.dtype.kind not in "iu" and len(labels):
        raise UserError(
            f"{argument}: labels must be whole numbers from 0, not {labels.dtype}; convert them"
        )
    return torch.from_numpy(labels.astype(np.int64))


def _channels_first(x: Tensor) -> Tensor:
    if x.ndim == 3:
        return x[:, None].expand(-1, 3, -1, -1)
    if x.ndim == 4 and x.shape[1] != 3 and x.shape[3] == 3:
        return x.permute(0, 3, 1, 2).contiguous()
    return x
