"""Prediction, apart from learning: what is asked here changes nothing that learns."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from peerlearn.errors import UserError
from peerlearn.learner.frozen import (
    ClassMeans,
    Frozen,
    PeerAnswers,
    Rows,
    SharedLanes,
    frozen_copy,
    go_halfway,
)
from peerlearn.learner.inputs import Array, Distance, checked_images
from peerlearn.learner.whole import Whole
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method
from peerlearn.peer.model import PeerModel


class Predictor:
    """Answers for the peers as they are between two steps, from any thread, at any time.

    Who asks gets the answer of one state, the one before a step or the one after it, and never
    waits for a step to be computed: answers come from copies of the networks, which are made when
    somebody asks for the first time after a step. While a step is under way the copy is of the
    state before it. Only while weights are copied, or move, does anybody wait for anybody. After a
    step that broke off while they moved, a copy of the state before it goes on answering, if there
    is one.

    The class means of the memory are kept until weights or memory change. Changes by hand are seen
    where torch counts them: in place and by `load_state_dict`. Those through `.data` or NumPy, by a
    fused optimizer of your own, and of what is no tensor (a hook, `eps` of a layer) are not; call
    `refresh()` after them. Buffers that are not persistent are copied as they are, also within a
    step.

    Args:
        models: those that answer, with their names in the learner's state; their mean is the
            answer.
        method: whose rule turns answers into a class.
        memory: whose images give the class means.
        device: where answers are, wherever the models are.
        whole: the state between two steps.
        lanes: in which the models compute.
        halfway_to: networks with their names, one for each model; instead of the model one answers
            that is half-way between the two, with the model's own statistics. None by default.
        distance: of features to class means.
    """

    def __init__(
        self,
        models: Sequence[tuple[str, PeerModel]],
        method: Method[Any],
        memory: Memory,
        device: torch.device,
        whole: Whole,
        lanes: SharedLanes,
        halfway_to: Sequence[tuple[str, PeerModel]] = (),
        distance: Distance = "euclidean",
    ) -> None:
        self.method, self.memory, self.device, self.distance = method, memory, device, distance
        self.image_shape: tuple[int, ...] | None = None  # known from the first batch on
        self._models, self._halfway_to = models, halfway_to
        self._whole, self._lanes = whole, lanes
        self._frozen: Frozen | None = None
        self._steps = -1  # after which the copy was made
        self._is_old = False  # something has moved since
        self._made_of: _Tensors | None = None
        self._memory_was: object = None

    def refresh(self) -> None:
        """Look at the models anew: they have learnt, and a module may have put new tensors in."""
        with self._whole.lock:
            self._is_old = True

    def after_optimizer_step(self, *_: object) -> None:
        """Look at the models anew: an optimizer has taken a step."""
        self.refresh()

    def now(self, *, means: bool = False) -> Frozen:
        """All that answers at this moment, for as long as one likes: learning does not change it.

        A predictor that is asked twice may answer for two states, this one never does.
        means: whether class means will be asked for, which takes a copy of the images in memory.
        """
        with self._whole.lock:
            if self._frozen is None or not self._is_of_now():
                self._frozen = self._copy()  # first: an interrupt then has it copied once more
                self._made_of = _Tensors([one for _, one in (*self._models, *self._halfway_to)])
                self._memory_was = self._memory_is()
                self._steps, self._is_old = self._whole.steps, False
            if means and self._frozen.rows is None:
                if not len(self.memory):
                    raise UserError(
                        "nearest class means: the memory holds no image; keep some first"
                    )
                self._frozen.rows = Rows(self.memory["x"].clone(), self.memory["y"].clone())
            return self._frozen

    def predict(self, x: Array) -> Tensor:
        """The class of each image, (B,), by the method's rule."""
        frozen = self.for_the_rule()
        return self.classes(frozen, checked_images(x, frozen.image_shape))

    def classes(self, frozen: Frozen, x: Tensor) -> Tensor:
        """Return the class of each image, (B,), by the method's rule. frozen: of this predictor."""
        return self.method.predict(frozen, x)

    def for_the_rule(self) -> Frozen:
        """`now()`, with class means if the method has a rule of its own that may want them."""
        return self.now(means=self.has_own_rule and len(self.memory) > 0)

    @property
    def has_own_rule(self) -> bool:
        """Whether the method predicts otherwise than by the largest logit."""
        return type(self.method).predict is not Method.predict

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """(B, C): the mean of the peers' logits, or one peer's."""
        return self.now().logits(x, peer)

    def features(self, x: Array) -> Tensor:
        """(B, D): the mean of the peers' features."""
        return self.now().features(x)

    def answers(self, x: Array, *, features: bool = True) -> PeerAnswers:
        """All that the peers say, in one pass over the images; see `Frozen.answers`."""
        return self.now().answers(x, features=features)

    def nearest_mean(self, x: Array) -> Tensor:
        """The class of the nearest class mean, (B,); see `Frozen.nearest_mean`."""
        return self.now(means=True).nearest_mean(x)

    def class_means(self) -> ClassMeans:
        """The class means of the images in memory, computed if something has changed."""
        return self.now(means=True).class_means()

    def _copy(self) -> Frozen:
        """Networks with tensors of their own, in the state between two steps."""
        self._whole.refuse_torn()
        models = [self._copied(*named) for named in self._models]
        for copied, named in zip(models, self._halfway_to, strict=False):
            go_halfway(copied, self._copied(*named))
        known = self._whole.classes
        classes = self.method.stream.num_classes if known is None else known
        return Frozen(models, self.device, classes, self.image_shape, self._lanes, self.distance)

    def _copied(self, name: str, model: PeerModel) -> PeerModel:
        return frozen_copy(model, self._whole.before(name))

    def _is_of_now(self) -> bool:
        """Whether the copy is of the present state; while one moves, of the one before it."""
        if self._whole.torn:
            return self._steps == self._whole.steps
        if self._is_old or self._whole.under_way:
            return not self._is_old
        assert self._made_of is not None
        return self._made_of.are_as_they_were() and self._memory_was == self._memory_is()

    def _memory_is(self) -> object:
        columns = (self.memory[name] for name in self.memory.columns)
        return (self.memory.changes, *map(_version, columns))


class MeansPredictor(Predictor):
    """Predicts by nearest class means (NCM), with the features of another predictor's networks.

    While the memory holds no image, the logits of these networks predict.
    """

    def __init__(self, networks: Predictor) -> None:
        self._networks = networks
        self.method, self.memory, self.device = networks.method, networks.memory, networks.device

    @override
    def refresh(self) -> None:
        self._networks.refresh()

    @override
    def now(self, *, means: bool = False) -> Frozen:
        if not len(self.memory):
            return self._networks.now()
        return self._networks.now(means=True).predicting_by_means()

    @property
    @override
    def has_own_rule(self) -> bool:
        return False

    @override
    def classes(self, frozen: Frozen, x: Tensor) -> Tensor:
        return frozen.nearest_mean(x) if frozen.by_means else self.method.predict(frozen, x)


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
