"""The gradients of a step: all that is computed before anything moves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.learner.collaboration import (
    Collaboration,
    CollaborationLoss,
    collaboration_loss,
)
from peerlearn.learner.parallel import PeerPool
from peerlearn.learner.teacher import Shown, Teacher, logits_by_view
from peerlearn.learner.validation import check_declared
from peerlearn.losses import distill
from peerlearn.memory.base import Memory
from peerlearn.methods.interface import LabelledImages, Method, Outcome, Progress
from peerlearn.methods.replay import joined_unmasked
from peerlearn.peer.peer import Peer

R = TypeVar("R")


class Gradients:
    """Lets every peer compute what it learns of a batch, from its method and from its teachers.

    Args:
        pool: in which the peers compute.
        peers: that learn.
        method: with which they learn.
        collaboration: what they teach each other.
        teachers: by name.
        memory: from which methods draw.
        rngs: by purpose.
        device: where what is drawn is.
    """

    def __init__(
        self,
        pool: PeerPool,
        peers: Sequence[Peer],
        method: Method[Any],
        collaboration: Collaboration,
        teachers: Mapping[str, Teacher],
        memory: Memory,
        rngs: Mapping[str, torch.Generator],
        device: torch.device,
    ) -> None:
        self._pool, self.peers, self.method = pool, peers, method
        self.collaboration, self.teachers = collaboration, teachers
        self.memory, self.rngs, self.device = memory, rngs, device

    def compute(
        self, batch: LabelledImages | None, progress: Progress
    ) -> tuple[dict[str, float], list[Outcome]]:
        """The gradients of every peer, before any of them moves: losses, and what came of it.

        batch: of the stream; None for a step on the memory alone.
        """
        draws = self._draws(batch, progress)
        if draws is None:
            return {}, []
        found = self._learn_own(draws, None if batch is None else len(batch.y))
        outcomes, losses = [outcome for outcome, _ in found], [parts for _, parts in found]
        if self.collaboration.student_views:
            groups = self.method.groups(draws[0], self.rngs["views"])
            groups = [joined_unmasked(groups)] if self.collaboration.join_groups else groups
            for loss, (labels, lessons) in zip(losses, self._learn_together(groups), strict=True):
                loss["labels"] = labels
                loss["lessons"] = loss["lessons"] + lessons
        means = _on_the_host(mean_over_peers(losses))
        if not np.isfinite(list(means.values())).all():
            raise UserError(
                f"the loss is not finite any more ({means}) at batch {progress.batches} of the "
                "stream; the step was not taken. Load the last checkpoint, or take a smaller lr"
            )
        return means, outcomes

    def _draws(self, batch: LabelledImages | None, progress: Progress) -> list[Any] | None:
        """What each peer trains on, the same for all unless each is to have its own."""
        given = (self.memory, progress, self.rngs["draws"])
        times = len(self.peers) if self.collaboration.own_draws else 1
        if batch is None:
            draws = [self.method.draw_rehearsal(*given) for _ in range(times)]
        else:
            draws = [self.method.draw_for(self.peers, batch, *given) for _ in range(times)]
        if any(draw is None for draw in draws):
            return None
        return draws if times > 1 else draws * len(self.peers)

    @property
    def _without_own(self) -> bool:
        """Whether the method's own loss counts for nothing, and nothing else would be missed."""
        method, c = self.method, self.collaboration
        kept = method.stores or method.carries or c.method_batch_edges
        return method.loss_is_labels and not c.base_weight and not kept

    def _learn_own(
        self, draws: Sequence[Any], rows: int | None
    ) -> list[tuple[Outcome, dict[str, Tensor]]]:
        """Every peer's gradient of the method's own loss: what came of it, and the losses.

        rows: images of the stream batch; None if there is none, and nothing to store.
        """
        c = self.collaboration
        if self._without_own:
            nothing = torch.zeros((), device=self.device)
            losses = {"base": nothing, "lessons": nothing}
            return [(Outcome(nothing, []), dict(losses)) for _ in self.peers]

        def learn(i: int, peer: Peer, method: Method[Any]) -> tuple[Outcome, dict[str, Tensor]]:
            shown = draws[i] if peer.device == self.device else moved(draws[i], peer.device)
            outcome = method.loss(peer, shown)
            if rows is not None:
                check_declared(outcome, self.method, peer.model, rows)
            lessons = self._method_batch_lessons(outcome)
            peer.backward(c.base_weight * outcome.loss + c.lesson_weight * lessons)
            losses = {"base": outcome.loss.detach(), "lessons": lessons.detach()}
            return outcome._replace(answers=[]), losses  # their graph is spent

        # the teacher's statistics go on with each batch that it is shown
        in_turn = bool(c.method_batch_edges)
        return moved(self._ask(learn, in_turn=in_turn), self.device)

    def _ask(
        self, action: Callable[[int, Peer, Method[Any]], R], *, in_turn: bool = False
    ) -> list[R]:
        if in_turn:
            return [action(i, peer, self.method) for i, peer in enumerate(self.peers)]
        return self._pool.map_peers(action, self.peers, self.method)

    def _learn_together(self, groups: Sequence[LabelledImages]) -> list[CollaborationLoss]:
        """Every peer's gradient of the collaborative loss; its parts.

        The same pixels for all, and all answer before any of them learns.
        """
        c = self.collaboration
        views = [c.chain(group.x, self.rngs["views"]) for group in groups]

        def answer(_: int, peer: Peer, __: Method[Any]) -> list[dict[int, Tensor]]:
            return [logits_by_view(peer.model, c.student_views, shown) for shown in views]

        said = list(zip(*self._ask(answer), strict=True))  # by group, then by peer
        heard = moved(said, self.device)
        taught = [self._taught(Shown(x, list(by))) for x, by in zip(views, heard, strict=True)]

        def learn(i: int, peer: Peer, _: Method[Any]) -> CollaborationLoss:
            lessons = [{name: to[i] for name, to in by.items()} for by in taught]
            here = zip(*moved((lessons, groups), peer.device), strict=True)
            parts = [
                collaboration_loss(own[i], by, group, c)
                for own, (by, group) in zip(said, here, strict=True)
            ]
            sums = (torch.stack(part).sum() for part in zip(*parts, strict=True))
            loss = CollaborationLoss(*sums)
            peer.backward(loss.weighted(c))
            return CollaborationLoss(*(part.detach() for part in loss))

        return moved(self._ask(learn), self.device)

    def _taught(self, shown: Shown) -> dict[str, list[dict[int, Tensor]]]:
        """What each teacher says to each peer about a group, by view."""
        asked = {name: self.collaboration.views_asked_of(name) for name in self.teachers}
        return {
            name: teacher.answers(asked[name], shown)
            for name, teacher in self.teachers.items()
            if asked[name]
        }

    def _method_batch_lessons(self, outcome: Outcome) -> Tensor:
        """Lessons on the batches that the method itself trained on."""
        lessons = outcome.loss.new_zeros(())
        for edge in self.collaboration.method_batch_edges:
            for x, logits in outcome.answers:
                teacher = self.teachers[edge.by].answer_batch(moved(x, self.device))
                answer = moved(teacher, logits.device)
                lesson = distill(logits, answer, temperature=self.collaboration.temperature)
                lessons = lessons + edge.weight * lesson
        return lessons


def _on_the_host(losses: Mapping[str, Tensor]) -> dict[str, float]:
    """Numbers to look at, all with one transfer."""
    return dict(zip(losses, torch.stack([*losses.values()]).tolist(), strict=True))


def mean_over_peers(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of what each peer has, by name."""
    names = parts[0].keys() if parts else ()
    return {name: torch.stack([part[name] for part in parts]).mean(dim=0) for name in names}
