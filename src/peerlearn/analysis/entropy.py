"""How sure networks are of ever harder views of the training images."""

import torch
from torch import Tensor

from peerlearn.analysis.networks import first_peer
from peerlearn.analysis.runs import Found, Runs, Trained, need_logits
from peerlearn.devices import generator
from peerlearn.experiment.probes import images_of
from peerlearn.methods.interface import images
from peerlearn.peer import PeerModel
from peerlearn.records.analysis import Bar, Bars

TITLE = "How sure networks are of ever harder views"
ABOUT = (
    "Mean Shannon entropy, in nats, of the softmax of the first peer's logits in evaluation mode, "
    "over all training images at the end of training. X0 is the image, X1 a resized crop and "
    "mirror of it, X2 RandAugment of X1, X3 RandAugment of X2. Higher is less sure; all classes "
    "alike would be log C. Runs without a chain are shown that of CCL-DC. RandAugment is drawn for "
    "each image, which gives the same mean as a draw per batch with less chance in it."
)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of the softmax, in nats. (B, C) -> (B,).

    >>> entropy(torch.tensor([[0.0, 0.0], [0.0, 1000.0]]))
    tensor([0.6931, 0.0000])
    """
    each: Tensor = torch.special.entr(logits.softmax(dim=1))  # 0 log 0 is 0
    return each.sum(dim=1)


def by_view(run: Trained) -> list[float]:
    """The mean entropy on each view of the chain."""
    chain = run.chain.model_copy(update={"per_sample": True})
    rng = generator(0, "views of an analysis")
    totals, count = torch.zeros(chain.stages + 1, dtype=torch.float64), 0
    for task in run.stream.tasks:
        for x, y in images_of(task, run.epochs):
            views = chain(images(x), rng)
            said = [first_peer(run.learner, view, PeerModel.logits) for view in views]
            totals += torch.stack([entropy(logits.double()).sum() for logits in said])
            count += len(y)
    return [float(total) / count for total in totals]


def find(runs: Runs) -> Found:
    """Bars for each run and view."""
    found: dict[str, float] = {}
    for run in runs.trained():
        need_logits(run)
        found |= {f"{run.name}, X{i}": value for i, value in enumerate(by_view(run))}
    bars = [Bar(name=name, value=value) for name, value in found.items()]
    panel = Bars(title="Entropy of the answers by view", y="mean entropy, nats", bars=bars)
    return Found(found, [panel])
