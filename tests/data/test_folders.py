from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import draw, draw_classes, own_cache, picture, write_tiny  # noqa: F401
from PIL import Image

from peerlearn.data import image_folder, imagenet100, tiny_imagenet
from peerlearn.data.places import imagenet100_classes
from peerlearn.errors import UserError


def as_stored(seed: int) -> np.ndarray:
    return picture(seed).transpose(2, 0, 1)


def test_tiny_imagenet_numbers_its_classes_by_wnids_and_tests_on_the_validation_part(
    tmp_path: Path,
) -> None:
    write_tiny(tmp_path)
    train, test, name = tiny_imagenet(tmp_path)
    assert (name, train.class_names) == ("tiny", ("goldfish", "tench"))
    assert train.x.shape == (6, 3, 64, 64)
    assert train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert test.y.tolist() == [0, 0, 1, 1]
    with Image.open(tmp_path / "tiny-imagenet-200/val/images/val_1.JPEG") as image:
        assert np.array_equal(test.x[0], np.asarray(image).transpose(2, 0, 1))  # val_1 is n02


def test_grey_images_get_three_equal_channels(tmp_path: Path) -> None:
    train = tiny_imagenet(write_tiny(tmp_path)).train
    equal = (train.x[:, :1] == train.x).flatten(1).all(1)
    assert equal.tolist() == [False, True, False] * 2


@pytest.mark.parametrize("lost", ["wnids.txt", "words.txt", "val/val_annotations.txt"])
def test_a_missing_list_of_tiny_imagenet_is_named(tmp_path: Path, lost: str) -> None:
    root = write_tiny(tmp_path)
    (root / lost).unlink()
    with pytest.raises(UserError, match=f"{lost}: missing .*peerlearn data get tiny"):
        tiny_imagenet(root)


def test_a_missing_image_of_tiny_imagenet_is_named(tmp_path: Path) -> None:
    root = write_tiny(tmp_path)
    (root / "val/images/val_2.JPEG").unlink()
    with pytest.raises(UserError, match=r"val_2\.JPEG: the file is missing; delete"):
        tiny_imagenet(root)


def test_an_annotation_without_a_class_is_named_by_its_line(tmp_path: Path) -> None:
    root = write_tiny(tmp_path)
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn01\nval_1.JPEG\n")
    with pytest.raises(UserError, match=r"val_annotations\.txt: line 2 names no class"):
        tiny_imagenet(root)


def test_imagenet100_takes_its_hundred_classes_sorted_and_resizes_to_224(tmp_path: Path) -> None:
    wnids = imagenet100_classes()
    assert len(set(wnids)) == 100
    for i, wnid in enumerate([*wnids, "n99999999"]):  # one class more than wanted
        draw(tmp_path / "train" / wnid / "a.JPEG", i, 10, 20)
        draw(tmp_path / "val" / wnid / "b.JPEG", i, 20, 10)
    train, test, name = imagenet100(tmp_path)
    assert (name, train.class_names) == ("imagenet100", tuple(wnids))
    assert train.x.shape == test.x.shape == (100, 3, 224, 224)
    assert train.y.tolist() == test.y.tolist() == list(range(100))
    with Image.open(tmp_path / "train" / wnids[7] / "a.JPEG") as image:
        plain = image.resize((224, 224), Image.Resampling.BILINEAR)
    assert np.array_equal(train.x[7], np.asarray(plain).transpose(2, 0, 1))


def test_a_class_that_an_imagenet_folder_lacks_is_named(tmp_path: Path) -> None:
    first = imagenet100_classes()[0]
    with pytest.raises(UserError, match=f"train/{first}: no images here; an ImageNet folder needs"):
        imagenet100(tmp_path)


@pytest.mark.parametrize("part", ["test", "val"])
def test_a_folder_with_a_test_part_keeps_its_parts(tmp_path: Path, part: str) -> None:
    draw_classes(tmp_path / "pets" / "train", {"dog": 2, "cat": 3})
    draw_classes(tmp_path / "pets" / part, {"dog": 1, "cat": 2})
    train, test, name = image_folder(tmp_path / "pets")
    assert (name, train.class_names) == ("pets", ("cat", "dog"))
    assert train.y.tolist() == [0, 0, 0, 1, 1]
    assert test.y.tolist() == [0, 0, 1]
    assert np.array_equal(train.x[3], as_stored(0))  # dogs were drawn first
    assert np.array_equal(test.x[2], as_stored(0))


