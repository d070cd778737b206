from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import own_cache, picture  # noqa: F401
from PIL import Image as PILImage

from peerlearn.data import arrays, huggingface
from peerlearn.errors import UserError

X = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)


@pytest.mark.parametrize("x", [X, torch.from_numpy(X), X.transpose(0, 2, 3, 1)])
def test_arrays_may_have_their_channels_first_or_last(x: Any) -> None:
    train, test, name = arrays(x, [0, 1], x, np.array([1, 0], np.uint8), ["cat", "dog"])
    assert (name, train.class_names) == ("arrays", ("cat", "dog"))
    assert torch.equal(train.x, torch.from_numpy(X))
    assert test.y.tolist() == [1, 0]


def test_grey_arrays_get_three_channels() -> None:
    assert torch.equal(arrays(X[:, 0], [0, 1], X, [0, 1]).train.x[:, 2], torch.from_numpy(X[:, 0]))


def test_classes_without_names_are_called_by_their_numbers() -> None:
    assert arrays(X, [0, 1], X, torch.tensor([2, 0])).train.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, [0.5, 1.0], "train_y: labels must be whole numbers from 0, not float64; convert"),
        (X, ["cat", "dog"], "train_y: labels must be whole numbers from 0, not <U3; convert"),
        (X, [-1, 0], "labels run from -1 to 0"),
        (X, [0], "labels of 2 images"),
        (X / 255, [0, 1], r"images must be \(N, 3, H, W\) uint8, not .*float64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(x: Any, y: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        arrays(x, y, X, [0, 1])


class Image:
    """Stands in for datasets.Image."""


class ClassLabel:
    """Stands in for datasets.ClassLabel."""

    names = ("cat", "dog")


class Split:
    """What is used of datasets.Dataset."""

    features = {"id": object(), "img": Image(), "kind": ClassLabel()}  # noqa: RUF012

    def __init__(self, seeds: list[int], height: int = 8) -> None:
        self.rows = [
            {"id": s, "img": PILImage.fromarray(picture(s, height)), "kind": s % 2} for s in seeds
        ]
        self._fingerprint = f"{seeds} {height}"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        return [row[column] for row in self.rows]


def test_the_columns_of_a_hugging_face_data_set_are_found_by_their_types() -> None:
    for _ in range(2):  # decoded, then from the cache
        train, test, _ = huggingface({"train": Split([0, 1, 2]), "test": Split([3])})
        assert train.class_names == ("cat", "dog")
        assert [train.y.tolist(), test.y.tolist()] == [[0, 1, 0], [1]]
        assert np.array_equal(test.x[0], picture(3).transpose(2, 0, 1))


def test_hugging_face_images_that_differ_in_size_become_64_by_64_or_as_asked() -> None:
    splits = {"train": Split([0, 1]), "validation": Split([2, 3], height=9)}
    assert huggingface(splits, test="validation").train.x.shape[2:] == (64, 64)
    assert huggingface(splits, test="validation", size=5).test.x.shape[2:] == (5, 5)


def test_a_split_or_column_that_is_not_there_is_named() -> None:
    splits = {"train": Split([0, 1]), "valid": Split([2])}
    with pytest.raises(UserError, match="no split 'test'; choose from train, valid"):
        huggingface(splits)
    with pytest.raises(UserError, match="no column 'y'; choose from id, img, kind"):
        huggingface(splits, test="valid", label="y")


def test_without_the_library_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UserError, match=r"run: pip install 'peerlearn\[hf\]'"):
        huggingface("mnist")


def test_a_real_hugging_face_data_set_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {"image": [PILImage.fromarray(picture(s)) for s in (0, 1)], "label": [0, 1]}
    split = datasets.Dataset.from_dict(rows, features=features)
    split.save_to_disk(tmp_path / "split")
    data = huggingface({"train": split, "test": split})
    assert np.array_equal(data.test.x[1], picture(1).transpose(2, 0, 1))
