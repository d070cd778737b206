"""`mini`: real CIFAR-10 images that come with the package. Made by scripts/make_mini.py."""

import numpy as np
import torch
from PIL import Image

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.places import SHEET as SHEET
from peerlearn.errors import UserError

SIDE, COLUMNS = 32, 100
TRAIN, TEST = 300, 100  # images per class
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def mini() -> Dataset:
    """Read the first 300 training and 100 test images of each class of CIFAR-10.

    Classes take turns in the stored order.

    >>> train, test, name = mini()
    >>> train.x.shape, len(test), train.class_names[train.y[3]]
    (torch.Size([3000, 3, 32, 32]), 1000, 'cat')
    """
    try:
        with Image.open(SHEET) as image:
            sheet = np.asarray(image.convert("RGB"))
    except OSError as error:
        raise UserError(
            f"{SHEET}: cannot be read ({error}); install peerlearn again, and a Pillow with WebP"
        ) from error
    grid = sheet.reshape(-1, SIDE, COLUMNS, SIDE, 3).transpose(0, 2, 4, 1, 3)
    by_class = torch.from_numpy(grid.reshape(len(NAMES), TRAIN + TEST, 3, SIDE, SIDE))
    in_turns = by_class.transpose(0, 1)  # (image of its class, class, 3, 32, 32)
    y = torch.arange(len(NAMES))
    return Dataset(
        ImageSet(in_turns[:TRAIN].flatten(0, 1), y.repeat(TRAIN), NAMES),
        ImageSet(in_turns[TRAIN:].flatten(0, 1), y.repeat(TEST), NAMES),
        "mini",
    )
