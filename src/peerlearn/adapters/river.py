"""A River classifier for images, one by one or in batches."""

# ruff: noqa: N803 - River calls a batch X, and so do those who name arguments

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from peerlearn.adapters.batches import batch_size
from peerlearn.adapters.portable import portable
from peerlearn.config.names import NET
from peerlearn.data.pictures import Picture, Pictures, pictures
from peerlearn.errors import UserError
from peerlearn.live.labels import Label, plain
from peerlearn.live.learner import Size

if TYPE_CHECKING:
    Base = object
else:
    try:
        from river.base import MiniBatchClassifier as Base
    except ImportError:  # all works without River, but for what River itself brings
        Base = object

COLUMN = "image"  # where a dict or a table of features has its images


class RiverClassifier(Base):
    """Learns images as River's classifiers learn features; one of them if River is installed.

    An image is anything that `pictures` takes, or {"image": that}. A batch is anything that it
    takes, a list of such dicts, or a table with a column "image". Labels may be strings, numbers or
    tuples; nobody has to announce them.

    A step needs a batch: `learn_one` keeps its images until there are `batch` of them, then learns
    these at once, and no answer knows of those that wait. `flush()` learns them now. Answers about
    many images are lists, not tables.

    Args:
        name: a method, and after a plus its wrapper.
        memory: images kept for replay.
        net: the name of a network, or a function that makes one for a number of classes.
        size: height and width of images in the network, or one number for both. None: those of the
            first batch, or 64 where these differ.
        batch: images that `learn_one` collects.
        seed: decides everything that is drawn.
        settings: more of `OpenLearner`, such as {"lr": 1e-3}; its window is 0 unless it is set.

    >>> import numpy as np
    >>> model = RiverClassifier("er", memory=50, net="small", batch=2)
    >>> dark, light = np.zeros((8, 8), np.uint8), np.full((8, 8), 255, np.uint8)
    >>> for _ in range(4):
    ...     model.learn_one({"image": dark}, "night")
    ...     model.learn_one({"image": light}, "day")
    >>> sorted(model.predict_proba_one({"image": light}))
    ['day', 'night']
    """

    def __init__(
        self,
        name: str = "er+ema-chain",
        *,
        memory: int = 1000,
        net: str | Callable[..., nn.Module] = NET,
        size: Size | None = None,
        batch: int = 10,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.memory, self.net, self.size = name, memory, net, size
        self.batch, self.seed, self.settings = batch_size(batch), seed, settings
        self.learner = portable(settings, name=name, memory=memory, net=net, size=size, seed=seed)
        self._waiting: list[tuple[Tensor, Label]] = []

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _raw_memory_usage(self) -> int:
        """Bytes, for River's `show_memory`; it cannot look into tensors."""
        waiting = sum(image.nbytes for image, _ in self._waiting)
        return sum(self.learner.learner.kept_bytes.values()) + waiting

    # --- learning

    def learn_one(self, x: Any, y: Label) -> None:
        """Keep a labelled image, and learn all that wait if they make a batch.

        If it raises, the image was not taken.
        """
        image = pictures([image_of(x)], self.learner.size).clone()  # its owner may write to it
        waiting = [*self._waiting, (image, plain(y))]
        if len(waiting) >= self.batch:
            self._learn(waiting)
            waiting = []
        self._waiting = waiting

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn a batch at once, after all that wait."""
        self.flush()
        self.learner.learn(images_of(X), y)

    def flush(self) -> None:
        """Learn the images that wait, however few."""
        if self._waiting:
            self._learn(self._waiting)
            self._waiting = []

    def _learn(self, waiting: list[tuple[Tensor, Label]]) -> None:
        self.learner.learn([image for image, _ in waiting], [label for _, label in waiting])

    # --- answering

    def predict_one(self, x: Any) -> Label:
        """The label of an image; None before the first batch."""
        return self.predict_many([image_of(x)])[0]

    def predict_proba_one(self, x: Any) -> dict[Label, float]:
        """The probability of each label; none before the first batch."""
        return self.predict_proba_many([image_of(x)])[0]

    def predict_many(self, X: Any) -> list[Label]:
        """The label of each image; None before the first batch."""
        images = images_of(X)
        if not self.learner.classes:
            return [None] * len(pictures(images, self.learner.size))
        return self.learner.predict(images)

    def predict_proba_many(self, X: Any) -> list[dict[Label, float]]:
        """The probability of each label, for each image; none before the first batch."""
        images = images_of(X)
        if not self.learner.classes:
            return [{} for _ in pictures(images, self.learner.size)]
        found = self.learner.predict_proba(images).tolist()
        labels = self.learner.classes  # another thread may have met more: they come last
        return [dict(zip(labels, row, strict=False)) for row in found]


def image_of(x: Any) -> Picture:
    """The image of what River calls a sample.

    >>> image_of({"image": "cat.png"}), image_of("cat.png")
    ('cat.png', 'cat.png')
    """
    if not isinstance(x, Mapping):
        image: Picture = x
        return image
    if COLUMN not in x:
        raise UserError(
            f"x: a dict without {COLUMN!r}, it has {', '.join(map(str, x))[:60]}; give "
            f"{{{COLUMN!r}: image}}, or the image itself"
        )
    return image_of(x[COLUMN])


def images_of(batch: Any) -> Pictures:
    """The images of a batch of samples.

    >>> images_of([{"image": "cat.png"}, {"image": "dog.png"}])
    ['cat.png', 'dog.png']
    """
    if hasattr(batch, "columns"):  # a table, of whatever library
        batch = {name: batch[name] for name in batch.columns}
    if isinstance(batch, Mapping):
        batch = image_of(batch)
    if hasattr(batch, "to_list"):  # a column of a table
        batch = batch.to_list()
    if isinstance(batch, list | tuple):
        return [image_of(x) for x in batch]
    images: Pictures = batch
    return images
