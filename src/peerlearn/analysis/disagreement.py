"""How often peers differ, along the stream."""

from peerlearn.analysis.curves import curves
from peerlearn.analysis.runs import Found, Runs

TITLE = "How often peers differ"
ABOUT = (
    "The share of test images of the classes so far, ten of each, that not all peers put into the "
    "same class, asked every so many batches while the run learnt (probes.jsonl). Peers that "
    "always agree have nothing to teach each other. Tasks begin at the marks."
)


def find(runs: Runs) -> Found:
    """A line for each run that has two peers or more."""
    return curves(runs, "disagreement", title=TITLE, y="share of images", log=False)
