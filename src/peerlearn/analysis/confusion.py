"""Which classes are taken for which."""

import torch
from torch import Tensor

from peerlearn.analysis.runs import Found, Runs
from peerlearn.errors import UserError
from peerlearn.records.analysis import MOST_PARTS, Heat

TITLE = "Which classes are taken for which"
ABOUT = (
    "On the test images of all tasks at the end of training, by the learner's own answer. Rows are "
    "true classes, columns answers, both in the order in which the stream brought them; a cell is "
    "the share of its row. A bright stripe on the right means that old classes are taken for those "
    "of the last task."
)


def confusion(y: Tensor, said: Tensor, classes: int) -> Tensor:
    """The share of each true class, a row, that was given each answer, a column. (B,), (B,).

    >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), classes=2)
    tensor([[0.5000, 0.5000],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    counts = torch.bincount(y * classes + said, minlength=classes**2).view(classes, classes)
    return counts.double() / counts.sum(dim=1, keepdim=True).clamp(min=1)


def find(runs: Runs) -> Found:
    """A matrix for each run."""
    facts: dict[str, float | None] = {}
    panels = []
    for run in runs.trained():
        classes = run.stream.info.num_classes
        if classes > MOST_PARTS:
            raise UserError(f"{run.name}: {classes} classes are more than a matrix can show")
        tests = run.stream.test_sets
        x, y = torch.cat([t.x for t in tests]), torch.cat([t.y for t in tests])
        said = run.learner.predict(x).cpu()
        last = classes - run.stream.task_sizes[-1]  # the first class of the last task
        facts |= {
            f"{run.name}: accuracy": _share(said == y),
            f"{run.name}: answers of the last task": _share(said >= last),
            f"{run.name}: the same of older images": _share(said[y < last] >= last),
        }
        names = [f"{name:.80}" for name in run.stream.class_names]
        panels.append(
            Heat(
                title=run.name,
                x="answer",
                y="class",
                rows=confusion(y, said, classes).tolist(),
                row_names=names,
                column_names=names,
            )
        )
    return Found(facts, panels)


def _share(mask: Tensor) -> float | None:
    return float(mask.double().mean()) if len(mask) else None
