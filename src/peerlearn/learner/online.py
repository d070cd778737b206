"""OnlineLearner: peers that learn a stream together."""

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from peerlearn.devices import moved
from peerlearn.distill import TEACHERS
from peerlearn.distill.distillation import Distillation
from peerlearn.distill.step import Step, mean_over_peers
from peerlearn.distill.teachers.base import Teacher
from peerlearn.errors import UserError
from peerlearn.learner import checkpoint
from peerlearn.learner.answering import Answering
from peerlearn.learner.growth import MOST_CLASSES, grown
from peerlearn.learner.inputs import (
    DISTANCES,
    PREDICT_WITH,
    Array,
    Devices,
    Distance,
    PredictWith,
    check_arguments,
    check_choice,
    check_steps,
    checked_images,
    checked_labels,
    network_of,
    usable_devices,
)
from peerlearn.learner.predictor import Predictor
from peerlearn.learner.side_by_side import NotAlone, SideBySide
from peerlearn.learner.turns import Turns
from peerlearn.learner.undo import AllOrNothing, Scope
from peerlearn.learner.validation import check_declared, check_networks
from peerlearn.learner.whole import Moving, Whole
from peerlearn.memory.base import Memory
from peerlearn.memory.reservoir import Reservoir
from peerlearn.methods.interface import LabelledImages, Method, Progress
from peerlearn.methods.replay import images
from peerlearn.peer.lanes import Lanes
from peerlearn.peer.model import Layout, PeerModel, Precision
from peerlearn.peer.optimizers import Optimizer
from peerlearn.peer.peer import Peer, State, part, prefixed
from peerlearn.peer.seeding import generator, private_randomness
from peerlearn.peer.torch_modes import RestoreTorchModes
from peerlearn.settings import flatten, nest
from peerlearn.storage import user_path


