"""Networks as they were between two steps, with all that is needed to answer."""

import copy
import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.learner.inputs import Array, Distance, checked_images
from peerlearn.losses import class_means
from peerlearn.methods.replay import images
from peerlearn.peer.lanes import Lanes
from peerlearn.peer.model import PeerModel
from peerlearn.peer.torch_modes import RestoreTorchModes

EVAL_BATCH = 250  # images per forward
MEANS_PART = 40 * EVAL_BATCH  # images of the memory whose features are there at a time

R = TypeVar("R")


class PeerAnswers(NamedTuple):
    """What the peers say of some images: the logits of each, (B, C), and their mean features."""

    logits: list[Tensor]
    features: Tensor | None  # (B, D); None if nobody asked


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


class MemoryFeatures(NamedTuple):
    """The features (N, D) and labels (N,) of the images in memory."""

    features: Tensor
    labels: Tensor


class Rows(NamedTuple):
    """The images and labels of a memory at one time."""

    x: Tensor
    y: Tensor


class Frozen:
    """Answers of one state, for ever the same, from any number of threads at once.

    Its models have weights and buffers of their own, and modules and methods that a module keeps,
    alone or in a list, tuple, dict or partial, are of the same copy, hooks among them. What a
    network reaches in another way stays the live one: by a closure (`lambda x: self.layer(x)`), by
    an object that is no module, or in a container within another. Nor are tensors copied that are
    neither parameters nor buffers.

    Args:
        models: those that answer, in evaluation mode and nobody else's; their mean is the answer.
        device: where answers are, wherever the models are.
        num_classes: that are answered; a model may have rows for more, which nothing has learnt.
        image_shape: (3, H, W) of the images so far, None before the first.
        lanes: in which the models compute, unless somebody else does in these.
        distance: of features to class means.

    Attributes:
        rows: of the memory in the same state; None if nobody has asked for class means.
        by_means: whether `logits` are those of the nearest class means, not of the classifier.
    """

    def __init__(
        self,
        models: Sequence[PeerModel],
        device: torch.device,
        num_classes: int,
        image_shape: tuple[int, ...] | None,
        lanes: "SharedLanes",
        distance: Distance = "euclidean",
    ) -> None:
        self.models, self.device, self.num_classes = models, device, num_classes
        self.image_shape, self._lanes, self.distance = image_shape, lanes, distance
        self.by_means = False
        self.rows: Rows | None = None
        self._kept: tuple[Array, PeerAnswers] | None = None
        self._means: list[ClassMeans] = []  # one, once somebody asked; shared with its copies
        self._computing_means = threading.Lock()

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """(B, C): the mean of the peers' logits, or one peer's."""
        if peer is None and self.by_means:
            return self.class_means().logits(self.features(x), self.num_classes)
        if peer is None and self._kept is not None and x is self._kept[0] and self._kept[1].logits:
            return torch.stack(self._kept[1].logits).mean(dim=0)
        return self.all_logits(x, peer)[:, : self.num_classes]

    def all_logits(self, x: Array, peer: int | None = None) -> Tensor:
        """The same with every row of the models, also those that nothing has learnt."""
        if peer is not None and not 0 <= peer < len(self.models):
            raise UserError(f"peer must be from 0 to {len(self.models) - 1}, got {peer}")
        return _mean(self._forward(x, PeerModel.logits, peer))

    def features(self, x: Array) -> Tensor:
        """(B, D): the mean of the peers' features."""
        if self._kept is not None and x is self._kept[0] and self._kept[1].features is not None:
            return self._kept[1].features.clone()  # a method may work in place
        return _mean(self._forward(x, PeerModel.features))

    def answers(self, x: Array, *, features: bool = True) -> PeerAnswers:
        """All that the peers say, in one pass over the images.

        features: whether they are wanted; a network without `classify` computes them anew.
        """

        def answer(model: PeerModel, pixels: Tensor) -> tuple[Tensor, ...]:
            return model.answers(pixels) if features else (model.logits(pixels),)

        said = self._forward(x, answer)
        known = slice(self.num_classes)
        logits = [torch.cat([own[0] for own in peer])[:, known] for peer in zip(*said, strict=True)]
        return PeerAnswers(
            logits, _mean([[own[1] for own in part] for part in said]) if features else None
        )

    def keeping(self, x: Array, answers: PeerAnswers) -> "Frozen":
        """Return the same networks, with what they say of `x` at hand. x: this object."""
        kept = copy.copy(self)
        kept._kept = (x, answers)
        return kept

    def predicting_by_means(self) -> "Frozen":
        """Return the same networks, whose logits come from the nearest class means."""
        found = copy.copy(self)
        found.by_means = True
        return found

    def nearest_mean(self, x: Array) -> Tensor:
        """The class of the nearest class mean, (B,).

        Means are of the features of the images in memory, so only classes that it holds can be
        predicted.
        """
        return self.class_means().nearest(self.features(x))

    def class_means(self) -> ClassMeans:
        """The class means of the images in memory, computed at the first call."""
        with self._computing_means:
            if not self._means:
                self._means.append(self._compute_means(self._memory_rows()))
            return self._means[0]

    def memory_features(self) -> MemoryFeatures:
        """Return the features and labels of all images in memory, on the device of the answers."""
        rows = self._memory_rows()
        return MemoryFeatures(self.features(rows.x), moved(rows.y, self.device))

    def _memory_rows(self) -> Rows:
        if self.rows is None:
            raise UserError(
                "features of the memory: there are none; keep an image first, and take "
                "predictor.now(means=True)"
            )
        return self.rows

    def _compute_means(self, rows: Rows) -> ClassMeans:
        """The mean over all parts follows that of each part, so that no more is held at a time.

        Labels are of the CPU: counting them waits for no device.
        """
        means = torch.zeros((), device=self.device)
        total = rows.y.new_zeros(self.num_classes)
        parts = zip(rows.x.split(MEANS_PART), rows.y.split(MEANS_PART), strict=True)
        for x, labels in parts:
            features = comparable(self.features(x), self.distance)
            found = class_means(features, moved(labels, self.device), self.num_classes)
            count = labels.bincount(minlength=self.num_classes)
            total += count
            share = moved(count / total.clamp(min=1), self.device)
            means = means + (found - means) * share[:, None]
        held: Tensor = moved(rows.y.unique(), self.device)
        return ClassMeans(held, comparable(means[held], self.distance), self.distance)

    def _forward(
        self, x: Array, forward: Callable[[PeerModel, Tensor], R], peer: int | None = None
    ) -> list[list[R]]:
        """Return what each model gives, or one peer's, for each part of the images."""
        raw = checked_images(x, self.image_shape)
        models = self.models if peer is None else [self.models[peer]]
        models = [_twin(model) for model in models]  # one that keeps results keeps its own

        def by_model(part: Tensor) -> list[R]:
            pixels = images(moved(part, self.device))

            def one(model: PeerModel) -> R:
                return forward(model, moved(pixels, model.device))

            return moved(self._lanes.map(one, models), self.device)

        devices = {model.device for model in models}
        with RestoreTorchModes(*devices), torch.no_grad():
            return [by_model(part) for part in raw.split(EVAL_BATCH)]


