"""Snapshots: immutable states of a learner, with which it predicts."""

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from peerlearn.data.user_arrays import Array, checked_images
from peerlearn.devices import RestoreTorchModes, moved
from peerlearn.distill.distillation import Networks
from peerlearn.distill.teachers.base import Teacher
from peerlearn.errors import UserError
from peerlearn.memory.base import Memory
from peerlearn.methods.class_means import ClassMeans
from peerlearn.methods.interface import Method, images
from peerlearn.nets.base import average_weights, copy_network, share_network, tensors_of
from peerlearn.peer import Peer, PeerModel

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

EVAL_BATCH = 250  # images per forward

R = TypeVar("R")


class Outputs(NamedTuple):
    """The outputs of networks for some images: the logits of each, (B, C), and mean features."""

    logits: list[Tensor]
    features: Tensor | None  # (B, D); None unless asked for


class NoMemoryImagesError(UserError):
    """A snapshot has no images of the memory, of which features or class means are wanted."""


class MemoryFeatures(NamedTuple):
    """The features (N, D) and labels (N,) of the images in memory."""

    features: Tensor
    labels: Tensor


class Snapshot:
    """The networks of a learner as they were at one moment, to predict with from any thread.

    It is immutable: whatever the learner learns afterwards, it predicts the same. Networks have
    parameters and buffers of their own; modules and methods that a module keeps, alone or in a
    list, tuple, dict or partial, are of the same copy. What a network reaches in another way (by a
    closure, an object that is no module, a container within another) stays the live one, and so do
    tensors that are neither parameters nor buffers.

    Args:
        learner: whose present state it takes; `learner.snapshot()` never does so within a step.

    Attributes:
        version: of the learner at that moment.
        num_classes: that are predicted; a network may have rows for more, which are untrained.
        image_shape: (3, H, W) of the images so far, None before the first.
        source: the networks that predict: "peers", "ema" or "average".
        by_means: whether classes and logits are those of the nearest class means.

    >>> from peerlearn import StreamInfo, build_learner
    >>> learner = build_learner("er", StreamInfo(num_classes=4), "small", memory=50)
    >>> x, y = torch.rand(10, 3, 8, 8), torch.arange(10) % 4
    >>> _ = learner.learn(x, y)
    >>> before = learner.snapshot()
    >>> _ = learner.learn(x, y)
    >>> before.logits(x).shape, before.version, learner.version
    (torch.Size([10, 4]), 1, 2)
    """

    @torch.inference_mode(mode=False)  # what is made there could not be renewed
    def __init__(self, learner: "OnlineLearner") -> None:
        self.source: Networks = "peers"
        self.by_means = False
        self._sources, self._pairs = learner.predictors.sources, learner.predictors.pairs
        self._pool = learner.prediction_pool
        self._networks = {
            source: [copy_network(network) for network in networks]
            for source, networks in learner.predictors.by_source.items()
        }
        self._tensors = [*map(tensors_of, chain(*self._networks.values()))]
        self._outputs: tuple[Array, Outputs] | None = None
        self._views: dict[tuple[Networks, bool], Snapshot] = {}  # what `using` returned
        # filled on demand, and shared by all that `using` returns
        self._rows: list[tuple[Tensor, Tensor]] = []  # one: images and labels of the memory
        self._means: dict[Networks, ClassMeans] = {}
        self._averaging, self._computing_means = threading.Lock(), threading.Lock()
        self.renew(learner, [])

    @torch.no_grad()
    def renew(self, learner: "OnlineLearner", tensors: Sequence[list[Tensor]]) -> None:
        """Take the learner's present state in place, while the snapshot is not used.

        tensors: of each of its networks; none if the copies are of the present state.
        """
        for own, present in zip(self._tensors, tensors, strict=True) if tensors else ():
            torch._foreach_copy_(own, present)
        self.version, self.image_shape = learner.version, learner.image_shape
        self.memory_changes, self.device = learner.memory.changes, learner.device
        self._distance = learner.ncm_distance
        self.method = copy.copy(learner.method)  # its stream may learn of more classes
        self.num_classes = self.method.stream.num_classes

    @property
    def is_used(self) -> bool:
        """Whether a view of it may be held, or it holds images of the memory."""
        return bool(self._views or self._rows)

    # --- which networks, and what they have at hand

    def using(self, networks: Networks, *, means: bool = False) -> "Snapshot":
        """Return the same state, in which these networks predict, or class means of their features.

        Class means predict if there are images of the memory, see `keep_memory`.
        """
        if networks not in self._sources:
            choices = " or ".join(self._sources)
            raise UserError(f"snapshot: unknown source {networks!r:.40}; choose {choices}")
        by_means = means and self.has_memory
        if (networks, by_means) not in self._views:
            self._views[networks, by_means] = view = copy.copy(self)
            view.source, view.by_means, view._views = networks, by_means, {}
        return self._views[networks, by_means]

    @property
    def models(self) -> Sequence[PeerModel]:
        """The networks that predict; the mean of their outputs counts."""
        with self._averaging:
            if self.source == "average" and "average" not in self._networks:
                averages = [copy_network(self._networks["peers"][peer]) for peer, _ in self._pairs]
                for middle, (_, ema) in zip(averages, self._pairs, strict=True):
                    average_weights(middle, self._networks["ema"][ema])
                self._networks["average"] = averages
            return self._networks[self.source]

    def keep_memory(self, memory: Memory) -> None:
        """Copy the images and labels of the memory, which is in the same state as the networks."""
        if not self._rows:
            self._rows.append((memory["x"].clone(), memory["y"].clone()))

    @property
    def has_memory(self) -> bool:
        """Whether it has the images of the memory, which class means are made of."""
        return bool(self._rows)

    @property
    def has_own_rule(self) -> bool:
        """Whether it predicts otherwise than by the largest logit: by a rule of the method's."""
        return not self.by_means and has_own_rule(self.method)

    def with_outputs(self, x: Array, outputs: Outputs) -> "Snapshot":
        """Return the same networks, with their outputs for `x` (this object) at hand."""
        kept = copy.copy(self)
        kept._outputs = (x, outputs)
        return kept

    # --- predicting

    def predict(self, x: Array) -> Tensor:
        """Return the class of each image, (B,): by the method's rule, or by class means.

        A rule that compares with images of the memory gives way to the largest logit while there
        are none, as class means do.
        """
        raw: Any = x if self._at_hand(x) else checked_images(x, self.image_shape)
        if self.by_means:
            return self.nearest_mean(raw)
        try:
            return self.method.predict(self, raw)
        except NoMemoryImagesError:
            if not self.method.gives_logits:
                raise
            return Method.predict(self.method, self, raw)

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """Return the mean of the networks' logits, (B, C), or one peer's."""
        if peer is None and self.by_means:
            return self.class_means().logits(self.features(x), self.num_classes)
        if peer is None and (kept := self._at_hand(x)) and kept.logits:
            return torch.stack(kept.logits).mean(dim=0)
        return self.all_logits(x, peer)[:, : self.num_classes]

    def all_logits(self, x: Array, peer: int | None = None) -> Tensor:
        """Return the same with every row of the networks, also with those that are untrained."""
        if peer is not None and not 0 <= peer < len(self.models):
            raise UserError(f"peer must be from 0 to {len(self.models) - 1}, got {peer}")
        return _mean(self._forward(x, PeerModel.logits, peer))

    def features(self, x: Array) -> Tensor:
        """Return the mean of the networks' features, (B, D)."""
        if (kept := self._at_hand(x)) and kept.features is not None:
            return kept.features.clone()  # a method may work in place
        return _mean(self._forward(x, PeerModel.features))

    def outputs(self, x: Array, *, features: bool = True) -> Outputs:
        """Return the logits of each network and mean features, of one pass over the images.

        features: whether they are wanted; a network without `classify` computes them anew.
        """

        def output(model: PeerModel, pixels: Tensor) -> tuple[Tensor, ...]:
            return model.answers(pixels) if features else (model.logits(pixels),)

        found = self._forward(x, output)
        known = slice(self.num_classes)
        logits = [torch.cat([own[0] for own in one])[:, known] for one in zip(*found, strict=True)]
        means = _mean([[own[1] for own in part] for part in found]) if features else None
        return Outputs(logits, means)

    def nearest_mean(self, x: Array) -> Tensor:
        """Return the class of the nearest class mean, (B,).

        Means are of the features of the images in memory, so only classes that it holds can be
        predicted.
        """
        return self.class_means().nearest(self.features(x))

    def class_means(self) -> ClassMeans:
        """Return the class means of the images in memory, computed at the first call."""
        with self._computing_means:
            if self.source not in self._means:
                self._means[self.source] = ClassMeans.of_images(
                    *self._memory_rows(), self.features, self.num_classes, self._distance
                )
            return self._means[self.source]

    def memory_features(self) -> MemoryFeatures:
        """Return the features and labels of all images in memory, on the device of the outputs."""
        x, y = self._memory_rows()
        return MemoryFeatures(self.features(x), moved(y, self.device))

    def _at_hand(self, x: Array) -> Outputs | None:
        return self._outputs[1] if self._outputs is not None and x is self._outputs[0] else None

    def _memory_rows(self) -> tuple[Tensor, Tensor]:
        if not self._rows:
            raise NoMemoryImagesError(
                "features of the memory: there are none; keep an image first, and take "
                "learner.snapshot(memory=True)"
            )
        return self._rows[0]

    def _forward(
        self, x: Array, forward: Callable[[PeerModel, Tensor], R], peer: int | None = None
    ) -> list[list[R]]:
        """Return what each network gives, or one peer's, for each part of the images."""
        raw = checked_images(x, self.image_shape)
        models = self.models if peer is None else [self.models[peer]]
        models = [share_network(model) for model in models]  # one that keeps results keeps its own

        def by_model(part: Tensor) -> list[R]:
            pixels = images(moved(part, self.device))

            def one(model: PeerModel) -> R:
                return forward(model, pixels)

            return moved(self._pool.map(one, models), self.device)

        devices = {model.device for model in models}
        with RestoreTorchModes(*devices), torch.no_grad():
            return [by_model(part) for part in raw.split(EVAL_BATCH)]


