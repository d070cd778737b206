"""The data sets of a command: each is read once, and told from others by every pixel."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from peerlearn.data import DATASETS, find, load
from peerlearn.data.images import Dataset, content_digest
from peerlearn.experiment.resolve import Resolved
from peerlearn.files import user_path

PIXELS = "pixels-"  # before a fingerprint that counts them


class Images(NamedTuple):
    """A data set, where it lies, and what tells it from others."""

    data: Dataset
    place: str
    fingerprint: str
    old_fingerprint: str

    def are_those_of(self, fingerprint: str) -> bool:
        """Whether a run with this fingerprint was made on these images."""
        ours = self.fingerprint if fingerprint.startswith(PIXELS) else self.old_fingerprint
        return fingerprint == ours


class Loader:
    """Reads data sets and digests their pixels, once for all runs of a command.

    Args:
        root: where named data sets lie, if not in the usual places.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self._known: dict[tuple[str, int | None], Images] = {}

    def __call__(self, run: Resolved, progress: Callable[[int, int], None]) -> Images:
        """The images of a run."""
        name, size = str(run.values["data"]), run.stream.image_size
        if (name, size) not in self._known:
            data = load(name, self.root, size=size, progress=progress)
            place = find(name, self.root) if name in DATASETS else user_path(name)
            self._known[name, size] = Images(
                data,
                os.path.realpath(str(place)),
                f"{PIXELS}{content_digest(data)[:32]}",
                fingerprint_without_pixels(data),
            )
        return self._known[name, size]


def fingerprint_without_pixels(data: Dataset) -> str:
    """What runs of earlier versions have: it tells labels, names and sizes apart, not pixels."""
    digest = hashlib.sha256(repr((data.train.class_names, data.train.x.shape)).encode())
    for part in (data.train, data.test):
        digest.update(part.y.numpy().tobytes())
    return digest.hexdigest()[:16]
