from pathlib import Path

import numpy as np
import pytest
import torch

from peerlearn.data import images as images_module
from peerlearn.data.images import Dataset, ImageSet, content_digest
from peerlearn.errors import UserError


def images_of(labels: list[int], names: tuple[str, ...] = ("a", "b", "c")) -> ImageSet:
    """Image i has the value i everywhere."""
    x = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2)
    return ImageSet(x, torch.tensor(labels, dtype=torch.int64), names)


def numbers(images: ImageSet) -> list[int]:
    return images.x[:, 0, 0, 0].tolist()


def test_a_set_knows_its_length_and_its_classes() -> None:
    images = images_of([0, 2, 0])
    assert (len(images), images.num_classes) == (3, 3)


def test_classes_are_selected_in_stored_order_under_their_old_labels() -> None:
    chosen = images_of([2, 0, 1, 2, 0]).of_classes([2, 0])
    assert numbers(chosen) == [0, 1, 3, 4]
    assert chosen.y.tolist() == [2, 0, 2, 0]


def test_a_mask_selects_like_row_numbers() -> None:
    images = images_of([0, 1, 2])
    by_mask = images.take(images.y != 1)
    assert numbers(by_mask) == numbers(images.take(torch.tensor([0, 2]))) == [0, 2]


def test_the_first_images_of_every_class_keep_their_stored_order() -> None:
    assert numbers(images_of([2, 0, 2, 1, 1, 2, 0, 1, 0]).first_per_class(2)) == [0, 1, 2, 3, 4, 6]


@pytest.mark.parametrize("n", [0, 2])
def test_more_images_per_class_than_there_are_is_an_error_that_says_how_many(n: int) -> None:
    with pytest.raises(UserError, match=f"cannot take {n} .* from 1 to 1"):
        images_of([0, 0, 1, 2]).first_per_class(n)


def test_an_unknown_class_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="no class 3; classes are 0 to 2"):
        images_of([0]).of_classes([0, 3])


def test_a_set_may_be_empty() -> None:
    assert len(images_of([0]).of_classes([1])) == 0


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64), "uint8, not .* float32"),
        (torch.zeros(2, 4, 4, 3, dtype=torch.uint8), torch.zeros(2).long(), r"\(N, 3, H, W\)"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3).long(), "one label per image"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2), "int64, not .* float32"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]), "from 0 to 2"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, -1]), "from -1 to 0"),
    ],
)
def test_images_and_labels_that_do_not_fit_are_refused(
    x: torch.Tensor, y: torch.Tensor, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ImageSet(x, y, ("a", "b"))


def test_images_may_stay_in_a_memory_map(tmp_path: Path) -> None:
    pixels = np.memmap(tmp_path / "x.bin", np.uint8, "w+", shape=(4, 3, 2, 2))
    pixels[3] = 7
    images = ImageSet(torch.from_numpy(pixels), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    assert images.x.data_ptr() == pixels.ctypes.data
    assert numbers(images.of_classes([1])) == [0, 7]


def pair(x: torch.Tensor, y: list[int], names: tuple[str, ...] = ("a", "b")) -> Dataset:
    part = ImageSet(x, torch.tensor(y), names)
    return Dataset(part, part.take(torch.arange(len(y) - 1)), "pair")


def test_a_digest_changes_with_one_pixel_one_label_one_name_and_the_form() -> None:
    x = torch.zeros(4, 3, 2, 4, dtype=torch.uint8)
    other = x.clone()
    other[3, 2, 1, 3] = 1
    digests = [
        content_digest(data)
        for data in (
            pair(x, [0, 1, 0, 1]),
            pair(other, [0, 1, 0, 1]),  # one pixel of the last training image
            pair(x, [0, 1, 0, 0]),
            pair(x, [0, 1, 0, 1], ("a", "c")),
            pair(x, [0, 1, 0, 1], ("a,", "b")),
            pair(x.view(4, 3, 4, 2), [0, 1, 0, 1]),
            Dataset(pair(x, [0, 1, 0, 1]).train, pair(other, [0, 1, 0, 1]).train, "pair"),
        )
    ]
    assert len(set(digests)) == len(digests)


def test_a_digest_does_not_depend_on_where_the_pixels_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.arange(5 * 3 * 4 * 4, dtype=torch.uint8).view(5, 3, 4, 4)
    y = [0, 1, 0, 1, 1]
    mapped = np.memmap(tmp_path / "x.bin", np.uint8, "w+", shape=(5, 3, 4, 4))
    mapped[:] = x.numpy()
    channels_last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    whole = content_digest(pair(x, y))
    assert content_digest(pair(torch.from_numpy(mapped), y)) == whole
    assert content_digest(pair(channels_last, y)) == whole
    monkeypatch.setattr(images_module, "CHUNK", 100)  # two images at once, then one too many
    assert content_digest(pair(x, y)) == whole


def test_a_data_set_unpacks_into_its_parts_and_its_name() -> None:
    data = pair(torch.zeros(2, 3, 2, 2, dtype=torch.uint8), [0, 1])
    train, test, name = data
    assert (train, test, name, data.notes) == (data.train, data.test, "pair", ())
