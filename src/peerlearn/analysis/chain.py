"""The views of the distillation chain."""

from typing import Any

from peerlearn.analysis.pictures import one_per_class, png, shuffled
from peerlearn.analysis.runs import Found, Runs
from peerlearn.devices import generator
from peerlearn.methods.interface import images
from peerlearn.records.analysis import ImageRow, Images

TITLE = "The distillation chain"
ABOUT = (
    "Training images, one per class, chosen by chance the same every time. X0 is the image, X1 a "
    "resized crop and mirror of it, X2 RandAugment of X1, X3 RandAugment of X2. As in a step of "
    "training, all images of a picture share the operations of RandAugment, unless per_sample is "
    "on. Runs without a chain show that of CCL-DC on their data."
)


def find(runs: Runs) -> Found:
    """Pictures for each data set and chain."""
    panels: dict[str, Images] = {}
    for run in runs.finished():
        chain, train = run.chain, run.stream.dataset.train
        told: dict[str, Any] = {"stages": chain.stages, "N": chain.ops, "M": chain.magnitude}
        told |= {"per_sample": True} if chain.per_sample else {}
        told |= {"first": chain.first} if chain.first else {}
        words = ", ".join(f"{name} {value}" for name, value in told.items())
        title = f"{run.record.data:.80}: {words}"
        if title in panels:
            continue
        order = shuffled(len(train))
        rows = order[one_per_class(train.y[order])]
        views = chain(images(train.x[rows]), generator(0, "views of an analysis"))
        names = [f"{train.class_names[k]:.80}" for k in train.y[rows].tolist()]
        panels[title] = Images(
            title=title,
            column_names=[f"X{i}" for i in range(len(views))],
            rows=[
                ImageRow(name=name, images=[png(view[i]) for view in views])
                for i, name in enumerate(names)
            ],
        )
    return Found({}, [*panels.values()])
