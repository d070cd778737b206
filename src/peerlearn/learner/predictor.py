"""Prediction, apart from learning: what is asked here changes nothing that learns."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.learner.inputs import Array, checked_images
from peerlearn.learner.turns import Turns
from peerlearn.losses import class_means
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method
from peerlearn.methods.replay import images
from peerlearn.peer.lanes import Lanes
from peerlearn.peer.model import PeerModel

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

    >>> means = ClassMeans(torch.tensor([2, 5]), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    >>> means.nearest(torch.tensor([[0.9, 0.8], [0.1, 0.0]]))
    tensor([5, 2])
    """

    classes: Tensor
    means: Tensor

    def nearest(self, features: Tensor) -> Tensor:
        """The class of the nearest mean, (B,). features: (B, D)."""
        distances: Tensor = torch.cdist(features, self.means)
        return self.classes[distances.argmin(dim=1)]


class Predictor:
    """Answers for the peers as they are between two steps, from any thread.

    It shares the weights of the models that learn, but not the modules around them: what a module
    is in (training or evaluation), what it counts and which layers are frozen stays untouched.
    Either a step or an answer has the weights, never both; they take turns.

    The class means of the memory are kept until weights or memory change. Changes by hand are seen
    where torch counts them: in place and by `load_state_dict`. Those through `.data` or NumPy, by a
    fused optimizer of your own, and of what is no tensor (a hook, `eps` of a layer) are not; call
    `refresh()` after them.

    Args:
        models: those that answer; their mean is the answer.
        method: whose rule turns answers into a class.
        memory: whose images give the class means.
        device: where answers are, wherever the models are.
        turns: taken by every step and every answer.
        lanes: in which the models compute.
        halfway_to: networks, one for each model; instead of the model one answers that is half-way
            between the two, with the model's own statistics. None by default.
    """

    def __init__(
        self,
        models: Sequence[PeerModel],
        method: Method[Any],
        memory: Memory,
        device: torch.device,
        turns: Turns,
        lanes: Lanes,
        halfway_to: Sequence[PeerModel] = (),
    ) -> None:
        self.models, self.method, self.memory, self.device = models, method, memory, device
        self.image_shape: tuple[int, ...] | None = None  # known from the first batch on
        self._turns = turns
        self.lanes, self.halfway_to = lanes, halfway_to
        self._twins: list[PeerModel] = []
        self._made_of: _Tensors | None = None
        self._means: tuple[object, ClassMeans] | None = None  # of which memory, and they

    def refresh(self) -> None:
        """Look at the models anew: they have learnt, and a module may have put new tensors in."""
        self._twins, self._made_of, self._means = [], None, None

    def after_optimizer_step(self, *_: object) -> None:
        """Look at the models anew: an optimizer has taken a step."""
        self.refresh()

    def predict(self, x: Array) -> Tensor:
        """The class of each image, (B,), by the method's rule."""
        with self._turns:
            return self.method.predict(self, checked_images(x, self.image_shape))

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """(B, C): the mean of the peers' logits, or one peer's."""
        if peer is not None and not 0 <= peer < len(self.models):
            raise UserError(f"peer must be from 0 to {len(self.models) - 1}, got {peer}")
        return _mean(self._forward_eval(x, PeerModel.logits, peer))

    def features(self, x: Array) -> Tensor:
        """(B, D): the mean of the peers' features."""
        return _mean(self._forward_eval(x, PeerModel.features))

    def answers(self, x: Array, *, features: bool = True) -> PeerAnswers:
        """All that the peers say, in one pass over the images.

        features: whether they are wanted; a network without `classify` computes them anew.
        """

        def answer(model: PeerModel, pixels: Tensor) -> tuple[Tensor, ...]:
            return model.answers(pixels) if features else (model.logits(pixels),)

        said = self._forward_eval(x, answer)
        logits = [torch.cat([own[0] for own in peer]) for peer in zip(*said, strict=True)]
        return PeerAnswers(
            logits, _mean([[own[1] for own in part] for part in said]) if features else None
        )

    def nearest_mean(self, x: Array) -> Tensor:
        """The class of the nearest class mean, (B,).

        Means are of the features of the images in memory, so only classes that it holds can be
        predicted.
        """
        with self._turns:
            return self.class_means().nearest(self.features(x))

    def class_means(self) -> ClassMeans:
        """The class means of the images in memory, computed if something has changed."""
        with self._turns:
            if not len(self.memory):
                raise UserError("nearest class means: the memory holds no image; keep some first")
            columns = [self.memory["x"], self.memory["y"]]
            state = (self.memory.changes, *map(_version, columns))
            self._evaluating()  # forgets the means if they are of other weights
            if self._means is None or self._means[0] != state:
                self._means = state, self._compute_means(*columns)
            return self._means[1]

    def _compute_means(self, x: Tensor, y: Tensor) -> ClassMeans:
        """The mean over all parts follows that of each part, so that no more is held at a time.

        Labels are of the CPU: counting them waits for no device.
        """
        classes = self.method.stream.num_classes
        means, total = torch.zeros((), device=self.device), y.new_zeros(classes)
        for rows, labels in zip(x.split(MEANS_PART), y.split(MEANS_PART), strict=True):
            found = class_means(self.features(rows), moved(labels, self.device), classes)
            count = labels.bincount(minlength=classes)
            total += count
            share = moved(count / total.clamp(min=1), self.device)
            means = means + (found - means) * share[:, None]
        held: Tensor = moved(y.unique(), self.device)
        return ClassMeans(held, means[held])

    @torch.no_grad()
    def _forward_eval(
        self, x: Array, forward: Callable[[PeerModel, Tensor], R], peer: int | None = None
    ) -> list[list[R]]:
        """What each model gives, or one peer's, for each part of the images."""
        raw = checked_images(x, self.image_shape)
        with self._turns:
            models = self._evaluating()
            models = models if peer is None else [models[peer]]

            def by_model(part: Tensor) -> list[R]:
                pixels = images(moved(part, self.device))

                def one(model: PeerModel) -> R:
                    return forward(model, moved(pixels, model.device))

                return moved(self.lanes.map(one, models), self.device)

            return [by_model(part) for part in raw.split(EVAL_BATCH)]

    def _evaluating(self) -> list[PeerModel]:
        """Twins of the models in evaluation mode, which share buffers and, mostly, parameters."""
        if self._made_of is None or not self._made_of.are_as_they_were():
            self.refresh()
            self._twins = [_evaluating_twin(model, {}) for model in self.models]
            if self.halfway_to:
                for twin, other in zip(self._twins, self.halfway_to, strict=True):
                    _go_halfway(twin, other)
            self._made_of = _Tensors([*self.models, *self.halfway_to])
        return self._twins


