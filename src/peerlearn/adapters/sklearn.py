"""A scikit-learn classifier for images, learnt in one pass."""

# ruff: noqa: N803 - scikit-learn calls it X, and so do those who name arguments

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import nn

from peerlearn.adapters.batches import batch_size
from peerlearn.adapters.portable import PortableLearner, portable
from peerlearn.adapters.rows import agreed, as_images, flattened
from peerlearn.config.names import NET
from peerlearn.errors import UserError
from peerlearn.live.labels import Label

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise UserError(
        f"scikit-learn 1.6 or later is needed ({error}); run: pip install 'peerlearn[analysis]'"
    ) from None

Array = npt.NDArray[Any]


class PeerClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns images in one pass, and goes on learning with `partial_fit`.

    X is images, (N, H, W), (N, H, W, C) or (N, C, H, W), or rows (N, F) of which `image_shape` says
    what images they are; uint8, or floats in [0, 1]. Labels are of one kind that has an order:
    strings or numbers. New ones may come with any `partial_fit`.

    It is an online learner: each image passes once, so that their order matters and that few images
    teach little. The first batch of all may be kept for replay without a step. `learner_` is the
    `OpenLearner` behind it. Pickles and copies go on exactly as the original would.

    Args:
        name: a method, and after a plus its wrapper.
        memory: images kept for replay.
        net: the name of a network, or a function that makes one for a number of classes.
        image_shape: (H, W), (C, H, W) or (H, W, C) of an image that comes as a row.
        batch: images that are learnt at once.
        seed: decides everything that is drawn.
        window: images over which `learner_.recent` takes the accuracy before learning; 0: not.
        settings: more of `OpenLearner`, such as {"lr": 1e-3}. It is one parameter: a search takes
            {"settings": [{"lr": 1e-3}, {"lr": 1e-2}]}.

    >>> from peerlearn.data import toy_images
    >>> images = toy_images(num_classes=3).train
    >>> labels = np.array(["cat", "dog", "bird"])[images.y]
    >>> model = PeerClassifier("er", net="small").fit(images.x, labels)
    >>> model.classes_.tolist(), model.n_features_in_
    (['bird', 'cat', 'dog'], 192)
    >>> model.predict_proba(images.x[:5]).shape
    (5, 3)
    """

    image_shape_: tuple[int, ...]
    learner_: PortableLearner

    def __init__(
        self,
        name: str = "er+ema-chain",
        *,
        memory: int = 1000,
        net: str | Callable[..., nn.Module] = NET,
        image_shape: tuple[int, ...] | None = None,
        batch: int = 10,
        seed: int = 0,
        window: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.memory = memory
        self.net = net
        self.image_shape = image_shape
        self.batch = batch
        self.seed = seed
        self.window = window
        self.settings = settings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True  # in one pass over a few hundred rows
        return tags

    # --- learning

    def fit(self, X: Any, y: Any) -> Self:
        """Learn every image once, in order, in batches, and forget what was learnt before.

        If it raises, nothing is forgotten.
        """
        fresh = copy.copy(self)  # reading X notes what its features are
        images, labels = fresh._checked(X, y, begins=True)
        in_order(labels)
        fresh.learner_ = self._learnt(self._new(), images, labels)
        self.__dict__ = fresh.__dict__
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with more images, in order, in batches; the first call begins.

        classes: labels to be known from the first call on. They need not be announced, and later
        calls bring new ones with y alone. If it raises while it learns, the batches before are
        learnt.
        """
        begins = not hasattr(self, "learner_")
        images, labels = self._checked(X, y, begins=begins)
        told = [] if classes is None else np.asarray(classes).tolist()
        known = told if begins else self.learner_.classes
        in_order([*known, *labels])
        for late in set(told) - {*known, *labels}:
            raise UserError(
                f"classes: {late!r:.60} was not there at the first call; leave it out, it will be "
                "met in y"
            )
        learner = self._new(labels=told) if begins else self.learner_
        self.learner_ = self._learnt(learner, images, labels)
        return self

    def _new(self, labels: Iterable[Label] = ()) -> PortableLearner:
        return portable(
            self.settings,
            name=self.name,
            memory=self.memory,
            net=self.net,
            labels=labels,
            seed=self.seed,
            window=self.window,
        )

    def _learnt(
        self, learner: PortableLearner, images: Array, labels: list[Label]
    ) -> PortableLearner:
        size = batch_size(self.batch)
        for start in range(0, len(images), size):
            learner.learn(images[start : start + size], labels[start : start + size])
        return learner

    # --- answering

    @property
    def classes_(self) -> Array:
        """The labels so far, sorted; columns of `predict_proba` are in this order."""
        return in_order(self.learner_.classes)

    def predict(self, X: Any) -> Array:
        """The label of each image, (N,)."""
        images, learner = self._images(X), self.learner_  # another thread may fit anew
        found = learner.predict(images)
        return np.asarray(found, dtype=in_order(learner.classes).dtype)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (N, C), in the order of `classes_`."""
        images, learner = self._images(X), self.learner_
        found = learner.predict_proba(images).double()
        found /= found.sum(dim=1, keepdim=True)  # as close to 1 as scikit-learn wants it
        labels: list[Any] = learner.classes[: found.shape[1]]  # more may have come meanwhile
        columns = sorted(range(len(labels)), key=labels.__getitem__)
        answer: Array = found[:, columns].cpu().numpy()
        return answer

    # --- reading

    def _images(self, X: Any) -> Array:
        check_is_fitted(self, "learner_")
        rows, shape = flattened(X)
        rows = validate_data(self, rows, reset=False)
        return as_images(rows, agreed(shape, self.image_shape_))

    def _checked(self, X: Any, y: Any, *, begins: bool) -> tuple[Array, list[Label]]:
        """Images and labels. begins: whether they say what all later ones must be."""
        rows, shape = flattened(X)
        rows, labels = validate_data(self, rows, y, reset=begins)
        check_classification_targets(labels)
        shape = agreed(shape, self.image_shape if begins else self.image_shape_)
        images = as_images(rows, shape)
        self.image_shape_ = shape
        return images, labels.tolist()


def in_order(labels: Iterable[Label]) -> Array:
    """Each label once, sorted.

    >>> in_order(["dog", "cat", "dog"]).tolist()
    ['cat', 'dog']
    """
    each: Any = set(labels)
    try:
        return np.array(sorted(each))
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in each}))
        raise UserError(f"y: labels of kinds without an order ({kinds}); make them one") from None
