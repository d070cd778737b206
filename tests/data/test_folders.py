import os
import struct
import warnings
import zlib
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


def test_a_class_may_begin_with_an_underscore(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"_other": 2, "a": 2})
    assert image_folder(tmp_path).train.class_names == ("_other", "a")


def test_a_train_folder_alone_is_split_too(tmp_path: Path) -> None:
    draw_classes(tmp_path / "train", {"cat": 5, "dog": 5})
    assert image_folder(tmp_path).test.y.tolist() == [0, 1]


def test_it_is_said_that_images_were_resized_and_split_also_when_they_are_decoded_already(
    tmp_path: Path,
) -> None:
    draw_classes(tmp_path, {"a": 5, "b": 5})
    draw(tmp_path / "b" / "odd.png", height=9)
    for _ in range(2):
        assert image_folder(tmp_path).notes == (
            "b/odd.png is 8 x 9, most are 8 x 8: all became 64 x 64; "
            "another size: --image-size N, size=N in Python",
            "no test/ folder: every fifth image of a class is for testing (2 of 11)",
        )
    assert image_folder(tmp_path, size=8).notes == (
        "no test/ folder: every fifth image of a class is for testing (2 of 11)",
    )


def test_where_nothing_was_decided_nothing_is_said(tmp_path: Path) -> None:
    for part in ("train", "test"):
        draw_classes(tmp_path / part, {"a": 2, "b": 2})
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "train" / "a" / "Thumbs.db").touch()
    draw(tmp_path / "train" / "__MACOSX" / "a" / "0.png")
    draw(tmp_path / "train" / "a" / ".thumbnails" / "0.png")
    data = image_folder(tmp_path)
    assert (len(data.train), data.train.class_names, data.notes) == (4, ("a", "b"), ())


def test_images_of_many_sizes_are_said_to_be_so(tmp_path: Path) -> None:
    for i, name in enumerate(("a/1.png", "a/2.png", "b/1.png", "b/2.png")):
        draw(tmp_path / name, height=6 + i, width=9)
    (note, _) = image_folder(tmp_path).notes
    assert note.startswith("images differ in size, such as 9 x 6 and 9 x 8: all became 64 x 64;")


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    for part in ("train", "test", "val"):
        draw_classes(tmp_path / part, {"a": 2, "b": 2})
    assert image_folder(tmp_path).notes == ("not used: val",)
    (tmp_path / "train" / "a" / "IMG_1.HEIC").touch()
    draw(tmp_path / "train" / "loose.png")
    assert image_folder(tmp_path).notes == ("not used: train/a/IMG_1.HEIC and 2 more",)


def test_parts_by_other_names_are_not_taken_for_classes(tmp_path: Path) -> None:
    for part in ("Train", "Test"):
        draw_classes(tmp_path / part, {"a": 2, "b": 2})
    with pytest.raises(UserError, match=r"/Test: a part, not a class; call the parts .*/train and"):
        image_folder(tmp_path)
    (tmp_path / "Train").rename(tmp_path / "train")
    assert image_folder(tmp_path).notes[1] == "not used: Test"


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


