"""Snapshots: immutable states of a learner, with which it predicts."""

import copy
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn.devices import RestoreTorchModes, moved
from peerlearn.distill.distillation import Networks
from peerlearn.distill.teachers.base import Teacher
from peerlearn.errors import UserError
from peerlearn.learner.inputs import Array, Distance, checked_images
from peerlearn.learner.parallel import PeerPool
from peerlearn.losses import class_means
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method, images
from peerlearn.nets.base import average_weights, copy_network, share_network
from peerlearn.peer import Peer, PeerModel

EVAL_BATCH = 250  # images per forward
MEANS_PART = 40 * EVAL_BATCH  # images of the memory whose features are there at a time

R = TypeVar("R")


class Outputs(NamedTuple):
    """The outputs of networks for some images: the logits of each, (B, C), and mean features."""

    logits: list[Tensor]
    features: Tensor | None  # (B, D); None unless asked for


class ClassMeans(NamedTuple):
    """The mean features of the classes that the memory holds.

    Args:
        classes: (K,), ascending.
        means: (K, D).
        distance: "euclidean", or "cosine": features and means are normalised to length 1.

    >>> means = ClassMeans(torch.tensor([2, 5]), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    >>> means.nearest(torch.tensor([[0.9, 0.8], [0.1, 0.0]]))
    tensor([5, 2])
    >>> means.logits(torch.tensor([[1.0, 0.0]]), num_classes=6)
    tensor([[-inf, -inf, -1., -inf, -inf, -1.]])
    """

    classes: Tensor
    means: Tensor
    distance: Distance = "euclidean"

    def nearest(self, features: Tensor) -> Tensor:
        """Return the class of the nearest mean, (B,). features: (B, D)."""
        return self.classes[self._distances(features).argmin(dim=1)]

    def logits(self, features: Tensor, num_classes: int) -> Tensor:
        """Return minus the squared distance to each class mean, (B, C); -inf without a mean."""
        squared = self._distances(features).square()
        found = squared.new_full((len(squared), num_classes), -math.inf)
        return found.index_copy_(1, self.classes, -squared)

    def _distances(self, features: Tensor) -> Tensor:
        distances: Tensor = torch.cdist(comparable(features, self.distance), self.means)
        return distances


def comparable(features: Tensor, distance: Distance) -> Tensor:
    """Return features (N, D) as a distance compares them: for cosine, normalised to length 1."""
    return F.normalize(features, dim=1) if distance == "cosine" else features


class NoMemoryImagesError(UserError):
    """A snapshot has no images of the memory, of which features or class means are wanted."""


class MemoryFeatures(NamedTuple):
    """The features (N, D) and labels (N,) of the images in memory."""

    features: Tensor
    labels: Tensor


