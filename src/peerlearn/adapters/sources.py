"""Batches for a learner, from where people keep their images."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from peerlearn.adapters.batches import Batch, batch_size, batched
from peerlearn.errors import UserError


def from_loader(
    loader: Iterable[Any], image: str = "image", label: str = "label"
) -> Iterator[tuple[Any, Any]]:
    """The batches of a torch DataLoader, as they come: pairs, or dicts of columns.

    image, label: the keys of dicts. Images must not be normalised; of labels that are numbers the
    numbers are learnt, whatever names the data set has for them.

    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(torch.rand(6, 3, 8, 8), torch.arange(6)), batch_size=4)
    >>> [(tuple(x.shape), y.tolist()) for x, y in from_loader(loader)]
    [((4, 3, 8, 8), [0, 1, 2, 3]), ((2, 3, 8, 8), [4, 5])]
    """
    for number, batch in enumerate(loader):
        if isinstance(batch, Mapping):
            where = f"loader: batch {number}"
            yield _column(where, batch, image, "image"), _column(where, batch, label, "label")
        elif isinstance(batch, list | tuple) and len(batch) == 2:
            yield batch[0], batch[1]
        else:
            found = type(batch).__name__
            count = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
            raise UserError(
                f"loader: batch {number} is a {found}{count}, not a pair of images and labels; "
                "give a loader of pairs or dicts, or pairs made of yours: ((x, y) for x, y, *_ in "
                "loader)"
            )


def from_hugging_face(
    dataset: Iterable[Mapping[str, Any]],
    image: str = "image",
    label: str = "label",
    batch: int = 10,
) -> Iterator[Batch]:
    """The rows of a split of a Hugging Face data set, loaded or streamed, in batches.

    image, label: the columns. A label that has a name (`ClassLabel`) is learnt by its name.

    >>> rows = [{"image": f"{i}.png", "label": "cat"} for i in range(3)]
    >>> list(from_hugging_face(rows, batch=2))
    [(['0.png', '1.png'], ['cat', 'cat']), (['2.png'], ['cat'])]
    """
    if isinstance(dataset, Mapping):
        raise UserError(f"dataset: holds splits; choose one of {', '.join(map(str, dataset))}")
    size = batch_size(batch)
    names = getattr((getattr(dataset, "features", None) or {}).get(label), "names", None)
    return batched(_rows(dataset, image, label, names), size)


def _rows(
    dataset: Iterable[Mapping[str, Any]], image: str, label: str, names: list[str] | None
) -> Iterator[tuple[Any, Any]]:
    for number, row in enumerate(dataset):
        where = f"dataset: row {number}"
        found, y = _column(where, row, image, "image"), _column(where, row, label, "label")
        if found is None or y is None or (names is not None and int(y) < 0):  # -1: none is known
            what = "image" if found is None else "label"
            raise UserError(f"{where} has no {what}; filter such rows out before")
        yield found, y if names is None else names[int(y)]


def _column(where: str, columns: Mapping[str, Any], name: str, argument: str) -> Any:
    if name not in columns:
        known = ", ".join(map(str, columns))
        raise UserError(f"{where}: no column {name!r}; give {argument}=, one of {known}")
    return columns[name]
