"""Predictors of a learner: peers, their EMA copies, the average of both, nearest class means."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from peerlearn.distill.distillation import Networks
from peerlearn.distill.teachers.base import Teacher
from peerlearn.errors import UserError
from peerlearn.learner.frozen import SharedLanes
from peerlearn.learner.inputs import PREDICT_WITH, Distance, PredictWith
from peerlearn.learner.predictor import MeansPredictor, Predictor
from peerlearn.learner.whole import Whole
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method
from peerlearn.peer.lanes import Lanes
from peerlearn.peer.peer import Peer
from peerlearn.settings import OLD_PREDICT_WITH


class Answering(Mapping[Networks, Predictor]):
    """Predictors by their networks; "ema" and "average" where a teacher has EMA copies.

    Args:
        peers: those who learn.
        teachers: by name; the EMA copies are those of the first that has some.
        networks: that predict unless others are asked for, and whose features "ncm" compares.
        usual: what predicts unless something else is asked for.
        distance: of features to class means.
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
        networks: Networks,
        usual: PredictWith,
        *,
        distance: Distance,
        method: Method[Any],
        memory: Memory,
        device: torch.device,
        whole: Whole,
        lanes: Lanes,
    ) -> None:
        self._lanes = SharedLanes(lanes)
        models = [(f"peer{i}.model", peer.model) for i, peer in enumerate(peers)]
        new = partial(
            Predictor,
            method=method,
            memory=memory,
            device=device,
            whole=whole,
            lanes=self._lanes,
            distance=distance,
        )
        self._predictors: dict[Networks, Predictor] = {"peers": new(models)}
        for name, teacher in teachers.items():
            copies = teacher.ema_copies
            if teacher.is_ema and len(copies) != len(peers):
                raise UserError(
                    f"teacher {name!r}: ema_copies must hold a network for each of "
                    f"{len(peers)} peers, and holds {len(copies)}"
                )
            if not {*copies} <= {*teacher.networks}:
                raise UserError(f"teacher {name!r}: ema_copies must be among its networks")
            if teacher.is_ema and "ema" not in self._predictors:
                numbers = map(teacher.networks.index, copies)
                named = [(f"teacher.{name}.{i}", teacher.networks[i]) for i in numbers]
                self._predictors["ema"] = new([*dict.fromkeys(named)])
                self._predictors["average"] = new(models, halfway_to=named)
        if networks not in self._predictors:
            raise UserError(f"predict_with: {self._unknown(networks)}")
        self.networks, self.usual = networks, usual
        self._by_means = MeansPredictor(self._predictors[networks])
        for predictor in self.values():
            for peer in peers:  # fused ones do not let torch count what they write
                peer.optimizer.register_step_post_hook(predictor.after_optimizer_step)

    def __getitem__(self, networks: Networks) -> Predictor:
        return self._predictors[networks]

    def __iter__(self) -> Iterator[Networks]:
        return iter(self._predictors)

    def __len__(self) -> int:
        return len(self._predictors)

    def by(self, source: PredictWith | None) -> Predictor:
        """Return the predictor of a source, as a user may have written it; None: the usual one."""
        name: Any = self.usual if source is None else source
        name = OLD_PREDICT_WITH.get(name, name) if isinstance(name, str) else name
        if name == "ncm":
            return self._by_means
        if not isinstance(name, str) or name not in self._predictors:
            raise UserError(f"predict_with: {self._unknown(name)}")
        return self._predictors[name]

    def _unknown(self, name: Any) -> str:
        known = [*self, "ncm"]
        why = "this learner has no EMA copies; " if name in PREDICT_WITH else ""
        return f"unknown source {name!r:.40}; {why}choose {', '.join(known[:-1])} or {known[-1]}"

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
