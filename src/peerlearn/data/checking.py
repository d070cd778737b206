"""Is a data set whole? Every image is read; what is published is counted."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple

import torch

from peerlearn.data import DATASETS
from peerlearn.data.images import ImageSet
from peerlearn.data.places import Progress
from peerlearn.data.sources import known, load, where
from peerlearn.errors import UserError
from peerlearn.files import user_path


class Report(NamedTuple):
    """What a data set holds; `str(report)` is for people."""

    name: str
    place: str
    size: tuple[int, int]  # height, width
    class_names: tuple[str, ...]
    train: tuple[int, ...]  # images per class
    test: tuple[int, ...]
    notes: tuple[str, ...] = ()  # what was decided while reading it

    def __str__(self) -> str:
        height, width = self.size
        lines = (
            f"{self.name}: whole",
            f"place    {self.place}",
            f"classes  {len(self.class_names)}",
            f"images   {width} x {height} pixels",
            f"train    {_counts(self.train)}",
            f"test     {_counts(self.test)}",
            *(f"note     {note}" for note in self.notes),
        )
        return "\n".join(lines)


def check(
    data: str | PathLike[str],
    root: str | PathLike[str] | None = None,
    *,
    size: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read a whole data set, named as for `load`, and report its counts; raise if it has a fault.

    A set that is published must have the published number of images. Images whose bytes were
    decoded before are not decoded again.

    >>> print(check("mini"))  # doctest: +ELLIPSIS
    mini: whole
    place    ...mini.webp
    classes  10
    images   32 x 32 pixels
    train    3000, 300 per class
    test     1000, 100 per class
    """
    dataset = load(data, root, size=size, progress=progress)
    named = str(data) in DATASETS
    place = where(str(data), root) if named else user_path(data)
    source = known(dataset.name) if dataset.name in DATASETS else None
    if source and (named or source.is_at(place)):
        _compare(place, dataset.name, "training", len(dataset.train), source.train)
        _compare(place, dataset.name, "test", len(dataset.test), source.test)
    height, width = dataset.train.x.shape[2:]
    return Report(
        dataset.name,
        str(place),
        (height, width),
        dataset.train.class_names,
        _per_class(dataset.train),
        _per_class(dataset.test),
        dataset.notes,
    )


def _compare(place: Path, name: str, part: str, found: int, published: int | None) -> None:
    if published is not None and found != published:
        raise UserError(
            f"{place}: not whole: {found} {part} images of {published}; "
            f"delete the folder and get {name} again"
        )


def _per_class(images: ImageSet) -> tuple[int, ...]:
    return tuple(torch.bincount(images.y, minlength=images.num_classes).tolist())


def _counts(per_class: tuple[int, ...]) -> str:
    low, high = min(per_class), max(per_class)
    return f"{sum(per_class)}, {low if low == high else f'{low} to {high}'} per class"
