"""Prediction, apart from learning: what is asked here changes nothing that learns."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from peerlearn.errors import UserError
from peerlearn.learner.inputs import Array, checked_images
from peerlearn.learner.turns import Turns
from peerlearn.losses import class_means
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method
from peerlearn.methods.replay import images
from peerlearn.peer.model import PeerModel

EVAL_BATCH = 250  # images per forward


class Predictor:
    """Answers for the peers as they are between two steps, from any thread.

    It shares the weights of the models that learn, but not the modules around them: what a module
    is in (training or evaluation), what it counts and which layers are frozen stays untouched.
    Either a step or an answer has the weights, never both; they take turns.

    Args:
        models: those that answer; their mean is the answer.
        method: whose rule turns answers into a class.
        memory: whose images give the class means.
        device: where the models are.
        turns: taken by every step and every answer.
    """

    def __init__(
        self,
        models: Sequence[PeerModel],
        method: Method[Any],
        memory: Memory,
        device: torch.device,
        turns: Turns,
    ) -> None:
        self.models, self.method, self.memory, self.device = models, method, memory, device
        self.image_shape: tuple[int, ...] | None = None  # known from the first batch on
        self._turns = turns
        self._twins: list[PeerModel] | None = None

    def refresh(self) -> None:
        """Look at the models anew: they have learnt, and a module may have put new tensors in."""
        self._twins = None

    def predict(self, x: Array) -> Tensor:
        """The class of each image, (B,), by the method's rule."""
        with self._turns:
            return self.method.predict(self, checked_images(x, self.image_shape))

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """(B, C): the mean of the peers' logits, or one peer's."""
        if peer is not None and not 0 <= peer < len(self.models):
            raise UserError(f"peer must be from 0 to {len(self.models) - 1}, got {peer}")
        return self._forward_eval(x, PeerModel.logits, peer)

    def features(self, x: Array) -> Tensor:
        """(B, D): the mean of the peers' features."""
        return self._forward_eval(x, PeerModel.features, None)

    def nearest_mean(self, x: Array) -> Tensor:
        """The class of the nearest class mean, (B,).

        Means are of the features of the images in memory, so only classes that it holds can be
        predicted.
        """
        with self._turns:
            if not len(self.memory):
                raise UserError("nearest class means: the memory holds no image; keep some first")
            labels, classes = self.memory["y"], self.method.stream.num_classes
            means = class_means(self.features(self.memory["x"]), labels, classes)
            held: Tensor = labels.unique()
            distances: Tensor = torch.cdist(self.features(x), means[held])
            return held[distances.argmin(dim=1)]

    @torch.no_grad()
    def _forward_eval(
        self, x: Array, answer: Callable[[PeerModel, Tensor], Tensor], peer: int | None
    ) -> Tensor:
        raw = checked_images(x, self.image_shape)
        with self._turns:
            asked = self._evaluating()
            asked = asked if peer is None else [asked[peer]]
            answers = []
            for part in raw.split(EVAL_BATCH):
                pixels = images(part.to(self.device))
                answers.append(torch.stack([answer(twin, pixels) for twin in asked]).mean(dim=0))
            return torch.cat(answers)

    def _evaluating(self) -> list[PeerModel]:
        """Twins of the models in evaluation mode, which share every parameter and buffer."""
        if self._twins is None:
            self._twins = [_evaluating_twin(model, {}) for model in self.models]
        return self._twins


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
