"""Trained networks, asked without a trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.snapshot import EVAL_BATCH
from peerlearn.methods.interface import images
from peerlearn.peer import PeerModel


@contextmanager
def evaluating(model: PeerModel) -> Iterator[PeerModel]:
    """The model in evaluation mode; afterwards modes and counts are as they were."""
    modes = {module: module.training for module in model.modules()}
    counts = model.forwards, model.backwards
    model.eval()
    try:
        yield model
    finally:
        for module, mode in modes.items():
            module.training = mode
        model.forwards, model.backwards = counts


def first_peer(
    learner: OnlineLearner, x: Tensor, ask: Callable[[PeerModel, Tensor], Tensor]
) -> Tensor:
    """What the first peer says of images, on the CPU.

    x: (B, 3, H, W), uint8 or float in [0, 1], which is not rounded. ask: such as PeerModel.logits.
    """
    said = []
    with torch.no_grad(), evaluating(learner.peers[0].model) as model:
        for part in x.split(EVAL_BATCH):
            pixels = images(part) if part.dtype == torch.uint8 else part
            said.append(ask(model, pixels).cpu())
    return torch.cat(said)
