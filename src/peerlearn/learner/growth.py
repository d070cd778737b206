"""Room for classes that nobody announced, in all that a learner keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.learner.validation import check_rows
from peerlearn.methods.interface import Shape
from peerlearn.peer.model import PeerModel
from peerlearn.peer.peer import Peer

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

MOST_CLASSES = 1_000_000


@contextmanager
def grown(learner: "OnlineLearner", num_classes: int) -> Iterator[None]:
    """Let a learner know so many classes within, and afterwards if all goes well.

    Fewer, to load what was saved with fewer.
    """
    before, taken = learner.num_classes, learner.whole.steps
    _check_absent(learner)
    new = learner.like(num_classes)
    try:
        x = _some_images(learner)
        said = [] if x is None else _answers(learner, x)
        with learner.whole.lock:
            learner.whole.classes = before  # answers know no others before the step is taken
            _Resizing(learner, new, before).do()
        if x is not None:
            _check_answers(learner, said, _answers(learner, x))
        yield
        with learner.whole.lock:
            learner.whole.classes = None
            learner.predictors.refresh()
    except BaseException:
        if learner.whole.steps == taken and not learner.moving:  # otherwise it belongs to the state
            with learner.whole.lock:
                learner.moving = "weights"  # should this be interrupted as well
                _Resizing(learner, learner.like(before), num_classes).do()
                learner.moving, learner.whole.classes = "", None
                learner.predictors.refresh()
        raise


class _Resizing:
    """Makes a learner one of other classes, in place: it keeps all that it has learnt.

    Whatever has another size in a learner that was just built takes that size: what was there
    stays, and what is new is as there. That is true of networks (of peers, their snapshots and
    teachers) and of what a method keeps with a peer. An optimizer has gathered nothing for new
    rows; the second moments that it divides by begin at the mean of the others, as it takes them
    for gathered since the first step. What a method stores with images, or carries, is `absent`
    where a class was not there yet.

    No tensor is written to, so that copies stay as they are. Doing it once more changes nothing.

    Args:
        learner: whose size changes.
        new: one like it, just built, of as many classes as there are to be.
        before: how many classes it has, or had when this was begun.
    """

    def __init__(self, learner: "OnlineLearner", new: "OnlineLearner", before: int) -> None:
        self.learner, self.new, self.before = learner, new, before

    @torch.no_grad()
    def do(self) -> None:
        learner, new = self.learner, self.new
        for peer, other in zip(learner.peers, new.peers, strict=True):
            for own in peer.networks:  # a snapshot may have been taken since
                of_snapshot = own is peer.snapshot and other.snapshot
                self._resize_network(own, of_snapshot or other.model, peer.optimizer)
            _resize_buffers(peer, other)
        teachers = zip(learner.teachers.values(), new.teachers.values(), strict=True)
        for teacher, its in teachers:
            for network, like in zip(teacher.networks, its.networks, strict=True):
                self._resize_network(network, like)
        self._resize_columns()
        self._resize_progress()
        learner.method.stream = new.method.stream
        learner.predictors.refresh()

    def _resize_network(
        self, own: PeerModel, new: PeerModel, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        for module, other in zip(own.modules(), new.modules(), strict=True):
            for name, parameter in module._parameters.items():
                wanted = other._parameters[name]
                if parameter is None or wanted is None:
                    continue
                if optimizer is not None:
                    _resize_moments(optimizer, parameter, wanted)
                if parameter.shape != wanted.shape:
                    parameter.data = resized(parameter.data, wanted.data)
            for name, buffer in module._buffers.items():
                like = other._buffers[name]
                if buffer is not None and like is not None and buffer.shape != like.shape:
                    module._buffers[name] = resized(buffer, like)
            self._resize_numbers(module, other)

    def _resize_numbers(self, module: nn.Module, new: nn.Module) -> None:
        """The number of classes where a module keeps it, such as `out_features`."""
        for name, value in vars(new).items():
            if type(value) is type(vars(module).get(name)) is int and (
                (vars(module)[name], value) == (self.before, self.new.num_classes)
            ):
                setattr(module, name, value)

    def _resize_columns(self) -> None:
        memory, method = self.learner.memory, self.learner.method
        for name, shape in method.stores.items():
            if "classes" in shape and name in memory.columns:
                rows = self._with_absent(name, memory.room(name), ("rows", *shape))
                memory.put_room(name, rows)

    def _resize_progress(self) -> None:
        progress, carries = self.learner.progress, self.learner.method.carries
        self.learner.progress = replace(
            progress,
            first_met=resized(progress.first_met, self.new.progress.first_met),
            carry={
                name: self._with_absent(name, value, carries[name])
                for name, value in progress.carry.items()
            },
        )

    def _with_absent(self, name: str, old: Tensor, shape: Shape) -> Tensor:
        """What a method keeps per class, with what stands for classes that were not there."""
        if "classes" not in shape:
            return old
        size = list(old.shape)
        size[shape.index("classes")] = self.new.num_classes
        return resized(old, old.new_full(size, self.learner.method.absent[name]))


def _resize_moments(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, wanted: Tensor
) -> None:
    """What an optimizer has gathered for a parameter that takes another size."""
    gathered = optimizer.state.get(parameter, {})
    for name, moment in gathered.items():
        if isinstance(moment, Tensor) and moment.ndim and moment.shape != wanted.shape:
            new = torch.zeros_like(wanted, dtype=moment.dtype)
            if name.endswith("_sq") and moment.ndim == wanted.ndim:
                changed = [i for i in range(new.ndim) if moment.shape[i] != new.shape[i]]
                new += moment.mean(dim=changed, keepdim=True)
            gathered[name] = resized(moment, new)


def _resize_buffers(peer: Peer, new: Peer) -> None:
    for name, buffer in peer.buffers.items():
        wanted = new.buffers.get(name, buffer)
        if buffer.shape != wanted.shape:
            peer.buffers[name] = resized(buffer, wanted)


def _check_absent(learner: "OnlineLearner") -> None:
    method = learner.method
    for name, shape in {**method.stores, **method.carries}.items():
        if "classes" in shape and name not in method.absent:
            raise UserError(
                f"{method.name}: keeps {name!r} per class and does not say what stands there for a "
                f"class that comes later; give it absent = {{{name!r}: 0.0}}, or another number"
            )


def _some_images(learner: "OnlineLearner") -> Tensor | None:
    """Images to ask about, (B, 3, H, W) uint8; None before the first batch."""
    if len(learner.memory):
        return learner.memory["x"][:2]
    if learner.image_shape is None:
        return None
    return torch.zeros(1, *learner.image_shape, dtype=torch.uint8)


def _answers(learner: "OnlineLearner", x: Tensor) -> list[Tensor]:
    """What each peer says with every row that it has, also with those of a step under way."""
    frozen = learner.predictors["peers"].now()
    return [frozen.all_logits(x, peer) for peer in range(len(learner.peers))]


def _check_answers(learner: "OnlineLearner", before: list[Tensor], now: list[Tensor]) -> None:
    """What was known is answered as before: the rows of a classifier have stayed in place."""
    for said, says in zip(before, now, strict=True):
        check_rows(tuple(says.shape), learner.method.stream)
        known = min(said.shape[1], says.shape[1])
        if not says[:, :known].allclose(said[:, :known], rtol=1e-3, atol=1e-4, equal_nan=True):
            raise UserError(
                f"network: made for {learner.num_classes} classes it answers otherwise to the "
                f"{known} that it knew; a class must have one row of the classifier, in order"
            )


def resized(old: Tensor, new: Tensor) -> Tensor:
    """As large as `new`, with its values, but those of `old` where both have some.

    >>> resized(torch.tensor([1, 2]), torch.tensor([7, 8, 9]))
    tensor([1, 2, 9])
    """
    if old.ndim != new.ndim:
        raise UserError(
            f"network: a part that is {tuple(old.shape)} would be {tuple(new.shape)} with more "
            "classes; only the lengths of its sides may change"
        )
    wide: Tensor = moved(new, old.device).to(old.dtype).clone()
    both = tuple(slice(min(sides)) for sides in zip(old.shape, new.shape, strict=True))
    wide[both] = old[both]
    return wide
