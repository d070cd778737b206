"""Small image files for tests, and a cache of their own."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(name="cache_dir", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests that import this away from the user's cache and data."""
    folder = tmp_path_factory.mktemp("home") / "cache"
    monkeypatch.setenv("PEERLEARN_CACHE", str(folder))
    monkeypatch.delenv("PEERLEARN_DATA", raising=False)
    return folder


def picture(seed: int, height: int = 8, width: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def draw(path: Path, seed: int = 0, height: int = 8, width: int = 8, grey: bool = False) -> Path:
    """Write one image; PNG keeps its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(picture(seed, height, width))
    (image.convert("L") if grey else image).save(path)
    return path


def draw_classes(root: Path, counts: dict[str, int], suffix: str = "png") -> None:
    """Write `counts[name]` images of class `name`, numbered from 0 in one go."""
    number = 0
    for name, count in counts.items():
        for i in range(count):
            draw(root / name / f"{i:03}.{suffix}", number)
            number += 1


def write_tiny(parent: Path) -> Path:
    """Two classes, three training and two test images each; one of each kind is grey."""
    root = parent / "tiny-imagenet-200"
    for wnid in ("n02", "n01"):
        for i in range(3):
            path = root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            draw(path, i, 64, 64, grey=i == 1)
    rows = []
    for i in range(4):
        draw(root / "val" / "images" / f"val_{i}.JPEG", 9 + i, 64, 64, grey=i == 3)
        rows.append(f"val_{i}.JPEG\tn0{1 + i % 2}\t0\t0\t63\t63\n")
    (root / "val" / "val_annotations.txt").write_text("".join(rows))
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "words.txt").write_text("n00\tentity\nn01\ttench, Tinca tinca\nn02\tgoldfish\n")
    return root