def _mean(said: list[list[Tensor]]) -> Tensor:
    """The mean over models of what they said, (B, ...). said: by part of the images and model."""
    return torch.cat([torch.stack(part).mean(dim=0) for part in said])


class _Tensors:
    """The parts of models as they were once: which ones, and how often each had been written."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._places = [
            place
            for model in models
            for module in model.modules()
            for place in (module._parameters, module._buffers, module._modules)
        ]
        self._parts = [*self._present()]  # kept, so that no other object can be taken for them
        self._versions = [*map(_version, self._parts)]

    def are_as_they_were(self) -> bool:
        """Whether the models have the same parts still, and none has been written since."""
        now = [*self._present()]
        same = len(now) == len(self._parts) and all(map(operator.is_, now, self._parts))
        return same and [*map(_version, now)] == self._versions

    def _present(self) -> Iterator[object]:
        for place in self._places:
            yield from place.values()


def _version(part: object) -> object:
    """How often a tensor has been written; equal to nothing where torch does not count that."""
    if not isinstance(part, Tensor):
        return None
    return object() if part.is_inference() else part._version


M = TypeVar("M", bound=nn.Module)


def _evaluating_twin(module: M, known: dict[int, nn.Module]) -> M:
    """A module of its own around the same tensors: its mode and what it keeps are its alone.

    Not a deep copy, which modules that hold results or locks do not allow.
    """
    if id(module) in known:
        return known[id(module)]  # type: ignore[return-value]
    twin = known[id(module)] = module.__class__.__new__(module.__class__)
    twin.__dict__ = dict(
        vars(module),
        training=False,
        _parameters=dict(module._parameters),
        _buffers=dict(module._buffers),
        _modules={
            name: child and _evaluating_twin(child, known)
            for name, child in module._modules.items()
        },
    )
    return twin


def _go_halfway(twin: nn.Module, other: nn.Module) -> None:
    """Give a twin weights of its own, half-way to those of a network built alike.

    What is not learnt stays: it may be infinite, and is the same there.
    """
    for module, theirs in zip(twin.modules(), other.modules(), strict=True):
        for name, own in module._parameters.items():
            other_own = theirs._parameters[name]
            if own is not None and own.requires_grad and other_own is not None:
                middle = own.lerp(moved(other_own, own.device), 0.5)
                module._parameters[name] = nn.Parameter(middle, requires_grad=False)
