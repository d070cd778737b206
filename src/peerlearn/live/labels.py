"""Labels of any kind, numbered as they arrive."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from peerlearn.errors import UserError
from peerlearn.files import LARGEST

DEEPEST = 8  # tuples within tuples
PAIRED = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")  # JSON gives one character back for two

Label = str | int | float | bool | None | tuple[Any, ...]


class LabelMap(Sequence[Label]):
    """Labels in the order of their arrival; a number, once given, stays.

    A label is what JSON can hold and give back: a string, a number, True, False, None, or a tuple
    of such. As in a dictionary, 1, 1.0 and True are the same label.

    Args:
        labels: those that are known, each once.

    >>> labels = LabelMap(["cat", "dog"])
    >>> more, numbers = labels.numbered(["dog", ("big", "cat"), "dog"])
    >>> numbers.tolist(), more[2], len(labels)
    ([1, 2, 1], ('big', 'cat'), 2)
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise UserError(f"labels: need a list of those that are known, got {labels!r:.60}")
        self._labels = tuple(map(plain, labels))
        self._numbers = {label: number for number, label in enumerate(self._labels)}
        if len(self._numbers) < len(self._labels):
            raise UserError("labels: some are there twice; name each class once")

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: Any) -> Any:
        return self._labels[number]

    def numbered(self, labels: Any) -> tuple["LabelMap", Tensor]:
        """A map that knows these labels too, and their numbers, (B,)."""
        found = [plain(label) for label in as_list(labels)]
        new = [label for label in dict.fromkeys(found) if label not in self._numbers]
        known = LabelMap([*self._labels, *new]) if new else self
        return known, torch.tensor([known._numbers[label] for label in found], dtype=torch.int64)

    def to_json(self) -> list[Any]:
        """As a checkpoint holds them."""
        return [_to_json(label) for label in self._labels]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> "LabelMap":
        """The map whose `to_json()` this was."""
        return cls(_from_json(value) for value in found)


def as_list(labels: Any) -> list[Any]:
    """The labels of a batch: of a list, a tuple, an array, a tensor; of one image its label.

    >>> as_list(np.array(["cat", "dog"])), as_list("cat")
    (['cat', 'dog'], ['cat'])
    """
    if isinstance(labels, Tensor | np.ndarray | np.generic) or hasattr(labels, "to_list"):
        if getattr(labels, "ndim", 1) > 1:
            shape = tuple(labels.shape)
            hint = "take y[:, 0]" if shape[1:] == (1,) else "of one-hot rows take y.argmax(1)"
            raise UserError(f"labels: need one for each image, got shape {shape}; {hint}")
        try:
            labels = labels.to_list() if hasattr(labels, "to_list") else labels.tolist()
        except RuntimeError as error:  # a tensor of another layout, or without values
            raise UserError("labels: need a plain tensor with values in it") from error
    return list(labels) if isinstance(labels, list | tuple) else [labels]


def plain(label: Any, depth: int = 0) -> Label:
    """A label as Python's own kinds, refused if a checkpoint could not hold it."""
    if isinstance(label, np.generic | Tensor) and getattr(label, "ndim", 0) == 0:
        label = label.item()
    if isinstance(label, tuple):
        if depth == DEEPEST:
            raise UserError(f"labels: a tuple holds tuples over {DEEPEST} deep; give flatter ones")
        return tuple(plain(one, depth + 1) for one in label)
    if isinstance(label, float) and not math.isfinite(label):
        raise UserError(f"labels: {label} is no label; drop those images")
    if isinstance(label, int) and abs(label) >= LARGEST:
        raise UserError("labels: a number has over 300 digits; give it as a string")
    if isinstance(label, str) and PAIRED.search(label):
        raise UserError(f"labels: {label!r:.60} holds halves of a character; join them")
    if label is None or type(label) in (str, int, float, bool):
        return label  # type: ignore[no-any-return]
    if isinstance(label, str):  # of a kind of its own, such as an enumeration
        return str.__str__(label)
    if isinstance(label, int):
        return int.__int__(label)
    raise UserError(
        f"labels: {label!r:.60} is a {type(label).__name__}, which a checkpoint cannot hold; give "
        "strings, numbers, or tuples of them"
    )


def _to_json(label: Label) -> Any:
    return {"tuple": [_to_json(one) for one in label]} if isinstance(label, tuple) else label


def _from_json(value: Any) -> Label:
    if isinstance(value, dict) and isinstance(value.get("tuple"), list):
        return tuple(_from_json(one) for one in value["tuple"])
    return plain(value)