class Snapshot:
    """The networks of a learner as they were at one moment, to predict with from any thread.

    It is immutable: whatever the learner learns afterwards, it predicts the same. Networks have
    parameters and buffers of their own, and modules and methods that a module keeps, alone or in a
    list, tuple, dict or partial, are of the same copy, hooks among them. What a network reaches in
    another way stays the live one: by a closure (`lambda x: self.layer(x)`), by an object that is
    no module, or in a container within another. Nor are tensors copied that are neither parameters
    nor buffers.

    Args:
        networks: copies in evaluation mode by source, "peers" and, where there are some, "ema".
        pairs: for each peer the numbers, in `networks`, of itself and of its EMA copy.
        method: whose rule makes a class of outputs.
        device: where outputs are, wherever the networks are.
        num_classes: that are predicted; a network may have rows for more, which are untrained.
        image_shape: (3, H, W) of the images so far, None before the first.
        pool: in which the networks compute.
        distance: of features to class means.
        version: of the learner at that moment.

    Attributes:
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

    def __init__(
        self,
        networks: Mapping[Networks, Sequence[PeerModel]],
        pairs: Sequence[tuple[int, int]],
        method: Method[Any],
        *,
        device: torch.device,
        num_classes: int,
        image_shape: tuple[int, ...] | None,
        pool: PeerPool,
        distance: Distance,
        version: int,
    ) -> None:
        self.method, self.device, self.distance = method, device, distance
        self.num_classes, self.image_shape, self.version = num_classes, image_shape, version
        self.source: Networks = "peers"
        self.by_means = False
        self._networks, self._pairs, self._pool = dict(networks), pairs, pool
        self._outputs: tuple[Array, Outputs] | None = None
        # filled on demand, and shared by all that `using` returns
        self._rows: list[tuple[Tensor, Tensor]] = []  # one: images and labels of the memory
        self._means: dict[Networks, ClassMeans] = {}
        self._averaging, self._computing_means = threading.Lock(), threading.Lock()

    # --- which networks, and what they have at hand

    def using(self, networks: Networks, *, means: bool = False) -> "Snapshot":
        """Return the same state, in which these networks predict, or class means of their features.

        Class means predict if there are images of the memory, see `keep_memory`.
        """
        known = ("peers", "ema", "average") if self._pairs else ("peers",)
        if networks not in known:
            choices = " or ".join(known)
            raise UserError(f"snapshot: unknown source {networks!r:.40}; choose {choices}")
        view = copy.copy(self)
        view.source, view.by_means = networks, means and self.has_memory
        return view

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
                self._means[self.source] = self._compute_means(*self._memory_rows())
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

    def _compute_means(self, x: Tensor, y: Tensor) -> ClassMeans:
        """Return the class means; the mean over all parts follows that of each part.

        So no more than a part is held at a time. Labels are on the CPU: counting them waits for no
        device.
        """
        means = torch.zeros((), device=self.device)
        total = y.new_zeros(self.num_classes)
        for part, labels in zip(x.split(MEANS_PART), y.split(MEANS_PART), strict=True):
            features = comparable(self.features(part), self.distance)
            found = class_means(features, moved(labels, self.device), self.num_classes)
            count = labels.bincount(minlength=self.num_classes)
            total += count
            share = moved(count / total.clamp(min=1), self.device)
            means = means + (found - means) * share[:, None]
        held: Tensor = moved(y.unique(), self.device)
        return ClassMeans(held, comparable(means[held], self.distance), self.distance)

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


class PredictingNetworks:
    """The networks of a learner that can predict: its peers and, if there are some, EMA copies.

    Args:
        peers: that learn.
        teachers: by name; the EMA copies are those of the first that has some.
    """

    def __init__(self, peers: Sequence[Peer], teachers: Mapping[str, Teacher]) -> None:
        self.by_source: dict[Networks, list[PeerModel]] = {"peers": [peer.model for peer in peers]}
        self.pairs: list[tuple[int, int]] = []  # the numbers of a peer and of its EMA copy
        for name, teacher in teachers.items():
            copies = teacher.ema_copies
            if teacher.is_ema and len(copies) != len(peers):
                raise UserError(
                    f"teacher {name!r}: ema_copies must hold a network for each of "
                    f"{len(peers)} peers, and holds {len(copies)}"
                )
            if not {*copies} <= {*teacher.networks}:
                raise UserError(f"teacher {name!r}: ema_copies must be among its networks")
            if teacher.is_ema and not self.pairs:
                self.by_source["ema"] = [*dict.fromkeys(copies)]  # peers may share one
                self.pairs = [(i, self.by_source["ema"].index(c)) for i, c in enumerate(copies)]

    @property
    def all(self) -> list[PeerModel]:
        """All of them."""
        return [network for networks in self.by_source.values() for network in networks]

    def copy(self) -> dict[Networks, Sequence[PeerModel]]:
        """Return copies of all of them, by source."""
        return {
            source: [copy_network(network) for network in networks]
            for source, networks in self.by_source.items()
        }


def has_own_rule(method: Method[Any]) -> bool:
    """Return whether a method predicts otherwise than by the largest logit."""
    return type(method).predict is not Method.predict


def _mean(outputs: list[list[Tensor]]) -> Tensor:
    """Return the mean over networks, (B, ...). outputs: by part of the images and network."""
    return torch.cat([torch.stack(part).mean(dim=0) for part in outputs])


class Fingerprint:
    """The tensors of networks and of a memory at one moment: which, and how often written.

    It tells whether a snapshot is still of the present state, also after a change by hand. Torch
    counts changes in place and by `load_state_dict`. It does not count those through `.data` or
    NumPy, nor by a fused optimizer, nor of what is no tensor (a hook, `eps` of a layer).
    """

    def __init__(self, networks: Sequence[nn.Module], memory: Memory) -> None:
        self._memory = memory
        self._places = [
            place
            for network in networks
            for module in network.modules()
            for place in (module._parameters, module._buffers, module._modules)
        ]
        self._rows = [memory.room(column) for column in memory.columns]
        self._parts = [*self._present()]  # kept, so that no other object can be taken for them
        self._versions = [*map(_writes, self._parts)]
        self._changes = memory.changes

    def is_current(self) -> bool:
        """Return whether all has the same parts still, and none has been written since."""
        now = [*self._present()]
        same = len(now) == len(self._parts) and all(map(operator.is_, now, self._parts))
        return (
            same
            and self._memory.changes == self._changes
            and [*map(_writes, now)] == self._versions
        )

    def _present(self) -> Iterator[object]:
        for place in self._places:
            yield from place.values()
        yield from self._rows


def _writes(part: object) -> object:
    """Return how often a tensor has been written; equal to nothing where that is not counted."""
    if not isinstance(part, Tensor):
        return None
    return object() if part.is_inference() else part._version
