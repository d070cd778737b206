"""The loss over all images of the current task, along the stream."""

from peerlearn.analysis.curves import curves
from peerlearn.analysis.runs import Found, Runs

TITLE = "Loss on the current task"
ABOUT = (
    "Mean cross-entropy of the first peer over all training images of the task under way, among "
    "all classes, evaluation mode, no augmentation, asked every so many batches while the run "
    "learnt (probes.jsonl). It leaps up where a task begins (marks). A line that falls faster and "
    "deeper is that of a learner that picks up new classes better."
)


def find(runs: Runs) -> Found:
    """A line for each run."""
    return curves(runs, "current_loss", title=TITLE, y="cross-entropy, nats", log=True)
