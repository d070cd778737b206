"""OnPro: online prototypes that stand apart, and feedback from those that do not."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from peerlearn.augment import flip_grey_crop
from peerlearn.devices import moved
from peerlearn.losses import (
    LabelledImages,
    class_means,
    classification_loss,
    joined,
    nt_xent,
    nt_xent_new,
    prototype_contrast,
    unit,
)
from peerlearn.memory.base import LABELS, Memory
from peerlearn.methods.feedback import FeedbackRates, prototype_feedback
from peerlearn.methods.interface import ForwardOutput, Method, Progress, Shape, StepOutput, replayed
from peerlearn.methods.rotations import (
    Embedding,
    Pairs,
    check_rotatable,
    embed,
    peer_similarity,
    rotated_pairs,
)
from peerlearn.peer import Peer

PER_CLASS = 7  # memory images per class met, while those are fewer than the replay batch


class Known(NamedTuple):
    """Images of one class each, and the classes that are among them, (K,), ascending."""

    images: LabelledImages
    classes: Tensor


class OnProDraw(NamedTuple):
    """Stream and, after the first task, memory images, each with its rotated pairs."""

    stream: Known
    stream_pairs: Pairs
    mixed: LabelledImages | None  # what the cross-entropy trains on after the first task
    mixed_pairs: Pairs | None
    plain: Known | None  # the memory images before any mixing
    memory: Memory  # in the first task every peer draws for itself


class OnPro(Method[OnProDraw]):
    """Contrast of rotated images and of class prototypes, cross-entropy on adaptive feedback.

    Online prototype learning: Wei et al., ICCV 2023, https://arxiv.org/abs/2308.00301

    The first task replays nothing but its prototypes. Afterwards the cross-entropy is on memory
    images, more of them where the prototypes of two classes have come close.

    Args:
        stream: what the stream tells before its first batch; boundaries must be among it.
        replay_batch: memory images per step, at most.

    >>> from peerlearn import StreamInfo
    >>> OnPro(StreamInfo(num_classes=10, boundaries=True)).rates.mixing
    0.6
    """

    name = "onpro"
    images_per_sample = 35
    needs_boundaries = True
    no_rehearsal = "its prototypes are those of a stream batch"
    carries: ClassVar[Mapping[str, Shape]] = {"prototypes": ("classes", "projection")}
    fill_values: ClassVar[Mapping[str, float]] = {"prototypes": 0.0}  # as of all that have none

    @property
    def similarity_weight(self) -> float:
        """Of the similarity of projections after the first task."""
        return 0.5 if self._few else 1.0

    @property
    def rates(self) -> FeedbackRates:
        """How the replay of close classes is mixed."""
        return FeedbackRates(0.75, 0.6) if self._few else FeedbackRates(0.9, 0.2)

    @property
    def _few(self) -> bool:
        """The published settings of CIFAR-10 differ from those of larger data sets."""
        return self.stream.num_classes <= 10

    def check(self, batch: LabelledImages, progress: Progress) -> None:
        """The images can be rotated."""
        super().check(batch, progress)
        check_rotatable(batch.x)

    def setup_peer(self, peer: Peer) -> None:
        """A projection."""
        peer.model.add_projection()

    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> OnProDraw:
        """Rotated pairs of the stream and, after the first task, of the feedback."""
        pairs = self._pairs(batch, rng)
        stream = Known(batch, moved(progress.classes, batch.x.device))
        if progress.task == 0 or not len(memory):
            return OnProDraw(stream, pairs, None, None, None, memory)
        count = min(self.settings.replay_batch, PER_CLASS * int(progress.seen.sum()))
        plain = _drawn(memory, count, rng)
        mixed = plain.images
        if progress.step > 0 and "prototypes" in progress.carry:
            prototypes = progress.carry["prototypes"]
            mixed = prototype_feedback(mixed, memory, prototypes, self.rates, rng)
        return OnProDraw(stream, pairs, mixed, self._pairs(mixed, rng), plain, memory)

    def _pairs(self, group: LabelledImages, rng: torch.Generator) -> Pairs:
        labels = group.y
        if group.mix is not None:  # a mixed image is its own pseudo class, between the two
            labels = torch.lerp(group.y.float(), group.mix.labels.float(), group.mix.weight)
        return rotated_pairs(group.x, labels, flip_grey_crop, rng, stride=self.stream.num_classes)

    def loss(self, peer: Peer, draw: OnProDraw) -> StepOutput:
        """Cross-entropy, contrast of rotations, contrast of prototypes of stream and memory."""
        weight = 1.0 if draw.mixed is None else self.similarity_weight
        group = draw.mixed or draw.stream.images
        pairs = [p for p in (draw.stream_pairs, draw.mixed_pairs) if p is not None]
        rows = embed(peer, pairs)
        loss = nt_xent_new(peer_similarity(peer, rows[0], weight), pairs[0].labels)
        if len(rows) > 1:
            loss = loss + nt_xent(peer_similarity(peer, rows[1], weight), pairs[1].labels)
        loss = loss + self._of_stream(rows[0], draw.stream)
        # Batches go forward in the order of the authors' code: running statistics depend on it.
        if draw.plain is None:
            contrast, carry = self._of_memory(peer, draw)
            answer = self._answer(peer, group)
        else:
            answer = self._answer(peer, group)
            contrast, carry = self._of_memory(peer, draw)
        loss = loss + classification_loss(answer.logits, group) + contrast
        return StepOutput(loss, [answer], carry=carry)

    def _answer(self, peer: Peer, group: LabelledImages) -> ForwardOutput:
        x = flip_grey_crop(group.x, peer.rng)
        return ForwardOutput(x, peer.logits(x))

    def _of_memory(self, peer: Peer, draw: OnProDraw) -> tuple[Tensor, dict[str, Tensor]]:
        """Prototype contrast of memory images, and their prototypes for the next batch."""
        plain = draw.plain
        if plain is None and len(draw.memory):
            drawn = _drawn(draw.memory, self.settings.replay_batch, peer.rng)
            plain = moved(drawn, peer.device)
        if plain is None:
            return draw.stream.images.x.new_zeros(()), {}
        x, count = plain.images.x, len(plain.images.x)
        views = torch.cat([x, flip_grey_crop(x, peer.rng)])
        z = unit(peer.model.project(peer.model.features(views)))
        contrast, prototypes = self._equilibrium(z[:count], z[count:], plain)
        return contrast, {"prototypes": prototypes}

    def _of_stream(self, rows: Embedding, stream: Known) -> Tensor:
        """Prototype contrast of the unrotated stream images and their augmented versions."""
        half, count = len(rows.z) // 2, len(stream.images.y)
        return self._equilibrium(rows.z[:count], rows.z[half : half + count], stream)[0]

    def _equilibrium(self, z: Tensor, other: Tensor, shown: Known) -> tuple[Tensor, Tensor]:
        """Prototype contrast of two views, (B, P) each, and the mean prototypes, (C, P)."""
        labels, classes = shown.images.y, self.stream.num_classes
        means = [class_means(view, labels, classes) for view in (z, other)]
        contrast = prototype_contrast(*(mean[shown.classes] for mean in means))
        return contrast, torch.stack(means).mean(dim=0).detach()

    @override
    def groups(self, draw: OnProDraw, rng: torch.Generator) -> list[LabelledImages]:
        """Stream and feedback; mixed images keep both of their labels."""
        stream = draw.stream.images
        return [stream if draw.mixed is None else joined(stream, draw.mixed)]


def _drawn(memory: Memory, count: int, rng: torch.Generator) -> Known:
    """Images of the memory; their classes are found before the labels leave the CPU."""
    rows = memory.draw(count, rng)
    group = replayed(rows)
    return Known(group, moved(rows[LABELS].unique(), group.x.device))
