"""GSA: gradient self-adaptation, a loss that balances pull and push of every class."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.augment import crop_grey_mirrored
from peerlearn.devices import moved
from peerlearn.losses import LabelledImages, balance_weights, balanced_cross_entropy, joined
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import (
    ForwardOutput,
    Method,
    MethodSettings,
    Progress,
    StepOutput,
    replayed,
)
from peerlearn.peer import Peer
from peerlearn.settings import setting

CURRENT = 22  # images of the present task that join the stream batch
WARM_UP = 5  # batches of each task in which all classes weigh the same


class GSADraw(NamedTuple):
    """Two batches, augmented and mirrored, and the labels of the present task."""

    stream: LabelledImages  # as it came
    current: LabelledImages | None  # images of this task only; None if there are none
    balanced: LabelledImages  # old and new classes in the proportion in which they were met
    slots: slice | Tensor  # labels of the present task: a range, or (K,) ascending where they grow
    warm: bool
    memory: Memory | None = None  # peers teach each other on a fresh draw of it


class GSA(Method[GSADraw]):
    """Balanced cross-entropy over all classes so far, and plain one within the present task.

    Gradient self-adaptation: Guo et al., CVPR 2023, https://arxiv.org/abs/2305.14657

    Where classes grow, the present task is of those that came since the last `end_task()`; images
    of earlier ones that come by again take part in the balanced batch.

    Args:
        stream: what the stream tells before its first batch; boundaries must be among it, and
            classes per task unless classes grow.
        replay_batch: images in the batch that is balanced between old and new classes.
        aligned_crop: crop as the CCL-DC authors' code does, with aligned corners, from boxes
            smaller than the image.

    >>> from peerlearn import StreamInfo
    >>> GSA(StreamInfo(num_classes=10, boundaries=True, classes_per_task=2)).slots(1)
    slice(2, 4, None)
    """

    class Settings(MethodSettings):
        """What GSA can be told."""

        aligned_crop: bool = setting(
            False, "resized crop with aligned corners, from boxes smaller than the image (authors)"
        )

    settings: Settings
    name = "gsa"
    authors: ClassVar[Mapping[str, Any]] = {"aligned_crop": True}
    images_per_sample = 3
    needs_boundaries = True
    no_rehearsal = "it balances the classes of a stream batch with those of the memory"
    needs_task_labels = True

    def setup_peer(self, peer: Peer) -> None:
        """Per class: samples, probability on its own samples, probability on those of others."""
        for name in ("count", "own", "others"):
            peer.buffers[name] = torch.zeros(self.stream.num_classes)

    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> GSADraw | None:
        """The stream with more of its task, and a batch balanced between old and new classes."""
        if memory.capacity and not len(memory):
            return None
        present = self.present(progress)
        new, old = int((progress.seen & ~progress.old).sum()), int(progress.old.sum())
        current, again = _parted(batch, present) if self.stream.grows else (batch, None)
        balanced = batch
        if memory.capacity:
            of_task = present[memory["y"]]
            current = joined(current, replayed(memory.draw_where(CURRENT, of_task, rng)))
            past = memory.draw_where(self.settings.replay_batch * old // (new + old), ~of_task, rng)
            share = self.settings.replay_batch * new // (new + old)
            parts = [replayed(past), LabelledImages(current.x[:share], current.y[:share])]
            balanced = joined(*parts if again is None else [*parts, again])
        order = torch.randperm(len(balanced.y), generator=rng)
        slots = present.nonzero()[:, 0] if self.stream.grows else self.slots(progress.task)
        order, slots = moved((order, slots), batch.y.device)
        balanced = LabelledImages(balanced.x[order], balanced.y[order])
        return GSADraw(
            batch,
            self._mirrored(current, rng) if len(current.y) else None,
            self._mirrored(balanced, rng),
            slots,
            warm=progress.step < WARM_UP,
            memory=memory,
        )

    def _mirrored(self, group: LabelledImages, rng: torch.Generator) -> LabelledImages:
        """Augmented, with a mirror image of each: twice as many."""
        x = crop_grey_mirrored(group.x, rng, aligned=self.settings.aligned_crop)
        return LabelledImages(x, group.y.repeat(2))

    def present(self, progress: Progress) -> Tensor:
        """Which labels are of the present task, (C,) bool."""
        if self.stream.grows:
            return progress.first_met == progress.task
        present = torch.zeros(self.stream.num_classes, dtype=torch.bool)
        present[self.slots(progress.task)] = True
        return present

    def loss(self, peer: Peer, draw: GSADraw) -> StepOutput:
        """Twice the balanced loss, and the cross-entropy within the task."""
        slots, y = draw.slots, draw.balanced.y
        within_task = draw.stream.x.new_zeros(())
        if draw.current is not None:
            inside = peer.logits(draw.current.x)[:, slots]
            within_task = F.cross_entropy(inside, _places(draw.current.y, slots))
        answer = ForwardOutput(draw.balanced.x, peer.logits(draw.balanced.x))
        met = slots.stop if isinstance(slots, slice) else self.stream.num_classes
        so_far = answer.logits[:, :met]
        self.count(peer, so_far.detach().softmax(dim=1), y)
        totals = [peer.buffers[name][:met] for name in ("count", "own", "others")]
        weights = torch.ones_like(totals[0]) if draw.warm else balance_weights(*totals)
        loss = 2 * balanced_cross_entropy(so_far, y, weights) + within_task
        return StepOutput(loss, [answer])

    def count(self, peer: Peer, probability: Tensor, labels: Tensor) -> None:
        """Add a batch to the totals. probability: (B, K) over the classes so far; labels: (B,)."""
        member = F.one_hot(labels, probability.shape[1]).to(probability.dtype)
        so_far = slice(probability.shape[1])
        peer.buffers["count"][so_far] += member.sum(dim=0)
        peer.buffers["own"][so_far] += (probability * member).sum(dim=0)
        peer.buffers["others"][so_far] += (probability * (1 - member)).sum(dim=0)

    def groups(self, draw: GSADraw, rng: torch.Generator) -> list[LabelledImages]:
        """A fresh draw of the memory and the stream."""
        if not draw.memory:
            return [draw.stream]
        return [joined(replayed(draw.memory.draw(self.settings.replay_batch, rng)), draw.stream)]


def _places(y: Tensor, slots: slice | Tensor) -> Tensor:
    """Labels, (B,), as places among those of a task."""
    return y - slots.start if isinstance(slots, slice) else torch.searchsorted(slots, y)


def _parted(batch: LabelledImages, present: Tensor) -> tuple[LabelledImages, LabelledImages]:
    """The images of a task, and the others. present: (C,) bool."""
    inside = moved(present, batch.y.device)[batch.y]
    own, others = (LabelledImages(batch.x[of], batch.y[of]) for of in (inside, ~inside))
    return own, others
