import hashlib
import time
from pathlib import Path

import pytest
import torch

from peerlearn.data import mini
from peerlearn.data.embedded import SHEET
from peerlearn.errors import UserError


def test_mini_is_small_enough_to_come_with_the_package() -> None:
    assert SHEET.stat().st_size <= 8_000_000


def test_mini_has_equally_many_images_of_ten_classes_that_take_turns() -> None:
    train, test, name = mini()
    assert (name, train.num_classes) == ("mini", 10)
    assert train.y.bincount().tolist() == [300] * 10
    assert test.y.bincount().tolist() == [100] * 10
    assert train.y[:12].tolist() == [*range(10), 0, 1]


def test_mini_has_the_very_pixels_of_cifar10() -> None:
    """The digests come from the first 300 and 100 images per class of the official files."""
    train, test, _ = mini()
    digests = [
        hashlib.sha256(images.of_classes([label]).x.numpy().tobytes()).hexdigest()[:16]
        for images, label in ((train, 0), (train, 9), (test, 3))
    ]
    assert digests == ["92237dba2c6106a5", "87d726d43c74a4a9", "3708c0dae02db7b1"]


def test_no_image_is_there_twice() -> None:
    train, test, _ = mini()
    both = torch.cat([images.x.flatten(1) for images in (train, test)])
    assert len({row.numpy().tobytes() for row in both}) == 4000


def test_mini_is_read_in_a_moment() -> None:
    start = time.process_time()
    mini()
    assert time.process_time() - start < 1


def test_a_damaged_sheet_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "mini.webp"
    monkeypatch.setattr("peerlearn.data.embedded.SHEET", bad)
    for content in (b"", SHEET.read_bytes()[:10_000]):
        bad.write_bytes(content)
        with pytest.raises(UserError, match=r"mini\.webp: cannot be read .*; install peerlearn"):
            mini()
