"""Batches of loaders and of Hugging Face data sets reach a learner as they are."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from peerlearn import UserError, toy_images
from peerlearn.adapters import from_hugging_face, from_loader
from peerlearn.live import OpenLearner

TOY = toy_images().train
NAMES = ["fox", "ant", "cow", "bee"]
PIL = [Image.fromarray(x) for x in np.moveaxis(TOY.x.numpy(), 1, -1)]


class Rows(Dataset[Any]):
    """Rows as dicts, which a loader makes dicts of columns of."""

    def __len__(self) -> int:
        return 25

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"pixels": TOY.x[i], "label": NAMES[TOY.y[i]], "id": i}


def learner() -> OpenLearner:
    return OpenLearner("er", net="small", memory=40, window=0)


def learnt(batches: Any) -> OpenLearner:
    taught = learner()
    for images, labels in batches:
        taught.learn(images, labels)
    return taught


# ---- loaders


def test_batches_of_a_loader_are_learnt_as_the_images_themselves() -> None:
    loaded = learnt(from_loader(DataLoader(TensorDataset(TOY.x, TOY.y), batch_size=20)))
    wanted = learnt(zip(TOY.x.split(20), TOY.y.split(20), strict=True))
    assert loaded.classes == [0, 1, 2, 3]
    assert torch.equal(loaded.predict_proba(TOY.x), wanted.predict_proba(TOY.x))


def test_a_loader_of_dicts_is_told_its_columns() -> None:
    batches = [*from_loader(DataLoader(Rows(), batch_size=10), image="pixels")]
    assert [len(labels) for _, labels in batches] == [10, 10, 5]
    assert torch.equal(torch.cat([images for images, _ in batches]), TOY.x[:25])
    assert learnt(batches).classes == NAMES


def test_a_loader_without_these_columns_is_refused() -> None:
    with pytest.raises(
        UserError, match="batch 0: no column 'image'; give image=, one of pixels, label, id"
    ):
        next(from_loader(DataLoader(Rows(), batch_size=10)))


@pytest.mark.parametrize("given", [(TOY.x, TOY.y, TOY.y), (TOY.x,)])
def test_a_loader_of_other_than_pairs_is_refused(given: Any) -> None:
    loader = DataLoader(TensorDataset(*given), batch_size=10)
    with pytest.raises(UserError, match=rf"batch 0 is a list of {len(given)}, not a pair"):
        next(from_loader(loader))


def test_a_loader_of_bare_tensors_is_refused() -> None:
    with pytest.raises(UserError, match="batch 0 is a Tensor, not a pair"):
        next(from_loader(DataLoader(TOY.x, batch_size=2)))  # two rows are no pair


# ---- Hugging Face


@pytest.fixture
def dataset() -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
    )
    rows = {"image": PIL[:25], "label": TOY.y[:25].tolist()}
    return datasets.Dataset.from_dict(rows, features=features)


def check(batches: Any) -> None:
    batches = [*batches]
    assert [len(images) for images, _ in batches] == [10, 10, 5]
    assert [label for _, labels in batches for label in labels] == [NAMES[k] for k in TOY.y[:25]]
    wanted = learnt((TOY.x[i : i + 10], [NAMES[k] for k in TOY.y[i : i + 10]]) for i in (0, 10))
    found = learnt(batches[:2])
    assert torch.equal(found.predict_proba(TOY.x), wanted.predict_proba(TOY.x))


def test_rows_of_hugging_face_are_learnt_by_the_names_of_their_classes(dataset: Any) -> None:
    assert isinstance(dataset[0]["image"], Image.Image)
    check(from_hugging_face(dataset))


def test_a_stream_of_hugging_face_gives_the_same(dataset: Any) -> None:
    check(from_hugging_face(dataset.to_iterable_dataset()))


def test_rows_that_are_tensors_give_the_same(dataset: Any) -> None:
    check(from_hugging_face(dataset.with_format("torch")))


def test_columns_and_batches_are_as_they_are_told(dataset: Any) -> None:
    renamed = dataset.rename_columns({"image": "photo", "label": "species"})
    batches = from_hugging_face(renamed, image="photo", label="species", batch=20)
    assert [len(labels) for _, labels in batches] == [20, 5]
    with pytest.raises(
        UserError, match="row 0: no column 'image'; give image=, one of photo, species"
    ):
        next(from_hugging_face(renamed))


def test_splits_are_to_be_chosen_from(dataset: Any) -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(UserError, match="holds splits; choose one of train, test"):
        from_hugging_face(datasets.DatasetDict(train=dataset, test=dataset))


def test_a_row_without_a_label_is_named(dataset: Any) -> None:
    unlabelled = dataset.select(range(12)).map(
        lambda _, i: {"label": -1 if i == 11 else 0}, with_indices=True
    )
    batches = from_hugging_face(unlabelled)
    next(batches)
    with pytest.raises(UserError, match="row 11 has no label; filter such rows out"):
        next(batches)


def test_labels_without_names_are_learnt_as_they_are() -> None:
    rows = [{"image": image, "label": label} for image, label in zip(PIL[:4], "abab", strict=True)]
    assert learnt(from_hugging_face(rows)).classes == ["a", "b"]
    with pytest.raises(UserError, match="row 0 has no image"):
        next(from_hugging_face([{"image": None, "label": 0}]))
    with pytest.raises(UserError, match="batch: must be"):
        from_hugging_face(rows, batch=0)
