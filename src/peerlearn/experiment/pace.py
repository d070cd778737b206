"""The price of being slow: which batches a learner has the time, or the budget, to learn.

Computing is counted in images: forward passes, and backward ones twice, of all networks. A batch's
time is that of a step of ER with a full replay batch.
"""

import math
from collections.abc import Callable

from peerlearn.experiment.settings import RunSettings
from peerlearn.learner.online import OnlineLearner
from peerlearn.records.schema import SavedPace
from peerlearn.stream.base import Batch

TENTHS = 10  # of a batch's time, in which the clock counts: k is rounded to one decimal


class Pace:
    """Passes each batch of the stream to a learner that may have to let it go by.

    Args:
        learner: who learns.
        settings: whether the stream waits, and how much may be computed.
        flops: of a forward pass of one image; asked for if there is a budget.
        tell: told once, in words, when a batch has to be let go by.
        memory: images that ER would keep, for learners that keep none.
    """

    def __init__(
        self,
        learner: OnlineLearner,
        settings: RunSettings,
        flops: Callable[[], int],
        tell: Callable[[str], None],
        memory: int = 0,
    ) -> None:
        self.learner, self.settings, self.tell = learner, settings, tell
        self._memory = memory
        budget = settings.budget
        self._most = math.inf if budget is None else budget / flops()  # in images
        self.steps = self.reference = self.passed_by = self.clock = self.step_at = 0
        self.dearest = 1.0  # k of the dearest step so far
        self.spent = False
        self.known = True  # what the run has taken from its beginning on
        self._told: set[str] = set()

    def learn(self, batch: Batch, remember: bool = True) -> dict[str, float]:
        """Let a batch be learnt if there is time and budget for it; its losses.

        remember: as of `OnlineLearner.learn`.
        """
        arrival, rows = self.learner.progress.batches * TENTHS, len(batch.y)
        if self.settings.realtime and self.clock > arrival:
            self._tell("the stream does not wait; batches that pass during a step are predicted, "
                       "not learnt")  # fmt: skip
            self._skip(batch, self.settings.realtime_store)
            return {}
        reference = er_step(rows, self._replayed)
        self._see_budget(reference)
        if self.spent:
            self._tell("the budget is spent; what still comes is predicted, not learnt")
            self._skip(batch, not self.learner.method.stores)
            return {}
        before = self._computed
        losses = self.learner.learn(*batch, remember=remember)
        if taken := self._computed - before:
            self.steps, self.step_at = self.steps + 1, self.learner.progress.batches
            self.reference += reference if remember else 0  # ER passes once
            self.dearest = max(self.dearest, taken / reference)
        # fractions of k add up; time in which it had nothing to do is lost
        k = round(TENTHS * taken / er_step(rows, min(self._replay_batch, self._capacity)))
        self.clock = max(self.clock, arrival - TENTHS + 1) + k
        return losses

    def _see_budget(self, reference: int) -> None:
        """Note whether one more step, ER's taking `reference`, might go beyond the budget."""
        self.spent = self.spent or self._computed + self.dearest * reference > self._most

    def rehearse(self) -> dict[str, float]:
        """Take a step on the memory alone if the budget suffices; its losses, else none."""
        reference = er_step(0, self._replayed)
        self._see_budget(reference)
        if self.spent or not reference:
            return {}
        before = self._computed
        losses = self.learner.rehearse()
        taken = self._computed - before
        self.dearest = max(self.dearest, taken / reference)
        return losses

    @property
    def relative(self) -> float | None:
        """k: the computing so far, in steps of ER; None if it is not known."""
        return self._computed / self.reference if self.known and self.reference else None

    @property
    def updates_per_image(self) -> float | None:
        """Steps so far over images of the stream, None if they are not known."""
        steps = self.steps * self.learner.updates + self.learner.progress.rehearsed
        return steps / max(self.images, 1) if self.known else None

    @property
    def images(self) -> int:
        """Of the stream that have passed, each once."""
        return self.learner.cost["stream_images"] + self.passed_by

    def state(self) -> dict[str, float] | None:
        """What goes into a checkpoint."""
        names = SavedPace.model_fields
        return {name: getattr(self, name) for name in names} if self.known else None

    def restore(self, saved: SavedPace | None) -> None:
        """Become the one whose `state()` this was; earlier versions did not count."""
        self.known, self.step_at = saved is not None, self.learner.progress.batches
        for name, value in saved or ():
            setattr(self, name, value)

    @property
    def _computed(self) -> int:
        cost = self.learner.cost
        return cost["forward_images"] + 2 * cost["backward_images"]

    @property
    def _replay_batch(self) -> int:
        replayed: int = self.learner.method.settings.replay_batch
        return replayed

    @property
    def _replayed(self) -> int:
        """Return how many memory images ER would replay with the next batch."""
        memory = self.learner.memory
        held = len(memory) if memory.capacity else min(memory.seen, self._memory)
        return min(self._replay_batch, held)

    @property
    def _capacity(self) -> int:
        return self.learner.memory.capacity

    def _skip(self, batch: Batch, remember: bool) -> None:
        self.learner.skip(*batch, remember=remember)
        self.passed_by += 0 if remember else len(batch.y)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self.tell(text)
        self._told.add(text)


def er_step(rows: int, replayed: int) -> int:
    """What a step of ER takes: each image forward, and twice backward.

    >>> er_step(10, 64)
    222
    """
    return 3 * (rows + replayed)