class SharedLanes:
    """Lanes that one thread has at a time; others compute one thing after the other instead."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self._taken = threading.Lock()

    def map(self, action: Callable[[PeerModel], R], models: Sequence[PeerModel]) -> list[R]:
        """The action's result for each model, in order."""
        if len(models) == 1 or not self._taken.acquire(blocking=False):
            return [action(model) for model in models]
        try:
            return self.lanes.map(action, models)
        finally:
            self._taken.release()


def _mean(said: list[list[Tensor]]) -> Tensor:
    """The mean over models of what they said, (B, ...). said: by part of the images and model."""
    return torch.cat([torch.stack(part).mean(dim=0) for part in said])


M = TypeVar("M", bound=nn.Module)


def frozen_copy(model: M, before: Mapping[str, Tensor]) -> M:
    """A network in evaluation mode with tensors of its own.

    Not a deep copy, which modules that hold results or locks do not allow.

    before: parameters and buffers that have moved since, as they were, by name.
    """
    twin = _twin(model)
    for prefix, module in twin.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        for name, own in module._parameters.items():
            if own is not None:
                value = before.get(f"{start}{name}", own).detach().clone()
                module._parameters[name] = nn.Parameter(value, own.requires_grad)
        for name, own in module._buffers.items():
            if own is not None:
                module._buffers[name] = before.get(f"{start}{name}", own).detach().clone()
    return twin


def _twin(module: M) -> M:
    """A module in evaluation mode around the same tensors; what else it keeps is its alone."""
    twins: dict[int, nn.Module] = {}
    twin = _plain_twin(module, twins)
    for one in twins.values():
        vars(one).update({name: _with_twins(kept, twins) for name, kept in vars(one).items()})
    return twin


def _with_twins(kept: Any, twins: Mapping[int, nn.Module]) -> Any:
    """What a module keeps, or a list, tuple or dict of such (hooks), of twins and not of others."""
    if type(kept) in (list, tuple) and kept:
        items = [_of_twin(item, twins) for item in kept]
        return kept if all(map(operator.is_, items, kept)) else type(kept)(items)
    if type(kept) in (dict, OrderedDict) and kept:
        items = [_of_twin(item, twins) for item in kept.values()]
        same = all(map(operator.is_, items, kept.values()))
        return kept if same else type(kept)(zip(kept, items, strict=True))
    return _of_twin(kept, twins)


def _of_twin(kept: Any, twins: Mapping[int, nn.Module]) -> Any:
    """The twin of a module; of its method, the twin's; of a partial, one that has those."""
    if isinstance(kept, nn.Module):
        return twins.get(id(kept), kept)
    if isinstance(kept, MethodType) and id(kept.__self__) in twins:
        return MethodType(kept.__func__, twins[id(kept.__self__)])
    if type(kept) is partial:
        args = [_of_twin(value, twins) for value in kept.args]
        named = {name: _of_twin(value, twins) for name, value in kept.keywords.items()}
        return partial(_of_twin(kept.func, twins), *args, **named)
    return kept


def _plain_twin(module: M, known: dict[int, nn.Module]) -> M:
    if id(module) in known:
        return known[id(module)]  # type: ignore[return-value]
    twin = known[id(module)] = module.__class__.__new__(module.__class__)
    twin.__dict__ = dict(
        vars(module),
        training=False,
        _parameters=dict(module._parameters),
        _buffers=dict(module._buffers),
        _modules={
            name: child and _plain_twin(child, known) for name, child in module._modules.items()
        },
    )
    return twin


@torch.no_grad()
def go_halfway(copied: nn.Module, other: nn.Module) -> None:
    """Move a copy's weights half-way to those of a network built alike.

    What is not learnt stays: it may be infinite, and is the same there.
    """
    for module, theirs in zip(copied.modules(), other.modules(), strict=True):
        for name, own in module._parameters.items():
            other_own = theirs._parameters[name]
            if own is not None and own.requires_grad and other_own is not None:
                middle = own.lerp(moved(other_own, own.device), 0.5)
                module._parameters[name] = nn.Parameter(middle)
