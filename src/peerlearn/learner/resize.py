"""Growth: room for classes that were not announced, in all that a learner keeps."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.learner.snapshot import Snapshot
from peerlearn.learner.validation import check_rows
from peerlearn.methods.interface import Shape
from peerlearn.peer import Peer, PeerModel

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner


def resize(learner: "OnlineLearner", num_classes: int) -> None:
    """Make a learner one of so many classes, in place: it keeps all that it has learnt.

    It belongs into a transaction, which takes it back if it is undone. The number may also be
    smaller, to load what was saved with fewer.

    Networks, and what a method keeps with a peer, take the sizes of a learner that was just built:
    old rows stay, new ones are as there. An optimizer has gathered nothing for new rows, but takes
    second moments for gathered since the first step: they begin at the mean of the others. What a
    method stores with images, or carries, is its `fill_value` where a class was not there yet.
    """
    before = learner.num_classes
    if num_classes == before or not learner.method.stream.grows:
        return
    _check_fill_values(learner)
    new = learner.untrained(num_classes)
    x = _some_images(learner)
    outputs = [] if x is None else _outputs(learner, x)
    with torch.no_grad():
        _Resizing(learner, new, before).run()
    if x is not None:
        _check_outputs(learner, outputs, _outputs(learner, x))


class _Resizing:
    """Resizes the parts of a learner; no tensor is written to, so that each can be put back.

    Args:
        learner: whose size changes.
        new: one like it, just built, of as many classes as there are to be.
        before: how many classes it has.
    """

    def __init__(self, learner: "OnlineLearner", new: "OnlineLearner", before: int) -> None:
        assert learner.transaction is not None
        self.learner, self.new, self.before = learner, new, before
        self.on_undo = learner.transaction.on_undo

    def run(self) -> None:
        """Resize everything."""
        learner, new = self.learner, self.new
        for peer, other in zip(learner.peers, new.peers, strict=True):
            for own in peer.networks:  # a previous one may have been kept since
                of_previous = own is peer.previous and other.previous
                self._resize_network(own, of_previous or other.model, peer.optimizer)
            self._resize_buffers(peer, other)
        for teacher, like in zip(learner.teachers.values(), new.teachers.values(), strict=True):
            for own, other_network in zip(teacher.networks, like.networks, strict=True):
                self._resize_network(own, other_network)
        self._resize_columns()
        self._resize_progress()
        self.on_undo(partial(setattr, learner.method, "stream", learner.method.stream))
        learner.method.stream = new.method.stream

    def _replace(self, place: dict[Any, Any], name: Any, value: Any) -> None:
        self.on_undo(partial(place.__setitem__, name, place[name]))
        place[name] = value

    def _resize_network(
        self, own: PeerModel, new: PeerModel, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        for module, other in zip(own.modules(), new.modules(), strict=True):
            for name, parameter in module._parameters.items():
                wanted = other._parameters[name]
                if parameter is None or wanted is None or parameter.shape == wanted.shape:
                    continue
                if optimizer is not None:
                    self._resize_moments(optimizer, parameter, wanted)
                self.on_undo(partial(setattr, parameter, "data", parameter.data))
                parameter.data = resized(parameter.data, wanted.data)
            for name, buffer in module._buffers.items():
                like = other._buffers[name]
                if buffer is not None and like is not None and buffer.shape != like.shape:
                    self._replace(module._buffers, name, resized(buffer, like))
            self._resize_numbers(module, other)

    def _resize_numbers(self, module: nn.Module, new: nn.Module) -> None:
        """Change the number of classes where a module keeps it, such as `out_features`."""
        for name, value in vars(new).items():
            if type(value) is type(vars(module).get(name)) is int and (
                (vars(module)[name], value) == (self.before, self.new.num_classes)
            ):
                self.on_undo(partial(setattr, module, name, vars(module)[name]))
                setattr(module, name, value)

    def _resize_moments(
        self, optimizer: torch.optim.Optimizer, parameter: nn.Parameter, wanted: Tensor
    ) -> None:
        """Resize what an optimizer has gathered for a parameter."""
        gathered = optimizer.state.get(parameter, {})
        for name, moment in [*gathered.items()]:
            if isinstance(moment, Tensor) and moment.ndim and moment.shape != wanted.shape:
                new = torch.zeros_like(wanted, dtype=moment.dtype)
                if name.endswith("_sq") and moment.ndim == wanted.ndim:
                    changed = [i for i in range(new.ndim) if moment.shape[i] != new.shape[i]]
                    new += moment.mean(dim=changed, keepdim=True)
                self._replace(gathered, name, resized(moment, new))

    def _resize_buffers(self, peer: Peer, new: Peer) -> None:
        for name, buffer in [*peer.buffers.items()]:
            wanted = new.buffers.get(name, buffer)
            if buffer.shape != wanted.shape:
                self._replace(peer.buffers, name, resized(buffer, wanted))

    def _resize_columns(self) -> None:
        memory, method = self.learner.memory, self.learner.method
        for name, shape in method.stores.items():
            if "classes" in shape and name in memory.columns:
                old = memory.room(name)
                rows = self._filled(name, old, ("rows", *shape))
                self.on_undo(partial(memory.put_room, name, old))
                with self.learner.state_lock:
                    memory.put_room(name, rows)

    def _resize_progress(self) -> None:
        progress, carries = self.learner.progress, self.learner.method.carries
        self.on_undo(partial(setattr, self.learner, "progress", progress))
        self.learner.progress = replace(
            progress,
            first_met=resized(progress.first_met, self.new.progress.first_met),
            carry={
                name: self._filled(name, value, carries[name])
                for name, value in progress.carry.items()
            },
        )

    def _filled(self, name: str, old: Tensor, shape: Shape) -> Tensor:
        """Return what a method keeps per class, filled up for classes that were not there."""
        if "classes" not in shape:
            return old
        size = list(old.shape)
        size[shape.index("classes")] = self.new.num_classes
        return resized(old, old.new_full(size, self.learner.method.fill_values[name]))


def _check_fill_values(learner: "OnlineLearner") -> None:
    method = learner.method
    for name, shape in {**method.stores, **method.carries}.items():
        if "classes" in shape and name not in method.fill_values:
            raise UserError(
                f"{method.name}: keeps {name!r} per class and does not say what stands there for a "
                f"class that comes later; give it fill_values = {{{name!r}: 0.0}}, or another "
                "number"
            )


def _some_images(learner: "OnlineLearner") -> Tensor | None:
    """Images to ask about, (B, 3, H, W) uint8; None before the first batch."""
    if len(learner.memory):
        return learner.memory["x"][:2]
    if learner.image_shape is None:
        return None
    return torch.zeros(1, *learner.image_shape, dtype=torch.uint8)


def _outputs(learner: "OnlineLearner", x: Tensor) -> list[Tensor]:
    """Return the present logits of each peer, with every row of its classifier."""
    now = Snapshot(learner)
    return [now.all_logits(x, peer) for peer in range(len(learner.peers))]


def _check_outputs(learner: "OnlineLearner", before: list[Tensor], now: list[Tensor]) -> None:
    """Refuse a network whose rows for known classes do not stay in place."""
    for old, new in zip(before, now, strict=True):
        check_rows(tuple(new.shape), learner.method.stream)
        known = min(old.shape[1], new.shape[1])
        if not new[:, :known].allclose(old[:, :known], rtol=1e-3, atol=1e-4, equal_nan=True):
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
