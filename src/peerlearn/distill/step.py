"""The step of CCL-DC from top to bottom, beside Algorithm 1 of Wang et al., CVPR 2024.

https://arxiv.org/abs/2312.00600. The paper writes the step of one student, `model1`. Here every
peer is a student and a teacher of the others. `Step.gradients`, then `Step.move`, have this order.

    Algorithm 1                              here
    for x, y in dataloader                   your loop: each pass is a call of `OnlineLearner.learn`
    criterion_baseline(model1, x, y)         `Step._draw`, `Step._backward_baseline`
    geometric_distortion, RandAugment        `Step._draw_views`
    ls, ls1, ls2, ls3 = model1(...)          `Step._student_logits`
    lt, lt1, lt2, lt3 = model2(...), no grad `Step._teacher_logits`; `losses.distill` detaches
    loss_cls, loss_ccl, loss_dc              `distillation_loss`  (Eq. 9 and 10)
    loss_ours = lam1 * ... + lam2 * (...)    `DistillationLoss.weighted`
    loss = loss_baseline + loss_ours         never formed: the gradients of both add up  (Eq. 11)
    loss.backward()                          `Step._backward_baseline`, then `Step._backward_ours`
    optim1.step(), optim1.zero_grad()        `Step.move`
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from peerlearn.devices import moved
from peerlearn.distill.distillation import Distillation
from peerlearn.distill.edges import Edge
from peerlearn.distill.teachers.base import LogitsByView, Teacher, TeacherInput, logits_by_view
from peerlearn.errors import UserError
from peerlearn.losses import LabelledImages, classification_loss, distill, joined_unmasked
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import Method, Progress, StepOutput, check_declared
from peerlearn.peer import Peer

R = TypeVar("R")
PeerAction = Callable[[int, Peer, Method[Any]], R]  # of a peer's number, the peer and its method
Losses = dict[str, Tensor]  # "base" (the method's own), "distill" and "labels": scalars
Views = list[Tensor]  # X_0, ..., X_n of a group of images: (B, 3, H, W) each


class Pool(Protocol):
    """Lets peers compute side by side."""

    def map_peers(
        self, action: PeerAction[R], peers: Sequence[Peer], method: Method[Any]
    ) -> list[R]:
        """Return the action's results by peer."""
        ...


class DistillationLoss(NamedTuple):
    """The two sums of Eq. 9 and 10 for one student, without their weights."""

    labels: Tensor  # loss_cls
    distill: Tensor  # loss_ccl + loss_dc

    def weighted(self, d: Distillation) -> Tensor:
        """Return lambda1 * labels + lambda2 * distill: loss_ours, or L_CCL + L_DC of Eq. 11."""
        return d.label_weight * self.labels + d.distill_weight * self.distill


def distillation_loss(
    student: LogitsByView,
    teachers: Mapping[str, LogitsByView],
    group: LabelledImages,
    label_views: Sequence[int],
    edges: Sequence[Edge],
    temperature: float,
) -> DistillationLoss:
    """Return the two sums for one student and one group of images.

    student[i], teachers[name][i]: logits (B, C) on view X_i. For CCL-DC the label views are 0 to 3,
    as in Algorithm 1 (Eq. 10 counts from 1, and view 0 is in Eq. 9), and the edges are (0, 0) of
    Eq. 9 and (0, 1), (1, 2), (2, 3) of Eq. 10.
    """
    zero = group.y.new_zeros((), dtype=torch.float32)
    labels = [classification_loss(student[view], group) for view in label_views]
    # KL(teacher, student) times tau squared: as the authors compute it; Eq. 9 and 10 swap the sides
    terms = [
        edge.weight
        * distill(student[edge.student], teachers[edge.by][edge.teacher], temperature=temperature)
        for edge in edges
    ]
    return DistillationLoss(torch.stack(labels).sum() if labels else zero, sum(terms, zero))