def png_head(width: int, height: int) -> bytes:
    """A few bytes that declare an image of this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_193, 10_000, 100_000])
@pytest.mark.parametrize("size", [None, 8])
def test_a_small_file_that_declares_a_huge_image_is_refused(
    tmp_path: Path, side: int, size: int | None
) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "b" / "bomb.png").write_bytes(png_head(side, side))
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(UserError, match=r"b/bomb\.png: over 67 million pixels; make it smaller or"),
    ):
        image_folder(tmp_path, size=size)


def test_the_first_frame_of_several_is_taken(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    frames = [Image.fromarray(picture(seed)) for seed in (7, 8)]
    frames[0].save(tmp_path / "a" / "00.tif", save_all=True, append_images=frames[1:])
    assert np.array_equal(image_folder(tmp_path).train.x[0], as_stored(7))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("program.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"),
        ("cut.png", png_head(8, 8)[:40]),
        ("short.png", png_head(800, 800)),
    ],
)
def test_what_is_no_image_of_the_known_formats_is_refused(
    tmp_path: Path, name: str, content: bytes
) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "a" / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}: not a readable image \(.*\); replace"):
        image_folder(tmp_path, size=8)


def test_pixels_of_32_bits_are_refused_with_advice(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "a" / "deep.tif")
    with pytest.raises(UserError, match=r"a/deep\.tif: pixels of 32 bits .*; save .* with 8 bits"):
        image_folder(tmp_path)


def test_images_with_transparency_keep_their_colours(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    clear = np.dstack([picture(5), np.zeros((8, 8), np.uint8)])
    Image.fromarray(clear).save(tmp_path / "a" / "000.png")
    indexed = Image.fromarray(picture(6) // 64 * 64).convert("P")
    indexed.save(tmp_path / "b" / "000.png", transparency=bytes(range(256)))
    with warnings.catch_warnings(action="error"):
        train = image_folder(tmp_path).train
    assert np.array_equal(train.x[0], as_stored(5))


def test_a_pipe_among_the_images_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    os.mkfifo(tmp_path / "a" / "pipe.png")
    with pytest.raises(UserError, match=r"a/pipe\.png: not a file; remove it"):
        image_folder(tmp_path)


def test_names_that_cannot_be_printed_do_no_harm(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"bad \xff\n")
    draw_classes(root, {"a": 2, "b": 2})
    draw(root / "a" / os.fsdecode(b"\xfe\n.png"), 1, 9, 9)
    data = image_folder(root)
    assert (len(data.train), len(data.test)) == (3, 2)
    assert all(note.isprintable() for note in data.notes)
    assert data.notes[0].startswith(r"'a/\udcfe\n.png' is 9 x 9, most are 8 x 8")
    (root / "a").rename(root / "two\nlines")
    with pytest.raises(UserError, match=r"class 'two\\nlines' cannot be printed") as error:
        image_folder(root)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("wnid", ["../../etc", "..", "", "n02", "/etc", "n01/images"])
def test_strange_class_ids_of_tiny_imagenet_are_named_by_their_line(
    tmp_path: Path, wnid: str
) -> None:
    root = write_tiny(tmp_path)
    (root / "wnids.txt").write_text(f"n02\n{wnid}\n")
    with pytest.raises(UserError, match=r"wnids\.txt: line 2 names no class of its own; delete"):
        tiny_imagenet(root)


def test_annotations_reach_no_other_folder(tmp_path: Path) -> None:
    root = write_tiny(tmp_path)
    (root / "val/val_annotations.txt").write_text("../../../etc/passwd\tn01\n")
    with pytest.raises(UserError, match=r"etc/passwd: the file is missing; delete"):
        tiny_imagenet(root)


def test_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    draw_classes(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "a" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(UserError, match=r"gone\.png: cannot be read \(No such file"):
        image_folder(tmp_path)


def test_folders_that_cannot_be_a_data_set_are_errors_that_say_what_to_do(tmp_path: Path) -> None:
    def refuses(message: str) -> None:
        with pytest.raises(UserError, match=message):
            image_folder(tmp_path)

    refuses("there are no folders in it; put the images of each class into a folder of its own")
    (tmp_path / "a").mkdir()
    refuses("one folder, a, is one class; put")
    (tmp_path / "b").mkdir()
    refuses("a: no images here; add some or remove the folder")
    (tmp_path / "a" / "IMG_1.HEIC").touch()
    refuses(r"a: no images here, only files like .*HEIC; add some or remove the folder")
    draw_classes(tmp_path, {"a": 1, "b": 2})
    refuses(r"a/000\.png: the only image of its class")
    draw_classes(tmp_path / "train", {"a": 1, "b": 1})
    draw_classes(tmp_path / "test", {"a": 1})
    refuses("test/b: no images here; every class needs test images; add some")
    draw_classes(tmp_path / "test", {"a": 1, "c": 1})
    refuses("test/c: this class has no training images")
    (tmp_path / "test" / "c").rename(tmp_path / "train" / "c")
    draw(tmp_path / "test" / "b" / "0.png")
    refuses("test/c: no images here; every class needs test images")
    with pytest.raises(UserError, match="nowhere: no such folder; name one"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="size must be from 1 to 4096, not 0"):
        image_folder(tmp_path, size=0)
