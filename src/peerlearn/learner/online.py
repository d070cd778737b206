"""OnlineLearner: peers that learn a stream together."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from peerlearn.errors import UserError
from peerlearn.learner import checkpoint
from peerlearn.learner.check import checked_images, checked_labels
from peerlearn.learner.collaboration import Collaboration, Discussion, discuss
from peerlearn.losses import class_means, distill
from peerlearn.memory import Reservoir
from peerlearn.methods.base import Group, Method, Outcome, Progress, images
from peerlearn.peer import Brain, Optim, Peer, Precision, generator, private_randomness

Images = Tensor | np.ndarray[Any, Any]
EVAL_BATCH = 250  # images per forward when predicting


class OnlineLearner:
    """Learns a stream batch by batch, and predicts at any time.

    Args:
        method: what a step trains on and with which loss.
        net: makes a network; called once per peer.
        collaboration: how many peers there are and what they teach each other; none by default.
        memory: images kept for replay; 0 for no replay.
        seed: decides everything that is drawn. Global generators are left alone.
        optim: of every peer; the method's own by default.
        updates: steps per stream batch, each on a fresh draw of the memory.
        device: where it runs.
        precision: fp32; on CUDA also bf16, or fp16 with loss scaling.
    """

    def __init__(
        self,
        method: Method[Any],
        net: Callable[[], nn.Module],
        collaboration: Collaboration | None = None,
        *,
        memory: int,
        seed: int = 0,
        optim: Optim | None = None,
        updates: int = 1,
        device: str | torch.device = "cpu",
        precision: Precision = "fp32",
    ) -> None:
        self.device = _usable(device)
        if updates < 1:
            raise UserError(f"updates must be at least 1, got {updates}")
        if precision not in ("fp32", "bf16", "fp16"):
            raise UserError(f"precision must be fp32, bf16 or fp16, got {precision!r}")
        if precision != "fp32" and self.device.type != "cuda":
            raise UserError(
                f"precision {precision} needs device='cuda', got {self.device.type!r}: on some "
                "processors low precision ends the process; take precision='fp32'"
            )
        memory, seed, updates = (operator.index(number) for number in (memory, seed, updates))
        self.method = method
        self.collaboration = c = collaboration or Collaboration()
        self.optim = optim or method.optim
        self.seed, self.updates, self.precision = seed, updates, precision
        self.memory = Reservoir(memory)
        first_met = torch.full((method.stream.num_classes,), -1, device=self.device)
        self.progress = Progress(first_met)
        self.image_shape: tuple[int, ...] | None = None  # known from the first batch on
        purposes = ("draws", "views", "memory", "layers")
        self.rngs = {purpose: generator(seed, purpose) for purpose in purposes}

        def new_peer(index: int) -> Peer:
            return Peer(
                net,
                method.equip,
                self.optim,
                seed=seed,
                index=index,
                device=self.device,
                precision=precision,
            )

        self.peers = [new_peer(index) for index in range(c.peers)]
        self.frozen: Brain | None = None
        if len({id(peer.brain.net) for peer in self.peers}) < c.peers:
            raise UserError("network: net() must make a new network at each call, one per peer")
        if c.teacher == "frozen":  # born like one more peer, and left as it is
            self.frozen = new_peer(c.peers).brain.requires_grad_(False)

    # --- learning

    def learn(self, x: Images, y: Images) -> dict[str, float]:
        """Take a step per peer on a batch of the stream, then remember the batch.

        x: (B, 3, H, W), uint8 or float in [0, 1]; y: (B,) whole numbers below the number of
        classes. Returns the losses by name, mean over the peers; empty if the method took no step.
        """
        raw = checked_images(x, self.image_shape).to(self.device)
        labels = checked_labels(y, len(raw), self.method.stream.num_classes).to(self.device)
        batch = Group(images(raw), labels)
        self.method.check(batch, self.progress)
        if self.image_shape is None:
            self._check_heads(batch.x[:1])
        progress = self.progress.meeting(labels)
        losses: dict[str, float] = {}
        outcomes: list[Outcome] = []
        with private_randomness(self.rngs["layers"], self.device):
            for _ in range(self.updates):
                losses, outcomes = self._update(batch, progress)
        remember = _mean_over_peers([outcome.remember for outcome in outcomes])
        self.memory.add(self.rngs["memory"], x=raw, y=labels, **remember)
        notes = _mean_over_peers([outcome.notes for outcome in outcomes])
        self.progress = progress.after_batch(notes)
        self.image_shape = tuple(raw.shape[1:])
        return losses

    def _update(self, batch: Group, progress: Progress) -> tuple[dict[str, float], list[Outcome]]:
        """One step of every peer; all losses are computed before any of them moves."""
        c = self.collaboration
        for peer in self.peers:  # a step that was interrupted may have left some
            peer.optimizer.zero_grad(set_to_none=True)
        draw = self.method.draw(batch, self.memory, progress, self.rngs["draws"])
        if draw is None:
            return {}, []
        outcomes, losses = [], []
        for peer in self.peers:
            outcome = self.method.loss(peer, draw)
            lessons = self._own_lessons(outcome)
            peer.backward(c.base_weight * outcome.loss + c.lesson_weight * lessons)
            outcomes.append(outcome._replace(answers=[]))  # their graph is spent
            losses.append({"base": outcome.loss.detach(), "lessons": lessons.detach()})
        if c.looks_at_views:
            groups = self.method.groups(draw, self.memory, self.rngs["views"])
            for peer, discussion, loss in zip(
                self.peers, self._discuss(groups), losses, strict=True
            ):
                peer.backward(discussion.weighted(c))
                loss["labels"] = discussion.labels.detach()
                loss["lessons"] += discussion.lessons.detach()
        means = {name: float(value) for name, value in _mean_over_peers(losses).items()}
        if not np.isfinite(list(means.values())).all():
            raise UserError(
                f"the loss is not finite any more ({means}) at batch {progress.batches} of the "
                "stream; the step was not taken. Load the last checkpoint, or take a smaller lr"
            )
        for peer in self.peers:
            peer.step()
        return means, outcomes

    def _own_lessons(self, outcome: Outcome) -> Tensor:
        """Lessons of the frozen teacher on the batches that the method trained on."""
        lessons = outcome.loss.new_zeros(())
        if self.frozen is None or not self.collaboration.own_lessons:
            return lessons
        for x, logits in outcome.answers:
            with torch.no_grad():
                teacher = self.frozen.logits(x)
            lessons = lessons + distill(logits, teacher, temperature=self.collaboration.temperature)
        return lessons * self.collaboration.own_lessons

    def _discuss(self, groups: Sequence[Group]) -> list[Discussion]:
        """The collaborative loss of every peer: the same pixels for all, each view on its own."""
        c = self.collaboration
        found = [[] for _ in self.peers]  # type: list[list[Discussion]]
        for group in groups:
            views = c.chain(group.x, self.rngs["views"])
            answers = [_answers(peer.brain, views) for peer in self.peers]
            teachers = self._teachers(answers, views)
            for parts, student, teacher in zip(found, answers, teachers, strict=True):
                parts.append(discuss(student, teacher, group, c))
        return [
            Discussion(*(torch.stack(sums).sum() for sums in zip(*parts, strict=True)))
            for parts in found
        ]

    def _teachers(self, answers: list[list[Tensor]], views: list[Tensor]) -> list[list[Tensor]]:
        """Whom each peer listens to: a teacher's logits by view."""
        if self.collaboration.teacher == "self" or not self.collaboration.view_edges:
            return answers
        if self.frozen is not None:
            with torch.no_grad():
                return [_answers(self.frozen, views)] * len(answers)
        others = [answers[:i] + answers[i + 1 :] for i in range(len(answers))]
        return [
            [torch.stack(logits).mean(dim=0) for logits in zip(*peers, strict=True)]
            for peers in others
        ]

    def end_task(self) -> None:
        """Say that a task has ended, if the stream has such boundaries."""
        if not self.method.stream.boundaries:
            raise UserError(
                "end_task(): this learner was told that its stream has no task boundaries; "
                "build it with StreamInfo(boundaries=True)"
            )
        if self.progress.step == 0:
            raise UserError(
                f"end_task(): task {self.progress.task} has had no batch yet; "
                "call it once, after the last batch of a task"
            )
        for peer in self.peers:
            self.method.end_task(peer)
        self.progress = self.progress.after_task()

    def _check_heads(self, x: Tensor) -> None:
        """Every network takes such images, (1, 3, H, W), and answers as many classes as needed."""
        classes = self.method.stream.num_classes
        for peer in self.peers:
            with torch.no_grad(), _evaluating([peer.brain]):
                answered = tuple(peer.logits(x).shape)
            if answered != (1, classes):
                raise UserError(
                    f"network: answers {answered[-1]} classes, the stream has {classes}; "
                    f"make it with num_classes={classes}"
                )

    # --- answering

    def predict(self, x: Images) -> Tensor:
        """The most likely class of each image, (B,). Images as for `learn`."""
        return self.logits(x).argmax(dim=1)

    def predict_proba(self, x: Images) -> Tensor:
        """The probability of each class, (B, C)."""
        return self.logits(x).softmax(dim=1)

    def logits(self, x: Images, peer: int | None = None) -> Tensor:
        """(B, C): the mean of the peers' logits, or one peer's."""
        if peer is not None and not 0 <= peer < len(self.peers):
            raise UserError(f"peer must be from 0 to {len(self.peers) - 1}, got {peer}")
        chosen = self.peers if peer is None else [self.peers[peer]]
        return self._ask(x, [p.brain for p in chosen], features=False)

    def features(self, x: Images) -> Tensor:
        """(B, D): the mean of the peers' features."""
        return self._ask(x, [p.brain for p in self.peers], features=True)

    def predict_ncm(self, x: Images) -> Tensor:
        """The class of the nearest class mean, (B,).

        Means are of the features of the images in memory, so only classes that it holds can be
        predicted.
        """
        if not len(self.memory):
            raise UserError("predict_ncm: the memory is empty; learn with memory > 0 first")
        labels = self.memory["y"]
        means = class_means(self.features(self.memory["x"]), labels, self.method.stream.num_classes)
        held: Tensor = labels.unique()
        distances: Tensor = torch.cdist(self.features(x), means[held])
        return held[distances.argmin(dim=1)]

    @torch.no_grad()
    def _ask(self, x: Images, brains: list[Brain], *, features: bool) -> Tensor:
        raw = checked_images(x, self.image_shape)
        with _evaluating(brains):
            answers = []
            for part in raw.split(EVAL_BATCH):
                pixels = images(part.to(self.device))
                asked = [b.features(pixels) if features else b.logits(pixels) for b in brains]
                answers.append(torch.stack(asked).mean(dim=0))
        return torch.cat(answers)

    # --- keeping

    @property
    def cost(self) -> dict[str, int]:
        """Images that have passed forward and backward while learning, over all networks."""
        brains = [p.brain for p in self.peers] + [p.snapshot for p in self.peers if p.snapshot]
        brains += [self.frozen] if self.frozen else []
        return {
            "stream_images": self.memory.seen,
            "forward_images": sum(b.forwards for b in brains),
            "backward_images": sum(b.backwards for b in brains),
        }

    @property
    def kept_bytes(self) -> dict[str, int]:
        """Bytes that it keeps between steps: images, what goes with them, and networks."""
        brains = [b for p in self.peers for b in (p.brain, p.snapshot) if b is not None]
        brains += [self.frozen] if self.frozen else []
        columns = self.memory.nbytes
        return {
            "images": columns.pop("x", 0),
            "extras": sum(columns.values()),
            "networks": sum(t.nbytes for b in brains for t in b.state_dict().values()),
        }

    def save(self, path: str | Path, extra: Any = None) -> None:
        """Write a checkpoint folder; a crash while writing leaves the one before it whole.

        extra: anything JSON can hold; `load` returns it.
        """
        checkpoint.save(self, Path(path), extra)

    def load(self, path: str | Path) -> Any:
        """Go on exactly where the checkpoint was written.

        The learner must have been built with the same settings; if anything does not fit, nothing
        is changed.
        """
        return checkpoint.load(self, Path(path))


def _usable(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {str(device)!r} cannot be used ({reason}); take cpu") from error


def _answers(brain: Brain, views: list[Tensor]) -> list[Tensor]:
    """Logits on every view, each a forward of its own: batch-norm must not mix their statistics.

    The hardest view goes first, as in the authors' code, so that the running statistics that
    prediction uses weigh it least.
    """
    last = brain.logits(views[-1])
    return [*(brain.logits(view) for view in views[:-1]), last]


def _mean_over_peers(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    names = parts[0].keys() if parts else ()
    return {name: torch.stack([part[name] for part in parts]).mean(dim=0) for name in names}


@contextmanager
def _evaluating(brains: list[Brain]) -> Iterator[None]:
    counts = [(b.forwards, b.backwards) for b in brains]
    training = [m for brain in brains for m in brain.modules() if m.training]
    for brain in brains:
        brain.eval()
    try:
        yield
    finally:
        for module in training:  # one by one: a layer that its owner keeps in eval mode stays so
            module.training = True
        for brain, (forwards, backwards) in zip(brains, counts, strict=True):
            brain.forwards, brain.backwards = forwards, backwards  # answering is not learning