class Step:
    """Takes the step of every peer: first all gradients, then all optimizer steps.

    The distillation decides once what each step computes. rngs: "draws" and "views". device: of the
    memory, the draws and the teachers.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        pool: Pool,
        method: Method[Any],
        distillation: Distillation,
        teachers: Mapping[str, Teacher],
        memory: Memory,
        rngs: Mapping[str, torch.Generator],
        device: torch.device,
    ) -> None:
        self.peers, self.pool, self.method = peers, pool, method
        self.distillation = d = distillation
        self.teachers, self.memory, self.rngs, self.device = teachers, memory, rngs, device
        places = {network.device for one in teachers.values() for network in one.networks}
        self._on_one_device = {device} == places | {peer.device for peer in peers}
        edges, self._method_batch_edges = d.view_edges, d.method_batch_edges
        self._student_views = d.student_views
        seen = {name: {edge.teacher for edge in edges if edge.by == name} for name in teachers}
        self._teacher_views = {name: sorted(views) for name, views in seen.items() if views}
        self._loss = partial(
            distillation_loss, label_views=d.labelled_views, edges=edges, temperature=d.temperature
        )
        # with a weight of 0, the labels on the views replace a loss that is plain cross-entropy
        is_used = d.base_weight or method.stores or method.carries or d.method_batch_edges
        self._needs_baseline = bool(is_used or not method.is_plain_cross_entropy)

    def gradients(
        self, batch: LabelledImages | None, progress: Progress
    ) -> tuple[dict[str, float], StepOutput | None]:
        """Compute the gradients of every peer; no weight moves yet.

        batch: of the stream; None for a step on the memory alone. Returns the losses by name, and
        what the method computed, means over the peers; {} and None if it takes no step.
        """
        draws = self._draw(batch, progress)
        if draws is None:
            return {}, None
        outputs, losses = self._backward_baseline(draws, batch)  # loss_baseline, backward
        if self._student_views:
            # of separate draws, peers teach each other on the first
            groups, views = self._draw_views(draws[0])  # x, x1, x2, x3
            students = self._student_logits(views)  # ls, ls1, ls2, ls3
            teachers = self._teacher_logits(views, students)  # lt, lt1, lt2, lt3
            ours = self._backward_ours(groups, students, teachers)  # loss_ours, backward
            for found, own in zip(losses, ours, strict=True):
                found |= {"distill": found["distill"] + own.distill, "labels": own.labels}
        means = _mean_over_peers(losses)
        numbers = dict(zip(means, torch.stack([*means.values()]).tolist(), strict=True))
        if not all(map(math.isfinite, numbers.values())):
            raise UserError(
                f"the loss is not finite any more ({numbers}) at batch {progress.batches} of the "
                "stream; the step was not taken. Load the last checkpoint, or take a smaller lr"
            )
        if batch is None:
            return numbers, StepOutput(means["base"], [])  # nothing is kept of a rehearsal
        store = _mean_over_peers([output.store for output in outputs])
        carry = _mean_over_peers([output.carry for output in outputs])
        return numbers, StepOutput(means["base"], [], store, carry)

    def move(self) -> None:
        """Take every peer's optimizer step, then let the teachers follow."""
        for peer in self.peers:
            peer.step()  # optim1.step(), optim1.zero_grad()
        for teacher in self.teachers.values():
            teacher.after_step()

    def _draw(self, batch: LabelledImages | None, progress: Progress) -> list[Any] | None:
        """Return what each peer trains on: the same, unless draws are separate. None: no step."""
        given = (self.memory, progress, self.rngs["draws"])
        times = len(self.peers) if self.distillation.separate_draws else 1
        if batch is None:
            draws = [self.method.draw_rehearsal(*given) for _ in range(times)]
        else:
            draws = [self.method.draw_for(self.peers, batch, *given) for _ in range(times)]
        if any(draw is None for draw in draws):
            return None
        return draws * (len(self.peers) // times)

    def _backward_baseline(
        self, draws: Sequence[Any], batch: LabelledImages | None
    ) -> tuple[list[StepOutput], list[Losses]]:
        """Take each peer's backward of L_Baseline; return what the method computed, and losses."""
        d = self.distillation

        def backward(i: int, peer: Peer, method: Method[Any]) -> tuple[StepOutput, Losses]:
            if not self._needs_baseline:
                zero = torch.zeros((), device=peer.device)
                return StepOutput(zero, []), {"base": zero, "distill": zero}
            output = method.loss(peer, self._on(peer.device, draws[i]))  # loss_baseline
            if batch is not None:  # nothing else is stored
                check_declared(output, self.method, peer.model, rows=len(batch.y))
            distilled = self._distill_on_draw(output)
            peer.backward(d.base_weight * output.loss + d.distill_weight * distilled)
            losses = {"base": output.loss.detach(), "distill": distilled.detach()}
            return output._replace(outputs=[]), losses  # their graph is spent

        # a teacher's running statistics change with each batch that it sees, in the peers' order
        found = self._map(backward, in_turn=bool(self._method_batch_edges))
        results = self._on(self.device, found)
        return [output for output, _ in results], [losses for _, losses in results]

    def _distill_on_draw(self, output: StepOutput) -> Tensor:
        """Return the distillation on the batches that the method itself trained on; 0 in CCL-DC."""
        tau, distilled = self.distillation.temperature, output.loss.new_zeros(())
        for edge in self._method_batch_edges:
            for x, student in output.outputs:
                logits = self.teachers[edge.by].batch_logits(self._on(self.device, x))
                teacher = self._on(student.device, logits)
                distilled = distilled + edge.weight * distill(student, teacher, temperature=tau)
        return distilled

    def _draw_views(self, draw: Any) -> tuple[list[LabelledImages], list[Views]]:
        """Return the groups of images of a draw, and X_0 to X_3 of each; all peers see the same."""
        groups = self.method.groups(draw, self.rngs["views"])
        if self.distillation.merge_groups:
            groups = [joined_unmasked(groups)]
        return groups, [self.distillation.chain(group.x, self.rngs["views"]) for group in groups]

    def _student_logits(self, views: Sequence[Views]) -> list[list[LogitsByView]]:
        """Return theta(X_i) of every peer, with its graph: by peer, by group, by view."""
        on = self._student_views
        return self._map(lambda _, peer, __: [logits_by_view(peer.model, on, x) for x in views])

    def _teacher_logits(
        self, views: Sequence[Views], students: Sequence[Sequence[LogitsByView]]
    ) -> list[dict[str, list[LogitsByView]]]:
        """Return the logits of every peer's teachers: by group, by teacher, by peer, by view.

        The teacher of Eq. 9 and 10 reads the logits that the other peer computed as a student.
        """
        by_group = zip(*self._on(self.device, students), strict=True)
        asked = self._teacher_views.items()
        return [
            {name: self.teachers[name].logits(on, given) for name, on in asked}
            for given in map(TeacherInput, views, map(list, by_group))
        ]

    def _backward_ours(
        self,
        groups: Sequence[LabelledImages],
        students: Sequence[Sequence[LogitsByView]],
        teachers: Sequence[Mapping[str, Sequence[LogitsByView]]],
    ) -> list[DistillationLoss]:
        """Take each peer's backward of L_CCL + L_DC; gradients add up to those of Eq. 11."""

        def backward(i: int, peer: Peer, _: Method[Any]) -> DistillationLoss:
            own_teachers = [{name: by[i] for name, by in group.items()} for group in teachers]
            here = self._on(peer.device, (students[i], own_teachers, groups))
            losses = [self._loss(*of_group) for of_group in zip(*here, strict=True)]
            over_groups = [torch.stack(terms).sum() for terms in zip(*losses, strict=True)]
            peer.backward(DistillationLoss(*over_groups).weighted(self.distillation))
            return DistillationLoss(*(term.detach() for term in over_groups))

        return self._on(self.device, self._map(backward))

    def _on(self, device: torch.device, value: R) -> R:
        """Return a value with its tensors on a device."""
        return value if self._on_one_device else moved(value, device)

    def _map(self, action: PeerAction[R], *, in_turn: bool = False) -> list[R]:
        """Return what the action gives for every peer, computed side by side unless `in_turn`."""
        if in_turn:
            return [action(i, peer, self.method) for i, peer in enumerate(self.peers)]
        return self.pool.map_peers(action, self.peers, self.method)


def _mean_over_peers(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return by name the mean of the peers' tensors."""
    return {name: torch.stack([part[name] for part in parts]).mean(dim=0) for name in parts[0]}
