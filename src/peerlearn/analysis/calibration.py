"""Whether answers are as often right as they are sure."""

from typing import NamedTuple

import torch
from torch import Tensor

from peerlearn.analysis.runs import Found, Runs, need_logits
from peerlearn.records.analysis import Curve, Lines

BINS = 15
TITLE = "Whether answers are as often right as they are sure"
ABOUT = (
    "On the test images of all tasks at the end of training, by the learner's own answer (the mean "
    "of the peers' logits). Images are put into 15 equal bins by the probability of the class that "
    "is answered; the line shows how often answers of a bin are right over how sure they are on "
    "average. On the diagonal both are equal, below it answers are too sure. ECE is the mean "
    "distance from it, each bin weighted by its images."
)


class Reliability(NamedTuple):
    """Bins of answers, each (bins,): how sure, how often right, which share of all."""

    confidence: Tensor
    accuracy: Tensor
    share: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error (ECE)."""
        return float((self.share * (self.accuracy - self.confidence).abs()).sum())


def reliability(probabilities: Tensor, y: Tensor, bins: int = BINS) -> Reliability:
    """Equal bins of confidence, each with its upper edge; empty ones are 0. (B, C), (B,).

    >>> found = reliability(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]), bins=2)
    >>> found.confidence, found.accuracy
    (tensor([0.0000, 0.8500], dtype=torch.float64), tensor([0.0000, 0.5000], dtype=torch.float64))
    """
    confidence, said = probabilities.double().max(dim=1)
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    place = torch.bucketize(confidence, edges)

    def total(values: Tensor) -> Tensor:
        return torch.bincount(place, weights=values.double(), minlength=bins)

    count = total(torch.ones_like(confidence))
    some = count.clamp(min=1)
    return Reliability(total(confidence) / some, total(said == y) / some, count / len(y))


def find(runs: Runs) -> Found:
    """A line for each run, and the diagonal."""
    lines = []
    facts: dict[str, float] = {}
    for run in runs.trained():
        need_logits(run)
        tests = run.stream.test_sets
        x, y = torch.cat([t.x for t in tests]), torch.cat([t.y for t in tests])
        found = reliability(run.learner.predict_proba(x).cpu(), y)
        full = found.share > 0
        sure, right = found.confidence[full].tolist(), found.accuracy[full].tolist()
        lines.append(Curve(name=run.name, x=sure, y=right))
        facts |= {
            f"{run.name}: ECE": found.error,
            f"{run.name}: mean confidence": float((found.share * found.confidence).sum()),
            f"{run.name}: accuracy": float((found.share * found.accuracy).sum()),
        }
    diagonal = Curve(name="as sure as right", x=[0.0, 1.0], y=[0.0, 1.0])  # last: runs keep colours
    lines.append(diagonal)
    panel = Lines(title="Reliability", x="confidence", y="accuracy", lines=lines)
    return Found(facts, [panel])