class OnlineLearner:
    """Learns a stream batch by batch, and predicts at any time, from any thread.

    Args:
        method: what a step trains on and with which loss.
        net: makes a network; called once per peer. Where classes are not announced it takes their
            number: `lambda n: small_net(n)`.
        distillation: how many peers there are and who teaches whom; one peer alone by default.
        memory: images kept for replay, 0 for no replay; or a memory of your own.
        seed: decides everything that is drawn. Global generators are left alone.
        optim: of every peer; the method's own by default.
        updates: steps per stream batch, each on a fresh draw of the memory; the method's own number
            by default, which is 1 for all but RAR.
        predict_with: "peers", their EMA copies ("ema"), the "average" of both, or nearest class
            means ("ncm"); the distillation's own networks by default.
        ncm_distance: of features to class means: "euclidean", or "cosine", which normalises both;
            the method's own by default, which is Euclidean for all of ours.
        device: where it runs; of several ("cuda:0,cuda:1", or a list) the peers have one after the
            other, and the first has the memory.
        precision: fp32, bf16 where the processor can, on CUDA also fp16 with loss scaling.
        layout: of images and weights in memory; auto is channels_last where that is safe.
        compile: let torch.compile make the networks' features, on CUDA with CUDA graphs; takes
            long to begin with and changes last digits. Peers then take turns.
        peers_at_once: peers that compute side by side, each with as many threads as torch has;
            changes no number. Torch takes all cores for one, so `torch.set_num_threads(1)` goes
            with it. Peers in a forked process, and those that share parts of their networks, take
            turns nevertheless; so do peers that are seen to draw from torch's global generator
            (dropout), or whose method assigns to itself, from then on and with a warning.

    >>> from peerlearn import StreamInfo, small_net
    >>> from peerlearn.methods import ER
    >>> learner = OnlineLearner(ER(StreamInfo(num_classes=4)), lambda: small_net(4), memory=50)
    >>> learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % 4)  # nothing to replay yet
    {}
    >>> sorted(learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % 4))
    ['base', 'lessons']
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
        check_arguments(net, distillation, optim, seed, updates)
        check_choice("ncm_distance", distance, DISTANCES)
        if predict_with is not None:
            check_choice("predict_with", predict_with, PREDICT_WITH)
        self.method = method
        self.recipe: dict[str, Any] | None = None  # what `restore` builds it from again
        self.distillation = d = distillation or Distillation()
        self._like = partial(  # a learner of other classes, to grow by
            OnlineLearner,
            net=net,
            distillation=d,
            memory=0,
            seed=seed,
            optim=optim,
            device=device,
            precision=precision,
            layout=layout,
        )
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
                "lessons; take base_weight=1"
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

        own_optim, own_seed, first = self.optim, self.seed, self.device  # closures without a cycle

        def new_peer(index: int, device: torch.device) -> Peer:
            return Peer(
                net,
                method.setup_peer,
                own_optim,
                seed=own_seed,
                index=index,
                device=device,
                precision=precision,
                layout=layout,
                compile=compile,
            )

        places = [self.devices[index % len(self.devices)] for index in range(d.peers)]
        self.peers = [new_peer(index, place) for index, place in enumerate(places)]
        if len({id(peer.model.net) for peer in self.peers}) < d.peers:
            raise UserError("network: net() must make a new network at each call, one per peer")
        more = count(d.peers)

        def teacher(name: str) -> Teacher:
            values = d.teachers.get(name, {})
            return TEACHERS[name](self.peers, lambda: new_peer(next(more), first), **values)

        self.teachers = {name: teacher(name) for name in d.teacher_names}
        self._turns = Turns()  # of those who learn, save or load
        self.whole = Whole()
        self._each_peer = SideBySide(self.peers, method, peers_at_once, compiled=compile)
        self._step = Step(
            self.peers,
            self._each_peer,
            method,
            d,
            self.teachers,
            self.memory,
            self.rngs,
            self.device,
            check_declared,
        )
        self.predictors = Answering(
            self.peers,
            self.teachers,
            d.predict_with if predict_with is None or predict_with == "ncm" else predict_with,
            predict_with or d.predict_with,
            distance=distance,
            method=method,
            memory=self.memory,
            device=self.device,
            whole=self.whole,
            lanes=self._each_peer.lanes_for_answers(),
        )

    @property
    def moving(self) -> Moving:
        """What a step moves at this moment, or was moving when it broke off."""
        return self.whole.moving

    @moving.setter
    def moving(self, what: Moving) -> None:
        self.whole.moving = what

    @property
    def predictor(self) -> Predictor:
        """The predictor that is used unless another is asked for."""
        return self.predictors.by(None)

    @property
    def lanes(self) -> Lanes:
        """In which the peers compute; one of them if they take turns."""
        return self._each_peer.lanes

    # --- learning

    def learn(self, x: Array, y: Array, *, remember: bool = True) -> dict[str, float]:
        """Take a step per peer on a batch of the stream, then offer the batch to the memory.

        x: (B, 3, H, W), uint8 or float in [0, 1]; y: (B,) whole numbers below the number of
        classes; where that is not announced, the learner grows to hold the largest. remember:
        whether the batch is offered to the memory and its images counted; not for those that pass
        again. Returns the losses by name, mean over the peers;
        empty if the method took no step. If it raises, all is as before and the same call would do
        the same again; should it break off in the moment in which weights or images move, the
        learner says so until a checkpoint is loaded.
        """
        if torch.is_inference_mode_enabled():
            raise UserError("learn: torch.inference_mode() is on; learn outside of it")
        with self._turns, RestoreTorchModes(*self.devices):
            raw, labels = self._checked(x, y)
            with self.sized(self._classes_with(labels)):
                batch = self._batch(raw, labels)
                if self.image_shape is None:
                    if not remember:
                        raise UserError(
                            "learn: remember=False is for what passes again; nothing has"
                        )
                    self.memory.check_room(raw)
                    check_networks(self, raw[:1])
                return self._side_by_side_or_in_turn(
                    lambda: self._learn_all_or_nothing(raw, batch, remember)
                )

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
                self.whole.refuse_torn()
                if not len(self.memory):
                    raise UserError(
                        "rehearse: the memory holds no image; learn() a batch first, with a "
                        "memory above 0"
                    )
                losses = self._side_by_side_or_in_turn(self._rehearse)
        return losses

    def _rehearse(self) -> dict[str, float]:
        with AllOrNothing(self, "before weights") as guard, torch.enable_grad():
            with private_randomness(self.rngs["layers"], *self.devices):
                losses, _ = self._step.gradients(None, self.progress)
            with self.whole.lock:
                self._move_weights()
                self.progress = self.progress.after_rehearsal()
                guard.done()
                self.moving = ""
        return losses

    def _side_by_side_or_in_turn(self, step: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Take a step; once more with the peers in turn if they turn out to share something."""
        try:
            return step()
        except NotAlone:
            self._each_peer.give_up()
            self.predictors.use(self._each_peer.lanes_for_answers())
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
            with self.sized(self._classes_with(labels)):
                self._batch(raw, labels)
                with AllOrNothing(self, "before weights") as guard:
                    slots = self.memory.choose(rows, self.rngs["memory"])
                    with self.whole.lock:
                        self._keep(rows, slots)
                        self.progress = self.progress.meeting(labels).after_skip()
                        guard.done()
                        self.moving = ""

    def _checked(self, x: Array, y: Array) -> tuple[Tensor, Tensor]:
        """A batch of the stream as the memory keeps it; labels on the CPU."""
        self.whole.refuse_torn()
        raw = moved(checked_images(x, self.image_shape), self.device)
        known = MOST_CLASSES if self.method.stream.grows else self.num_classes
        return raw, checked_labels(y, len(raw), known)

    def _batch(self, raw: Tensor, labels: Tensor) -> LabelledImages:
        """The same as methods see it, refused if this one cannot take it."""
        batch = LabelledImages(images(raw), labels)
        self.method.check(batch, self.progress)
        return batch

    # --- growing

    @property
    def num_classes(self) -> int:
        """Classes that it knows so far, and that its networks answer with."""
        return self.method.stream.num_classes

    def _classes_with(self, labels: Tensor) -> int:
        """How many there are once these labels, (B,), are among them."""
        return max(self.num_classes, int(labels.max()) + 1)

    def like(self, num_classes: int) -> "OnlineLearner":
        """A learner as this one was when it was built, but of so many classes."""
        method = copy.copy(self.method)
        method.stream = replace(method.stream, num_classes=num_classes)
        return self._like(method)

    def sized(self, num_classes: int) -> AbstractContextManager[None]:
        """Know so many classes within, and afterwards if all goes well."""
        if num_classes == self.num_classes or not self.method.stream.grows:
            return nullcontext()
        return grown(self, num_classes)

    def _learn_all_or_nothing(
        self, raw: Tensor, batch: LabelledImages, remember: bool
    ) -> dict[str, float]:
        # of several steps a later one may fail, when weights have moved
        scope: Scope = "before weights" if self.updates == 1 else "all but images"
        with AllOrNothing(self, scope) as guard, torch.enable_grad():
            return self._learn(raw, batch, remember, guard)

    def _learn(
        self, raw: Tensor, batch: LabelledImages, remember: bool, guard: AllOrNothing
    ) -> dict[str, float]:
        """Learn a batch that has been checked. raw: (B, 3, H, W) uint8; labels are on the CPU.

        The last weights and the images move together: nobody is to answer from new weights and
        old class means.
        """
        rows = {"x": raw, "y": batch.y}
        progress = self.progress.meeting(batch.y)
        batch = moved(batch, self.device)
        with private_randomness(self.rngs["layers"], *self.devices):
            for _ in range(self.updates - 1):
                if self._step.gradients(batch, progress)[1]:
                    self._move_weights()
            losses, outcomes = self._step.gradients(batch, progress)
            rows |= mean_over_peers([outcome.store for outcome in outcomes])
            carry = mean_over_peers([outcome.carry for outcome in outcomes])
            slots = self.memory.choose(rows, self.rngs["memory"]) if remember else []
            with self.whole.lock:
                if outcomes:
                    self._move_weights()
                if remember:
                    self._keep(rows, slots)
                met = progress if outcomes else self.progress  # one that was skipped is not met
                self.progress = met.after_batch(carry)
                self.predictors.image_shape = raw.shape[1:]
                guard.done()
                self.moving = ""
        return losses

    def _keep(self, rows: Mapping[str, Tensor], slots: Sequence[int]) -> None:
        """Write rows to the slots of the memory that were chosen for them."""
        self.moving = "images"
        self.memory.keep(rows, slots)

    def _move_weights(self) -> None:
        """Let every peer follow its gradients, and the teachers the peers."""
        self.moving = "weights"
        self._step.move()

    def end_task(self) -> None:
        """Say that a task has ended, if the stream has such boundaries."""
        if not self.method.stream.boundaries:
            raise UserError(
                "end_task(): this learner was told that its stream has no task boundaries; "
                "build it with StreamInfo(boundaries=True)"
            )
        with self._turns:
            if self.progress.step + self.progress.skipped == 0:
                raise UserError(
                    f"end_task(): task {self.progress.task} has had no batch yet; "
                    "call it once, after the last batch of a task"
                )
            self.whole.refuse_torn()
            with AllOrNothing(self, "all but images"):
                for peer in self.peers:
                    self.method.end_task(peer)
                self.progress = self.progress.after_task()

    # --- answering

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(3, H, W) of the images so far, None before the first."""
        return self.predictors.image_shape

    def answering(self, predict_with: PredictWith | None = None) -> Predictor:
        """Return the predictor of "peers", "ema", "average" or "ncm"; None: the learner's own."""
        return self.predictors.by(predict_with)

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
        return self.answering(answer if predict_with is None else predict_with).predict(x)

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
        predictor = self.answering(answer if predict_with is None else predict_with)
        return predictor.logits(x).softmax(dim=1)

    def logits(self, x: Array, peer: int | None = None) -> Tensor:
        """Return the mean of the logits of the networks that predict, (B, C), or one peer's."""
        who = self.predictor if peer is None else self.predictors["peers"]
        return who.logits(x, peer)

    def features(self, x: Array) -> Tensor:
        """Return the mean of the features of the networks that predict, (B, D)."""
        return self.predictor.features(x)

    def predict_ncm(self, x: Array) -> Tensor:
        """Return the class of the nearest class mean of the images in memory, (B,)."""
        return self.predictor.nearest_mean(x)

    # --- keeping

    @property
    def networks(self) -> list[PeerModel]:
        """Every network there is: of the peers, of what they keep, of their teachers."""
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
        """Bytes that it keeps between steps: images, what goes with them, and networks."""
        columns = self.memory.nbytes
        return {
            "images": columns.pop("x", 0),
            "extras": sum(columns.values()),
            "networks": sum(t.nbytes for n in self.networks for t in n.state_dict().values()),
        }

    def state_dict(self) -> State:
        """All that outlives a step, by dotted names: tensors, and what JSON can hold."""
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
        """Become the learner whose `state_dict()` this was."""
        with self._turns, self.whole.lock:
            self.predictors.image_shape = state["image_shape"]
            self.progress = Progress.from_state(part("progress", state), self.device)
            self.memory.load_state_dict(nest(part("memory", state)), self.device)
            for name, rng in self.rngs.items():
                rng.set_state(state[f"rng.{name}"])
            for i, peer in enumerate(self.peers):
                peer.load_state_dict(part(f"peer{i}", state))
            for name, teacher in self.teachers.items():
                teacher.load_state_dict(part(f"teacher.{name}", state))
            self.moving = ""
            self.predictors.refresh()

    def save(self, path: str | Path, extra: Any = None) -> None:
        """Write a checkpoint folder; a crash while writing leaves the one before it whole.

        extra: anything JSON can hold; `load` returns it.
        """
        with self._turns:
            self.whole.refuse_torn()
            checkpoint.save(self, user_path(path), extra)

    def load(self, path: str | Path) -> Any:
        """Go on exactly where the checkpoint was written.

        The learner must have been built with the same settings; if anything does not fit, nothing
        is changed.
        """
        with self._turns:
            return checkpoint.load(self, user_path(path))

    @classmethod
    def restore(
        cls,
        path: str | Path,
        *,
        net: Callable[..., nn.Module] | None = None,
        **options: Any,
    ) -> "OnlineLearner":
        """The learner of a checkpoint, from that alone.

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
        from peerlearn.learner.build import rebuilt  # builds learners of this class

        learner = rebuilt(checkpoint.recipe(user_path(path)), net, **options)
        learner.load(path)
        return learner
