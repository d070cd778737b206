"""The paper's worked example of FM and RF: two learners, one half as good as the other."""

from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.paper.tables import EXAMPLE
from peerlearn.records.reproduction import Compared, Gap, Reproduction, Value, Verdict

TASKS = 5
LEARNERS = {"learner 1": 0.30, "learner 2": 0.15}  # on the first task; a sixth less after each
# after tasks 2 to 5, in percent
FM = {"learner 1": (5.0, 7.5, 10.0, 12.5), "learner 2": (2.5, 3.75, 5.0, 6.25)}
RF = (8.33, 17.78, 28.75, 42.0)
ROUNDING = 0.005  # of a published percent


def matrix(learner: str) -> AccuracyMatrix:
    """The accuracies of a learner, the same on all tasks so far.

    >>> round(matrix("learner 2").average_accuracy, 3)
    0.05
    """
    first = LEARNERS[learner]
    return AccuracyMatrix([[first * (7 - i) / 6] * i for i in range(1, TASKS + 1)])


def worked_example() -> Reproduction:
    """FM and RF of both learners after every task, published beside computed."""
    rows = []
    for learner in LEARNERS:
        for step in range(2, TASKS + 1):
            at = matrix(learner).at(step - 1)
            printed = {"FM": FM[learner][step - 2], "RF": RF[step - 2]}
            computed = {"FM": at.forgetting, "RF": at.relative_forgetting}
            rows += [
                _row(f"{learner}, after task {step}", metric, printed[metric], computed[metric])
                for metric in printed
            ]
    return Reproduction(
        name=EXAMPLE, source="Table 1", title="forgetting of two example learners",
        says="both lose the same share of what they knew: RF is equal, FM is not",
        scale="paper", profile="paper", worked=True, rows=rows, orders=[], best={},
    )  # fmt: skip


def _row(row: str, metric: str, printed: float, computed: float) -> Compared:
    gap = computed - printed / 100
    near = abs(100 * gap) <= ROUNDING
    verdict: Verdict = "agrees" if near else "higher" if gap > 0 else "lower"
    return Compared(
        row=row, data="example", memory=0, at_data="example", at_memory=0, metric=metric,
        by="ensemble", scale="paper", published=Value(mean=printed / 100, n=1),
        measured=Value(mean=computed, n=1), gap=Gap(difference=gap), verdict=verdict,
    )  # fmt: skip
