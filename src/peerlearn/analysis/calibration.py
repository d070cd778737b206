"""Whether answers are as often right as they are sure."""

import torch

from peerlearn.analysis.runs import Found, Runs, need_logits
from peerlearn.metrics.calibration import reliability
from peerlearn.records.analysis import Curve, Lines

TITLE = "Whether answers are as often right as they are sure"
ABOUT = (
    "On the test images of all tasks at the end of training, by the learner's own answer (the mean "
    "of the peers' logits). Images are put into 15 equal bins by the probability of the class that "
    "is answered; the line shows how often answers of a bin are right over how sure they are on "
    "average. On the diagonal both are equal, below it answers are too sure. ECE is the mean "
    "distance from it, each bin weighted by its images."
)


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