def test_without_a_test_part_every_fifth_image_of_a_class_is_for_testing(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"cat": 11, "dog": 3})
    train, test, _ = image_folder(tmp_path)
    assert [train.y.bincount().tolist(), test.y.bincount().tolist()] == [[9, 2], [2, 1]]
    expected = torch.from_numpy(np.stack([as_stored(i) for i in (4, 9, 13)]))
    assert torch.equal(test.x, expected)


def test_a_train_folder_alone_is_split_too(tmp_path: Path) -> None:
    draw_classes(tmp_path / "train", {"cat": 5, "dog": 5})
    assert image_folder(tmp_path).test.y.tolist() == [0, 1]


def test_images_keep_their_size_if_all_agree(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        draw(tmp_path / name, height=6, width=9)
    assert image_folder(tmp_path).train.x.shape == (2, 3, 6, 9)


def test_images_that_differ_in_size_become_64_by_64_or_the_size_asked_for(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    draw(tmp_path / "b" / "other.png", height=9)
    assert image_folder(tmp_path).test.x.shape[2:] == (64, 64)
    assert image_folder(tmp_path, size=16).test.x.shape[2:] == (16, 16)


def test_files_at_any_depth_count_and_what_is_no_image_does_not(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    draw(tmp_path / "a" / "deeper" / "more.PNG")
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "a" / "._000.png").write_text("left by macOS")
    (tmp_path / ".git").mkdir()
    train, test, _ = image_folder(tmp_path)
    assert len(train) + len(test) == 5


def test_sixteen_bit_grey_and_palette_and_transparent_images_become_rgb(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    deep = np.full((8, 8), 0x80FF, np.uint16)
    Image.fromarray(deep).save(tmp_path / "a" / "0.png")
    Image.fromarray(picture(1)).convert("P").save(tmp_path / "a" / "1.gif")
    Image.fromarray(picture(1)).convert("RGBA").save(tmp_path / "a" / "2.png")
    train = image_folder(tmp_path).train
    assert train.x[0].unique().tolist() == [0x80]
    assert len(train) == 5


@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_a_corrupt_jpeg_among_good_ones_is_named_and_leaves_no_cache(
    tmp_path: Path, cache_dir: Path, damage: str
) -> None:
    draw_classes(tmp_path / "in", {"a": 5, "b": 5}, "jpg")
    bad = draw(tmp_path / "in" / "b" / "002.jpg", 1, 40, 40)
    whole = bad.read_bytes()
    bad.write_bytes({"cut": whole[: len(whole) // 2], "noise": b"x" * 999, "empty": b""}[damage])
    with pytest.raises(UserError, match=r"b/002\.jpg: not a readable image .*; replace") as error:
        image_folder(tmp_path / "in")
    assert "\n" not in str(error.value)
    assert not list(cache_dir.glob("images/*.npy"))
    assert not list(cache_dir.glob("images/*.part"))
    draw(bad)
    assert len(image_folder(tmp_path / "in").train) == 8


def test_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "a" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(UserError, match=r"gone\.png: cannot be read \(No such file"):
        image_folder(tmp_path)


def test_folders_that_cannot_be_a_data_set_are_errors_that_say_what_to_do(tmp_path: Path) -> None:
    def refuses(message: str) -> None:
        with pytest.raises(UserError, match=message):
            image_folder(tmp_path)

    refuses("no folders, so no images; put the images of each class into a folder of its own")
    (tmp_path / "a").mkdir()
    refuses("one folder, a, is one class; put")
    (tmp_path / "b").mkdir()
    refuses("a: no images here; add some or remove the folder")
    draw_classes(tmp_path, {"a": 1, "b": 2})
    refuses(r"a/000\.png: the only image of its class")
    draw_classes(tmp_path / "train", {"a": 1, "b": 1})
    draw_classes(tmp_path / "test", {"a": 1, "c": 1})
    refuses("test/c: this class has no training images")
    (tmp_path / "test" / "c").rename(tmp_path / "train" / "c")
    draw(tmp_path / "test" / "b" / "0.png")
    refuses("test/c: no images here; every class needs test images")
    with pytest.raises(UserError, match="nowhere: no such folder; name one"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="size must be at least 1, not 0"):
        image_folder(tmp_path, size=0)
