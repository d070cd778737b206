import warnings
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
    "x",
    [
        X[:, :1],
        X[:, :1].transpose(0, 2, 3, 1),
        X[:, 0],
        X[:, 0] / 255,
        X[:, 0].astype(np.int64),
        torch.from_numpy(X[:, :1] / 255).float(),
        np.ascontiguousarray(X[:, 0, ::-1])[:, ::-1],
    ],
)
def test_grey_images_and_other_numbers_are_understood(x: Any) -> None:
    train = arrays(x, [0, 1], X, [0, 1]).train
    assert torch.equal(train.x, torch.from_numpy(X[:, :1]).expand(-1, 3, -1, -1))


def test_images_that_are_mapped_read_only_stay_so(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings(action="error"):
        train = arrays(mapped, [0, 1], X, [0, 1]).train
    assert train.x.data_ptr() == mapped.ctypes.data


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, [0.5, 1.0], r"train_y: labels are float64 of shape \(2,\); give a whole number"),
        (X, [0.0, 1.0], r"labels are float64; give np\.asarray\(train_y, np\.int64\)"),
        (X, [False, True], r"labels are bool; give np\.asarray\(train_y, np\.int64\)"),
        (X, ["cat", "dog"], "train_y: labels are texts; number them: names, train_y = np.unique"),
        (X, np.array(["cat", "dog"], object), "train_y: labels are texts; number them"),
        (X, np.eye(2), r"labels are rows \(2, 2\); if they are one-hot, give np\.argmax\(train_y"),
        (X, [[0], [1]], r"labels are a column \(2, 1\); give np\.reshape\(train_y, -1\)"),
        (X, 1, r"labels are int64 of shape \(\); give a whole number from 0 per image"),
        (X, [[0], [1, 2]], "train_y: cannot be made an array .*; convert it"),
        (X, [-1, 0], "labels run from -1 to 0"),
        (X, [0], "labels of 2 images"),
        (X / 1, [0, 1], r"train_x: images are float64 from 0 to 119; give np\.rint\(train_x\)"),
        (X - 9.0, [0, 1], "images are float64 from -9 to 110; if they were normalised, give them"),
        (X * np.nan, [0, 1], "images are float64 from nan to nan"),
        (X.astype(np.uint16) << 8, [0, 1], r"from 0 to 3.046e\+04; if they have 16 bits, give"),
        (X.astype(str), [0, 1], "train_x: images are <U3; give uint8, or floats from 0 to 1"),
        (np.stack([X[:, 0]] * 4, 1), [0, 1], r"without transparency it is train_x\[:, :3\]"),
        (np.zeros((2, 5, 5, 4), np.uint8), [0, 1], r"it is train_x\[\.\.\., :3\]"),
        (np.zeros((2, 3072), np.uint8), [0, 1], r"give train_x\.reshape\(-1, 3, 32, 32\)"),
        (np.zeros((2, 784), np.uint8), [0, 1], r"give train_x\.reshape\(-1, 28, 28\)"),
        (np.zeros((2, 9, 9, 2), np.uint8), [0, 1], r"not \(2, 9, 9, 2\); convert them"),
        ([X[0], X[0, :, 1:]], [0, 1], "train_x: cannot be made an array .*; convert it"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_advice(x: Any, y: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        arrays(x, y, X, [0, 1])
    assert str(error.value).isprintable()


def test_the_advice_for_texts_works() -> None:
    train_y, test_y = ["dog", "cat"], ["dog", "dog"]
    names, train_y = np.unique(train_y, return_inverse=True)
    test_y = np.searchsorted(names, test_y)
    train, test, _ = arrays(X, train_y, X, test_y, class_names=names)
    assert train.class_names == ("cat", "dog")
    assert (train.y.tolist(), test.y.tolist()) == ([1, 0], [1, 1])


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
    splits = {"train": Split([0, 1, 4]), "validation": Split([2, 3], height=9)}
    for _ in range(2):  # decoded, then from the cache
        data = huggingface(splits, test="validation")
        assert data.train.x.shape[2:] == (64, 64)
        assert data.notes == (
            "image 0 of validation is 8 x 9 and 1 more differ too, most are 8 x 8: "
            "all became 64 x 64; another size: --image-size N, size=N in Python",
        )
    asked = huggingface(splits, test="validation", size=5)
    assert (asked.test.x.shape[2:], asked.notes) == ((5, 5), ())


def test_a_size_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="size must be from 1 to 4096, not -3; leave it out"):
        huggingface({"train": Split([0, 1]), "test": Split([2])}, size=-3)


def test_hugging_face_labels_that_are_texts_are_refused_with_advice() -> None:
    train = Split([0, 1])
    for row in train.rows:
        row["kind"] = "cat"
    with pytest.raises(UserError, match=r"texts; number them with data\.class_encode_column\("):
        huggingface({"train": train, "test": train})


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
