"""Everyone who can answer for a learner: its peers, their slow copies, and networks half-way."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from peerlearn.errors import UserError
from peerlearn.learner.collaboration import ANSWERS, AnswerBy
from peerlearn.learner.frozen import SharedLanes
from peerlearn.learner.predictor import Predictor
from peerlearn.learner.teacher import Teacher
from peerlearn.learner.whole import Whole
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method
from peerlearn.peer.lanes import Lanes
from peerlearn.peer.peer import Peer


class Answering(Mapping[AnswerBy, Predictor]):
    """Predictors by who answers; "shadow" and "average" where a teacher has slow copies.

    Args:
        peers: those who learn.
        teachers: by name; the slow copies are those of the first that has some.
        usual: who answers unless another is asked for.
        method: whose rule turns answers into a class.
        memory: whose images give the class means.
        device: where answers are.
        whole: the state between two steps.
        lanes: in which networks compute.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        teachers: Mapping[str, Teacher],
        usual: AnswerBy,
        *,
        method: Method[Any],
        memory: Memory,
        device: torch.device,
        whole: Whole,
        lanes: Lanes,
    ) -> None:
        self._lanes = SharedLanes(lanes)
        models = [(f"peer{i}.model", peer.model) for i, peer in enumerate(peers)]
        new = partial(
            Predictor, method=method, memory=memory, device=device, whole=whole, lanes=self._lanes
        )
        self._predictors: dict[AnswerBy, Predictor] = {"peers": new(models)}
        for name, teacher in teachers.items():
            copies = teacher.slow_copies
            if teacher.slow and len(copies) != len(peers):
                raise UserError(
                    f"teacher {name!r}: slow_copies must hold a network for each of "
                    f"{len(peers)} peers, and holds {len(copies)}"
                )
            if not {*copies} <= {*teacher.networks}:
                raise UserError(f"teacher {name!r}: slow_copies must be among its networks")
            if teacher.slow and "shadow" not in self._predictors:
                numbers = map(teacher.networks.index, copies)
                named = [(f"teacher.{name}.{i}", teacher.networks[i]) for i in numbers]
                self._predictors["shadow"] = new([*dict.fromkeys(named)])
                self._predictors["average"] = new(models, halfway_to=named)
        self._usual = usual
        for predictor in self.values():
            for peer in peers:  # fused ones do not let torch count what they write
                peer.optimizer.register_step_post_hook(predictor.after_optimizer_step)

    def __getitem__(self, who: AnswerBy) -> Predictor:
        return self._predictors[who]

    def __iter__(self) -> Iterator[AnswerBy]:
        return iter(self._predictors)

    def __len__(self) -> int:
        return len(self._predictors)

    def by(self, who: AnswerBy | None) -> Predictor:
        """Whoever was asked for, as a person may have written it; None: the usual one."""
        name = self._usual if who is None else who
        if not isinstance(name, str) or name not in self._predictors:
            why = "this learner has no slow copies; " if name in ANSWERS else ""
            raise UserError(
                f"answer: nobody answers as {name!r:.40}; {why}take {' or '.join(self)}"
            )
        return self._predictors[name]

    def refresh(self) -> None:
        """Look at the networks anew: they have changed."""
        for predictor in self.values():
            predictor.refresh()

    def use(self, lanes: Lanes) -> None:
        """Compute in these from now on."""
        self._lanes.lanes = lanes

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(3, H, W) of the images so far, None before the first."""
        return self._predictors["peers"].image_shape

    @image_shape.setter
    def image_shape(self, shape: Sequence[int] | None) -> None:
        for predictor in self.values():
            predictor.image_shape = None if shape is None else tuple(shape)
