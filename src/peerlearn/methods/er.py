"""Experience replay."""

import torch

from peerlearn.augment import full
from peerlearn.memory import Reservoir
from peerlearn.methods.base import Group, Progress, Replay, ReplayMethod, joined, replayed


class ER(ReplayMethod):
    """Stream and memory images together, one mean of cross-entropy over all of them.

    No step is taken on the first batch of a run, when there is nothing to replay yet; with a memory
    of capacity 0 every step trains on the stream alone.
    """

    name = "er"

    def draw(
        self,
        batch: Group,
        memory: Reservoir,
        progress: Progress,  # noqa: ARG002
        rng: torch.Generator,
    ) -> Replay | None:
        """Memory images and the stream batch, with the full augmentation."""
        if memory.capacity and not len(memory):
            return None
        if memory.capacity:
            batch = joined(replayed(memory.draw(self.replay_batch, rng)), batch)
        return Replay([batch], train=[batch._replace(x=full(batch.x, rng))])
