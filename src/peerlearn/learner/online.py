"""OnlineLearner: peers that learn a stream together."""

import copy
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from peerlearn.config.learner_config import LearnerConfig
from peerlearn.config.names import PREDICT_WITH, PredictWith
from peerlearn.data.user_arrays import MAX_CLASSES, Array, checked_images, checked_labels
from peerlearn.devices import RestoreTorchModes, generator, moved, private_randomness
from peerlearn.distill import TEACHERS
from peerlearn.distill.distillation import Distillation, Networks
from peerlearn.distill.step import Step
from peerlearn.errors import UserError, did_you_mean
from peerlearn.files import user_path
from peerlearn.learner import checkpoint
from peerlearn.learner.parallel import FairLock, PeerPool, SharedStateError, warn_of_shared_state
from peerlearn.learner.resize import resize
from peerlearn.learner.snapshot import Snapshot, has_own_rule, predictors_of
from peerlearn.learner.transaction import Changing, Transaction, Undo
from peerlearn.learner.validation import check_networks
from peerlearn.losses import LabelledImages
from peerlearn.memory.base import Memory
from peerlearn.memory.reservoir import Reservoir
from peerlearn.methods.class_means import DISTANCES, Distance
from peerlearn.methods.interface import Method, Progress, images
from peerlearn.nets.base import check_net, network_of
from peerlearn.nets.processor import Devices, Precision, usable_devices
from peerlearn.optim.optimizers import Optimizer
from peerlearn.peer import Fingerprint, Layout, Peer, PeerModel, State, part, prefixed
from peerlearn.settings import (
    OLD_PREDICT_WITH,
    check_choice,
    check_steps,
    check_whole,
    flatten,
    nest,
)

MACHINE_OPTIONS = ("device", "compile", "peers_at_once")  # not recorded