class Predictors(NamedTuple):
    """The networks of a learner that can predict.

    Args:
        by_source: "peers" and, where there are some, "ema".
        pairs: for each peer the numbers, in `by_source`, of itself and of its EMA copy.
    """

    by_source: Mapping[Networks, Sequence[PeerModel]]
    pairs: Sequence[tuple[int, int]]

    @property
    def sources(self) -> tuple[Networks, ...]:
        """The names of networks that can predict: "average" is half-way between the others."""
        return ("peers", "ema", "average") if self.pairs else ("peers",)


def predictors_of(peers: Sequence[Peer], teachers: Mapping[str, Teacher]) -> Predictors:
    """Return the peers and, of the first teacher that has some, their EMA copies."""
    by_source: dict[Networks, Sequence[PeerModel]] = {"peers": [peer.model for peer in peers]}
    pairs: list[tuple[int, int]] = []
    for name, teacher in teachers.items():
        copies = teacher.ema_copies
        if teacher.is_ema and len(copies) != len(peers):
            raise UserError(
                f"teacher {name!r}: ema_copies must hold a network for each of "
                f"{len(peers)} peers, and holds {len(copies)}"
            )
        if not {*copies} <= {*teacher.networks}:
            raise UserError(f"teacher {name!r}: ema_copies must be among its networks")
        if teacher.is_ema and not pairs:
            by_source["ema"] = unique = [*dict.fromkeys(copies)]  # peers may share one
            pairs = [(i, unique.index(copied)) for i, copied in enumerate(copies)]
    return Predictors(by_source, pairs)


def has_own_rule(method: Method[Any]) -> bool:
    """Return whether a method predicts otherwise than by the largest logit."""
    return type(method).predict is not Method.predict


def _mean(outputs: list[list[Tensor]]) -> Tensor:
    """Return the mean over networks, (B, ...). outputs: by part of the images and network."""
    return torch.cat([torch.stack(part).mean(dim=0) for part in outputs])
