"""ImageSet: uint8 images, their labels and the names of the classes."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from peerlearn.errors import UserError

CHUNK = 1 << 24  # bytes that are digested at once


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images; label k is the class `class_names[k]`.

    Args:
        x: images, (N, 3, H, W) uint8; may be backed by a memory map.
        y: labels, (N,) int64.
        class_names: the name behind every label.

    >>> x, y = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1])
    >>> len(ImageSet(x, y, ("cat", "dog")).of_classes([1]))
    1
    """

    x: Tensor
    y: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.x.dtype != torch.uint8 or self.x.ndim != 4 or self.x.shape[1] != 3:
            raise UserError(f"images must be (N, 3, H, W) uint8, not {_form(self.x)}; convert them")
        if self.y.dtype != torch.int64 or self.y.shape != self.x.shape[:1]:
            raise UserError(
                f"labels of {len(self.x)} images must be ({len(self.x)},) int64, "
                f"not {_form(self.y)}; give one label per image"
            )
        if len(self) and not 0 <= int(self.y.min()) <= int(self.y.max()) < self.num_classes:
            raise UserError(
                f"labels run from {int(self.y.min())} to {int(self.y.max())} but there are "
                f"{self.num_classes} class names; number the classes from 0 and name each one"
            )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def num_classes(self) -> int:
        """How many classes there are, with or without images."""
        return len(self.class_names)

    def take(self, rows: Tensor) -> Self:
        """Return the images at `rows`, (n,) int64 or a mask (N,) bool; only they are copied."""
        return type(self)(self.x[rows], self.y[rows], self.class_names)

    def of_classes(self, classes: Iterable[int]) -> Self:
        """Return all images of these classes, in stored order and under their old labels."""
        wanted = list(classes)
        unknown = [k for k in wanted if not 0 <= k < self.num_classes]
        if unknown:
            raise UserError(f"no class {unknown[0]}; classes are 0 to {self.num_classes - 1}")
        return self.take(torch.isin(self.y, torch.tensor(wanted, dtype=torch.int64)))

    def first_per_class(self, n: int) -> Self:
        """Return the first `n` images of every class, in stored order."""
        per_class = [(self.y == k).nonzero()[:, 0] for k in range(self.num_classes)]
        fewest = min(map(len, per_class), default=0)
        if not 1 <= n <= fewest:
            raise UserError(f"cannot take {n} images of every class; choose from 1 to {fewest}")
        return self.take(torch.cat([rows[:n] for rows in per_class]).sort().values)


@dataclass(frozen=True)
class Dataset:
    """A training set and a test set of the same classes; `train, test, name = data` unpacks it.

    Args:
        train: images to learn from.
        test: images to be tested on.
        name: of the data set.
        notes: what was decided while reading it, in sentences for the user.

    >>> from peerlearn.data import toy_images
    >>> train, test, name = toy_images()
    >>> name
    'toy'
    """

    train: ImageSet
    test: ImageSet
    name: str
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter((self.train, self.test, self.name))


def content_digest(data: Dataset) -> str:
    """Tell data sets apart: SHA-256 of class names, labels and every pixel, not of the name.

    Pixels are read in pieces, from a memory map too; a gigabyte takes about 0.6 s.
    """
    digest = hashlib.sha256()
    for part in (data.train, data.test):
        head = json.dumps([part.class_names, part.x.shape])
        digest.update(f"{head}\n".encode())
        digest.update(part.y.cpu().numpy().tobytes())
        rows = max(1, CHUNK // max(1, part.x[:1].numel()))
        for piece in part.x.split(rows):
            digest.update(piece.cpu().reshape(-1).numpy())
    return digest.hexdigest()


def _form(x: Tensor) -> str:
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"