class OnlineLearner:
    """Learns a stream batch by batch, and predicts at any time, from any thread.

    Args:
        method: what a step trains on and with which loss.
        net: makes a network; called once per peer. Where classes are not announced it takes their
            number: `lambda n: small_net(n)`.
        distillation: how many peers there are, and their edges; one peer alone by default.
        memory: images kept for replay, 0 for no replay; or a memory of your own.
        seed: decides everything that is drawn. Global generators are left alone.
        optim: of every peer; the method's own by default.
        updates: steps per stream batch, each on a fresh draw of the memory; the method's own number
            by default.
        predict_with: "peers", their EMA copies ("ema"), the "average" of both, or nearest class
            means ("ncm"); the distillation's own networks by default.
        ncm_distance: of features to class means: "euclidean", or "cosine", which normalises both;
            the method's own by default.
        device: where it runs; of several ("cuda:0,cuda:1", or a list) the peers have one after the
            other, and the first has the memory.
        precision: fp32, bf16 where the processor can, on CUDA also fp16 with loss scaling.
        layout: of images and weights in memory; auto is channels_last where that is safe.
        compile: let torch.compile make the networks' features, on CUDA with CUDA graphs; takes
            long to begin with and changes last digits. Peers then take turns.
        peers_at_once: peers that compute side by side, each with as many threads as torch has, so
            `torch.set_num_threads(1)` goes with it; changes no number. Peers take turns all the
            same in a forked process, if their networks share parts and, from then on and with a
            warning, once they draw from torch's global generator or change their method.

    Attributes:
        version: the number of calls so far that changed what is learnt or remembered.
        image_shape: (3, H, W) of the images so far, None before the first.
        changing: the part of its state that it changes now or broke off changing; "" if whole.

    >>> from peerlearn import StreamInfo, small_net
    >>> from peerlearn.methods import ER
    >>> learner = OnlineLearner(ER(StreamInfo(num_classes=4)), lambda: small_net(4), memory=50)
    >>> learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % 4)  # nothing to replay yet
    {}
    >>> sorted(learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % 4))
    ['base', 'distill']
    """

    def __init__(
        self,
        method: Method[Any],
        net: Callable[..., nn.Module],
        distillation: Distillation | None = None,
        *,
        memory: int | Memory,
        seed: int = 0,
        optim: Optimizer | None = None,
        updates: int | None = None,
        predict_with: PredictWith | None = None,
        ncm_distance: Distance | None = None,
        device: Devices = "cpu",
        precision: Precision = "fp32",
        layout: Layout = "auto",
        compile: bool = False,
        peers_at_once: int = 1,
    ) -> None:
        self.devices = usable_devices(device, precision)
        self.device = self.devices[0]  # of the memory, of what is drawn and of teachers
        updates = method.preset.get("updates", 1) if updates is None else updates
        if predict_with is None:
            predict_with = method.preset.get("predict_with")
        distance: Distance = ncm_distance or method.preset.get("ncm_distance", "euclidean")
        _check_arguments(net, distillation, optim, seed, updates)
        check_choice("ncm_distance", distance, DISTANCES)
        if predict_with is not None:
            check_choice("predict_with", predict_with, PREDICT_WITH)
        self.method = method
        self.config: LearnerConfig | None = None  # what it is built from again, see `restore`
        self.distillation = d = distillation or Distillation()
        self._untrained = partial(  # a learner of other classes, to resize by
            OnlineLearner, net=net, distillation=d, memory=0, seed=seed, optim=optim,
            device=device, precision=precision, layout=layout,
        )  # fmt: skip
        if method.stream.grows:
            known = max(1, method.stream.num_classes)  # a head has a row before the first label
            method.stream = replace(method.stream, num_classes=known)
            net = network_of(net, known)
        if not method.gives_logits and d.needs_logits:
            raise UserError(
                f"{method.name} has no classifier that could teach or be taught; take "
                f"{method.name} alone"
            )
        if not (d.base_weight or d.student_views or d.method_batch_edges):
            raise UserError(
                "nothing is learnt: base_weight is 0, and there are neither labels on views nor "
                "edges; take base_weight=1"
            )
        self.optim = optim or method.optim
        self.seed, self.updates = operator.index(seed), operator.index(updates)
        self.precision = precision
        if not isinstance(memory, Memory):
            memory = Reservoir(memory if method.uses_memory else 0)
        self.memory = memory
        self.progress = Progress(torch.full((method.stream.num_classes,), -1))
        purposes = ("draws", "views", "memory", "layers")
        self.rngs = {purpose: generator(self.seed, purpose) for purpose in purposes}

        new_peer = partial(
            Peer, net, method.setup_peer, self.optim, seed=self.seed, precision=precision,
            layout=layout, compile=compile,
        )  # fmt: skip
        places = [self.devices[index % len(self.devices)] for index in range(d.peers)]
        self.peers = [new_peer(index=index, device=place) for index, place in enumerate(places)]
        if len({id(peer.model.net) for peer in self.peers}) < d.peers:
            raise UserError("network: net() must make a new network at each call, one per peer")
        numbers, first = count(d.peers), self.device  # closures hold no learner: no cycle
        self.teachers = {
            name: TEACHERS[name](
                self.peers,
                lambda: new_peer(index=next(numbers), device=first),
                **d.teachers.get(name, {}),
            )
            for name in d.teacher_names
        }
        self.predict_with: PredictWith = predict_with or d.predict_with
        self.predictors = predictors_of(self.peers, self.teachers)
        self._networks: Networks = (
            d.predict_with if self.predict_with == "ncm" else self.predict_with
        )
        self._check_source(self._networks)
        self.ncm_distance: Distance = distance
        self.image_shape: tuple[int, ...] | None = None
        self.pool = PeerPool.of_peers(self.peers, peers_at_once, compiled=compile)
        # as many threads again, so that predictions do not wait for a step
        self.prediction_pool = PeerPool(self.pool.count, [peer.device for peer in self.peers])
        self._step = Step(
            self.peers, self.pool, method, d, self.teachers, self.memory, self.rngs, self.device
        )
        self.version = 0
        self.changing: Changing = ""
        self.transaction: Transaction | None = None  # that is under way, or was interrupted
        self._turns = FairLock()  # of threads that learn, save or load
        self.state_lock = threading.RLock()  # while images in memory change or are copied
        self._published: Snapshot | None = None  # the last one
        self._fingerprint: Fingerprint | None = None  # of the state that it is of

    # --- learning

    def learn(
        self, x: Array, y: Array, *, remember: bool = True, new_task: bool = False
    ) -> dict[str, float]:
        """Take `updates` steps per peer on a stream batch, then offer the batch to the memory.

        x: (B, 3, H, W), uint8 or float in [0, 1]; y: (B,) whole numbers below the number of
        classes; where that is not announced, the learner grows to hold the largest. remember:
        whether the batch is offered to the memory and its images counted; not for those that pass
        again. new_task: whether a task ends before this batch, as by `end_task()`. Returns the
        last losses by name, mean over the peers; empty if no step was taken. If it raises, all is
        as before, but if weights or images were moving: then a checkpoint has to be loaded.
        """
        if torch.is_inference_mode_enabled():
            raise UserError("learn: torch.inference_mode() is on; learn outside of it")
        with self._turns, RestoreTorchModes(*self.devices):
            raw, labels = self._checked(x, y)
            if self.image_shape is None:
                if not remember:
                    raise UserError("learn: remember=False is for what passes again; nothing has")
                self.memory.check_room(raw)
            # of several steps a later one may fail, when weights have moved
            undo: Undo = "weights" if self.updates > 1 or new_task else "statistics"
            return self._in_parallel(
                lambda: self._learn(raw, labels, undo, remember=remember, new_task=new_task)
            )

    def _learn(
        self, raw: Tensor, labels: Tensor, undo: Undo, *, remember: bool, new_task: bool
    ) -> dict[str, float]:
        """Learn a batch. raw: (B, 3, H, W) uint8; labels, (B,), are on the CPU."""
        with Transaction(self, undo) as transaction, torch.enable_grad():
            if new_task:
                self._check_end_of_task()
                self._end_task()
            if (classes := self._classes_with(labels)) > self.num_classes:
                resize(self, classes)
            batch = self._batch(raw, labels)
            if self.image_shape is None:
                check_networks(self, raw[:1])
            rows = {"x": raw, "y": labels}
            progress = self.progress.meeting(labels)
            batch = moved(batch, self.device)
            with private_randomness(self.rngs["layers"], *self.devices):
                for _ in range(self.updates - 1):
                    if self._step.gradients(batch, progress)[1]:
                        self._move_weights()
                losses, output = self._step.gradients(batch, progress)
                rows |= output.store if output else {}
                slots = self.memory.choose(rows, self.rngs["memory"]) if remember else []
                if output:
                    self._move_weights()
                with self.state_lock:  # no prediction from new weights and old class means
                    if remember:
                        self._keep(rows, slots)
                    met = progress if output else self.progress  # one that was skipped is not met
                    self.progress = met.after_batch(output.carry if output else {})
                    self.image_shape = tuple(raw.shape[1:])
                    transaction.commit()
        return losses

    def rehearse(self, steps: int = 1) -> dict[str, float]:
        """Take steps on the memory alone, without a batch of the stream.

        Returns the losses of the last step by name, mean over the peers. Each step is taken whole
        or not at all: if one raises, those before it stay, and `progress.rehearsed` counts them.
        """
        check_steps(steps)
        if torch.is_inference_mode_enabled():
            raise UserError("rehearse: torch.inference_mode() is on; rehearse outside of it")
        losses: dict[str, float] = {}
        for _ in range(steps):
            with self._turns, RestoreTorchModes(*self.devices):
                self._begin_call()
                if self.method.can_rehearse():  # others say below why they cannot
                    self._check_memory_to_rehearse()
                losses = self._in_parallel(self._rehearse)
        return losses

    def _check_memory_to_rehearse(self) -> None:
        if not self.method.uses_memory:
            raise UserError(f"rehearse: {self.method.name} keeps no images; take er, for example")
        if not self.memory.capacity:
            raise UserError("rehearse: there is no memory; build the learner with one")
        if not len(self.memory):
            raise UserError("rehearse: the memory holds no image; learn() a batch first")

    def _rehearse(self) -> dict[str, float]:
        with Transaction(self, "statistics") as transaction, torch.enable_grad():
            with private_randomness(self.rngs["layers"], *self.devices):
                losses, output = self._step.gradients(None, self.progress)
            if output:
                self._move_weights()
            self.progress = self.progress.after_rehearsal()
            transaction.commit()
        return losses

    def _in_parallel(self, step: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Take a step; once more with the peers in turn if they turn out to share something."""
        try:
            return step()
        except SharedStateError:
            self.pool.fall_back_to_sequential()
            self.prediction_pool.fall_back_to_sequential()
            warn_of_shared_state()
            return step()

    def skip(self, x: Array, y: Array, *, remember: bool = False) -> None:
        """Let a batch of the stream pass without a step: there is no time, or no budget, for it.

        remember: whether it is offered to the memory nevertheless; not for methods that keep what
        only a step finds out. The first batch of all must be learnt.
        """
        with self._turns, RestoreTorchModes(*self.devices):
            raw, labels = self._checked(x, y)
            if self.image_shape is None:
                raise UserError("skip: nothing has been learnt yet; learn() the first batch")
            if not remember:
                if int(labels.max()) < self.num_classes:
                    self._batch(raw, labels)
                self.progress = self.progress.after_skip()
                return
            if stores := [*self.method.stores]:
                raise UserError(
                    f"skip: {self.method.name} keeps {' and '.join(stores)} with its images, which "
                    "only a step finds out; take remember=False"
                )
            rows = {"x": raw, "y": labels}
            with Transaction(self, "statistics") as transaction:
                if (classes := self._classes_with(labels)) > self.num_classes:
                    resize(self, classes)
                self._batch(raw, labels)
                slots = self.memory.choose(rows, self.rngs["memory"])
                with self.state_lock:
                    self._keep(rows, slots)
                    self.progress = self.progress.meeting(labels).after_skip()
                    transaction.commit()

    def _checked(self, x: Array, y: Array) -> tuple[Tensor, Tensor]:
        """Return a batch of the stream as the memory keeps it; labels on the CPU."""
        self._begin_call()
        raw = moved(checked_images(x, self.image_shape), self.device)
        known = MAX_CLASSES if self.method.stream.grows else self.num_classes
        return raw, checked_labels(y, len(raw), known)

    def _batch(self, raw: Tensor, labels: Tensor) -> LabelledImages:
        """Return the same as methods see it, refused if this one cannot take it."""
        batch = LabelledImages(images(raw), labels)
        self.method.check(batch, self.progress)
        return batch

    # --- growing

    @property
    def num_classes(self) -> int:
        """Classes that it knows so far, and that its networks predict."""
        return self.method.stream.num_classes

    def _classes_with(self, labels: Tensor) -> int:
        """Return the number of classes with these labels, (B,), among them."""
        return max(self.num_classes, int(labels.max()) + 1)

    def untrained(self, num_classes: int) -> "OnlineLearner":
        """Return a learner as this one was when it was built, but of so many classes."""
        method = copy.copy(self.method)
        method.stream = replace(method.stream, num_classes=num_classes)
        return self._untrained(method)

    def _keep(self, rows: Mapping[str, Tensor], slots: Sequence[int]) -> None:
        """Write rows to the slots of the memory that were chosen for them."""
        self.changing = "images"
        self.memory.keep(rows, slots)

    def _move_weights(self) -> None:
        """Let every peer follow its gradients, and the teachers the peers."""
        self.changing = "weights"
        self._step.move()

    def end_task(self) -> None:
        """Mark the end of a task, if the stream has such boundaries."""
        with self._turns, RestoreTorchModes(*self.devices):
            self._begin_call()
            self._check_end_of_task()
            with Transaction(self, "weights") as transaction:
                self._end_task()
                transaction.commit()

    def _check_end_of_task(self) -> None:
        if not self.method.stream.boundaries:
            raise UserError(
                "end_task(): this learner was told that its stream has no task boundaries; "
                "build it with StreamInfo(boundaries=True)"
            )
        if self.progress.step + self.progress.skipped == 0:
            raise UserError(
                f"end_task(): task {self.progress.task} has had no batch yet; "
                "call it once, after the last batch of a task"
            )

    def _end_task(self) -> None:
        for peer in self.peers:
            self.method.end_task(peer)
        self.progress = self.progress.after_task()

    def check_images(self, x: Array) -> None:
        """Refuse images of a size that the networks do not take; for before the first batch."""
        with self._turns:
            check_networks(self, checked_images(x, self.image_shape)[:1])

    def _begin_call(self, *, may_be_broken: bool = False) -> None:
        """Refuse a call from within a step or in a broken state; undo what was interrupted."""
        if self._turns.depth > 1:
            raise UserError(
                "a learner cannot learn, save or load from within its own step; do it when learn() "
                "has returned"
            )
        if self.transaction is not None:
            self.transaction.undo()
        if not may_be_broken:
            self.raise_if_broken()

    def raise_if_broken(self) -> None:
        """Raise if a step broke off in a moment in which it could not be undone."""
        if self.changing:
            raise UserError(
                f"the last step broke off while it moved {self.changing}, some have and some have "
                "not: load() the last checkpoint, or build the learner anew"
            )

    # --- predicting

    @property
    def sources(self) -> tuple[Networks, ...]:
        """The networks that can predict: "peers", and "ema" and "average" with an EMA teacher."""
        return self.predictors.sources

    def snapshot(
        self, predict_with: PredictWith | None = None, *, memory: bool = False
    ) -> Snapshot:
        """Return the state to predict with at this moment; learning does not change it.

        During a step it is the state before the step, and nothing waits for the step. A change by
        hand is seen if torch counts it, see `Fingerprint`; call `refresh()` after others.

        predict_with: "peers", "ema", "average" or "ncm"; the learner's own by default. memory:
        whether class means will be asked for, which takes a copy of the images in memory.
        """
        source: Any = self.predict_with if predict_with is None else predict_with
        source = OLD_PREDICT_WITH.get(source, source) if isinstance(source, str) else source
        networks: Networks = self._networks if source == "ncm" else source
        self._check_source(networks)
        if memory and not len(self.memory):
            raise UserError("nearest class means: the memory holds no image; keep some first")
        with self.state_lock:
            state = self.publish()
            wanted = memory or source == "ncm" or has_own_rule(self.method)
            is_whole = state.version == self.version and self.changing != "images"
            if wanted and not state.has_memory and len(self.memory) and is_whole:
                rows = map(self.memory.room, self.memory.columns)
                self._fingerprint = self._take_fingerprint(*rows)
                state.keep_memory(self.memory)
            return state.using(networks, means=source == "ncm")

    def publish(self) -> Snapshot:
        """Return a snapshot of the present state; while that changes, the one of before."""
        with self.state_lock:
            is_whole = self.transaction is None and not self.changing
            if is_whole and not self._is_published():
                last, fingerprint = self._published, self._fingerprint
                self._published = self._fingerprint = None  # until the snapshot is whole
                if last and fingerprint and not last.is_used and fingerprint.has_same_parts():
                    fingerprint.renew()  # before the copy: what is written meanwhile is seen
                    last.renew(self, fingerprint.tensors)
                else:
                    fingerprint, last = self._take_fingerprint(), Snapshot(self)
                self._published, self._fingerprint = last, fingerprint
            if self._published is None:
                self.raise_if_broken()
            assert self._published is not None, "a transaction begins with a snapshot"
            return self._published

    def _is_published(self) -> bool:
        return (
            self._published is not None
            and self._fingerprint is not None
            and self._published.version == self.version
            and self._published.memory_changes == self.memory.changes
            and self._fingerprint.is_current()
        )

    def _take_fingerprint(self, *rows: Tensor) -> Fingerprint:
        return Fingerprint(chain(*self.predictors.by_source.values()), rows)

    def refresh(self) -> None:
        """Call this after changing weights as torch does not count: by NumPy or through `.data`."""
        self._fingerprint = None

    def _check_source(self, source: Any) -> None:
        if not isinstance(source, str) or source not in self.sources:
            known = [*self.sources, "ncm"]
            why = "this learner has no EMA copies; " if source in PREDICT_WITH else ""
            raise UserError(
                f"predict_with: unknown source {source!r:.40}; {why}choose "
                f"{', '.join(known[:-1])} or {known[-1]}"
            )

    def predict(
        self,
        x: Array,
        predict_with: PredictWith | None = None,
        *,
        answer: PredictWith | None = None,
    ) -> Tensor:
        """Return the most likely class of each image, (B,). Images as for `learn`.

        predict_with: "peers", "ema", "average" or "ncm"; the learner's own by default. answer: the
        old name of `predict_with`.
        """
        return self.snapshot(answer if predict_with is None else predict_with).predict(x)

    def predict_proba(
        self,
        x: Array,
        predict_with: PredictWith | None = None,
        *,
        answer: PredictWith | None = None,
    ) -> Tensor:
        """Return the probability of each class, (B, C); of "ncm" a softmax of squared distances."""
        if not self.method.gives_logits:
            raise UserError(f"predict_proba: {self.method.name} has no probabilities; take predict")
        source = answer if predict_with is None else predict_with
        return self.snapshot(source).logits(x).softmax(dim=1)

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """Return the mean of the logits of the networks that predict, (B, C), or one peer's."""
        return self.snapshot(None if peer is None else "peers").logits(x, peer)

    def features(self, x: Array) -> Tensor:
        """Return the mean of the features of the networks that predict, (B, D)."""
        return self.snapshot().features(x)

    def predict_ncm(self, x: Array) -> Tensor:
        """Return the class of the nearest class mean of the images in memory, (B,)."""
        return self.snapshot("ncm", memory=True).nearest_mean(x)

    # --- keeping

    @property
    def networks(self) -> list[PeerModel]:
        """All networks: the peers' present and previous models, and those of their teachers."""
        of_peers = [network for peer in self.peers for network in peer.networks]
        return of_peers + [n for teacher in self.teachers.values() for n in teacher.networks]

    @property
    def cost(self) -> dict[str, int]:
        """Images that have passed forward and backward while learning, over all networks."""
        return {
            "stream_images": self.memory.seen,
            "forward_images": sum(network.forwards for network in self.networks),
            "backward_images": sum(network.backwards for network in self.networks),
        }

    @property
    def kept_bytes(self) -> dict[str, int]:
        """Bytes that it keeps between steps: images, what goes with them, and networks.

        The snapshot of the last state, which comes on top, has networks of its own of the same
        size, and images once class means were asked for.
        """
        columns = self.memory.nbytes
        return {
            "images": columns.pop("x", 0),
            "extras": sum(columns.values()),
            "networks": sum(t.nbytes for n in self.networks for t in n.state_dict().values()),
        }

    def state_dict(self) -> State:
        """Return all that outlives a step, by dotted names: tensors, and what JSON can hold."""
        state = {"image_shape": self.image_shape}
        state |= prefixed("progress", self.progress.state_dict())
        state |= prefixed("memory", flatten(self.memory.state_dict()))
        state |= prefixed("rng", {name: rng.get_state() for name, rng in self.rngs.items()})
        for i, peer in enumerate(self.peers):
            state |= prefixed(f"peer{i}", peer.state_dict())
        for name, teacher in self.teachers.items():
            state |= prefixed(f"teacher.{name}", teacher.state_dict())
        return state

    def load_state_dict(self, state: State) -> None:
        """Load a state from `state_dict()`, unchecked; `load()` checks it first."""
        with self._turns, self.state_lock, RestoreTorchModes(*self.devices):
            self.changing = "weights"  # until all of it is there
            self.clear_gradients()
            shape = state["image_shape"]
            self.image_shape = None if shape is None else tuple(shape)
            self.progress = Progress.from_state(part("progress", state), self.device)
            self.memory.load_state_dict(nest(part("memory", state)), self.device)
            for name, rng in self.rngs.items():
                rng.set_state(state[f"rng.{name}"])
            for i, peer in enumerate(self.peers):
                peer.load_state_dict(part(f"peer{i}", state))
            for name, teacher in self.teachers.items():
                teacher.load_state_dict(part(f"teacher.{name}", state))
            self.changing = ""

    def clear_gradients(self) -> None:
        """Forget gradients that no step has followed."""
        for peer in self.peers:
            peer.optimizer.zero_grad(set_to_none=True)

    def save(self, path: str | Path, extra: Any = None) -> None:
        """Write a checkpoint folder; a crash while writing leaves the one before it whole.

        extra: anything JSON can hold; `load` returns it.
        """
        with self._turns, RestoreTorchModes(*self.devices):
            self._begin_call()
            checkpoint.save(self, user_path(path), extra)

    def load(self, path: str | Path) -> Any:
        """Load a checkpoint and resume exactly there.

        The learner must have been built with the same settings; if anything does not fit, nothing
        is changed.
        """
        with self._turns, RestoreTorchModes(*self.devices):
            self._begin_call(may_be_broken=True)
            self.pool.wait()
            return checkpoint.load(self, user_path(path))

    @classmethod
    def restore(
        cls,
        path: str | Path,
        *,
        net: Callable[..., nn.Module] | None = None,
        **options: Any,
    ) -> "OnlineLearner":
        """Build the learner of a checkpoint and load it.

        net: makes its network, if that was made by a function and not by its name. options: of
        `OnlineLearner`, where this machine differs: device, compile, peers_at_once.

        >>> import tempfile
        >>> from peerlearn import StreamInfo, build_learner
        >>> learner = build_learner("er+ccldc", StreamInfo(num_classes=4), "small", memory=50)
        >>> _ = learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     learner.save(folder)
        ...     OnlineLearner.restore(folder).progress.batches
        1
        """
        learner = cls.from_config(checkpoint.config_of(user_path(path)), net, **options)
        learner.load(path)
        return learner

    @classmethod
    def from_config(
        cls, config: LearnerConfig, net: Callable[..., nn.Module] | None = None, **options: Any
    ) -> "OnlineLearner":
        """Return the learner of a configuration, untrained; arguments as for `restore`."""
        for option in (option for option in options if option not in MACHINE_OPTIONS):
            why = "as the checkpoint says what its learner is"
            known = ("net", *MACHINE_OPTIONS)
            raise UserError(did_you_mean(f"restore: takes no {option!r:.60}, {why}", option, known))
        learner = cls(**config.arguments(net), **options)
        learner.config = config.replace(
            values=flatten({group: part.model_dump() for group, part in config.chosen.items()}),
            seed=learner.seed,
            updates=learner.updates,
            predict_with=learner.predict_with,
        )
        return learner


def _check_arguments(net: Any, distillation: Any, optim: Any, seed: Any, updates: Any) -> None:
    """Refuse what is not what a learner is made of."""
    if torch.is_inference_mode_enabled():
        raise UserError(
            "learner: torch.inference_mode() is on, and what is made there can never learn; build "
            "or restore it outside of it"
        )
    check_net(net)
    if not isinstance(distillation, Distillation | None):
        raise UserError(
            f"distillation: need a Distillation, got {distillation!r:.60}; for a wrapper by its "
            'name take build_learner("er+ccldc", ...)'
        )
    if not isinstance(optim, Optimizer | None):
        raise UserError(f"optim: need peerlearn.AdamW(...) or the like, got {optim!r:.60}")
    check_whole("seed", seed)
    check_steps(updates, "updates")
