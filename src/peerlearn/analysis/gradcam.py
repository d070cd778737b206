"""Where networks look: Grad-CAM++ on images that all runs get right."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.analysis.networks import evaluating, first_peer
from peerlearn.analysis.pictures import SHOWN, one_per_class, overlay, png, shuffled
from peerlearn.analysis.runs import Found, Runs, Trained, need_logits
from peerlearn.data.images import ImageSet
from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.learner.online import OnlineLearner
from peerlearn.methods.interface import images
from peerlearn.peer import PeerModel
from peerlearn.records.analysis import ImageRow, Images

CANDIDATES = 2000  # training images that are tried
TITLE = "Where networks look"
ABOUT = (
    "Grad-CAM++ (Chattopadhay et al., WACV 2018) of the true class, first peer, evaluation mode, "
    "at the last layer that gives maps: of the ResNet, the last block of stage 4. Training images, "
    "one per class, by chance the same every time, out of those that the first peer of every run "
    "here gets right. Red is where the class is seen, blue where nothing is; each map is scaled to "
    "its own maximum."
)


def grad_cam_pp(maps: Tensor, gradients: Tensor) -> Tensor:
    """Where a class is seen, from 0 to 1. maps, gradients of its score: (B, K, h, w) -> (B, h, w).

    With Y = exp(score), the second and third derivatives of Y are exp(score) times powers of the
    gradient wherever the score is linear in the maps, as after an average pool and a linear layer:

        alpha = g**2 / (2 g**2 + g**3 * sum of the map)    weight of a map = sum of alpha * relu(g)
    """
    a, g = maps.double(), gradients.double()
    below = 2 * g**2 + g**3 * a.sum(dim=(2, 3), keepdim=True)
    alpha = torch.where(below == 0, 0.0, g**2 / torch.where(below == 0, 1.0, below))
    weights = (alpha * g.relu()).sum(dim=(2, 3), keepdim=True)
    seen = (weights * a).sum(dim=1).relu()
    return seen / seen.amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(seen.dtype).tiny)


class Maps(NamedTuple):
    """What the last layer with maps gives, the gradients of the score there, and its name."""

    maps: Tensor  # (B, K, h, w)
    gradients: Tensor
    layer: str


def last_maps(model: PeerModel, x: Tensor, y: Tensor) -> Maps:
    """The maps that the score of class y rests on. x: (B, 3, H, W) in [0, 1]; y: (B,)."""
    found: list[tuple[str, Tensor]] = []

    def watch(name: str, out: object) -> None:
        if not isinstance(out, Tensor) or out.ndim != 4 or out.shape[2:].numel() == 1:
            return
        if not any(last is out and inner.startswith(f"{name}.") for inner, last in found):
            found[:] = [(name, out)]  # not a container, which gives what its last layer gave

    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: watch(name, out))
        for name, module in model.net.named_modules()
        if name
    ]
    try:
        with torch.enable_grad(), evaluating(model):
            logits = model.logits(moved(x, model.device).detach().requires_grad_())
    finally:
        for hook in hooks:
            hook.remove()
    score = logits.gather(1, moved(y, logits.device)[:, None]).sum()
    for name, maps in found:
        (gradients,) = torch.autograd.grad(score, maps, allow_unused=True)
        if gradients is not None:
            return Maps(maps.detach().cpu(), gradients.cpu(), name)
    raise UserError(
        f"gradcam: {type(model.net).__name__} has no layer that gives maps (batch, channels, "
        "height, width) on the way to its answer; leave its runs out"
    )


def heat_maps(learner: OnlineLearner, x: Tensor, y: Tensor) -> tuple[Tensor, str]:
    """Where the first peer sees class y, (B, H, W) in [0, 1], and at which layer. x: uint8."""
    maps, gradients, layer = last_maps(learner.peers[0].model, images(x), y)
    size = (x.shape[2], x.shape[3])
    heat = grad_cam_pp(maps, gradients)[:, None].float()
    return F.interpolate(heat, size, mode="bilinear", align_corners=False)[:, 0].clamp(0, 1), layer


def find(runs: Runs) -> Found:
    """The images, and beside each what every run sees in it."""
    train, rows, facts = _right_for_all(runs)
    columns, pictures = ["image"], [[png(image)] for image in images(train.x[rows])]
    for run in runs.trained():
        heat, layer = heat_maps(run.learner, train.x[rows], _labels(run, rows))
        for row, image, where in zip(pictures, images(train.x[rows]), heat, strict=True):
            row.append(png(overlay(image, where)))
        columns.append(run.name)
        facts[f"{run.name}: layer"] = layer
    names = [f"{train.class_names[k]:.80}" for k in train.y[rows].tolist()]
    shown = [ImageRow(name=n, images=some) for n, some in zip(names, pictures, strict=True)]
    panel = Images(title="Grad-CAM++ on training images", column_names=columns, rows=shown)
    return Found(facts, [panel])


def _right_for_all(runs: Runs) -> tuple[ImageSet, Tensor, dict[str, Any]]:
    """Training images, the rows of a few that every run gets right, and how many each does."""
    tried, rows = None, torch.empty(0, dtype=torch.int64)
    facts: dict[str, Any] = {}
    for run in runs.trained():
        need_logits(run)
        train = run.stream.dataset.train
        if tried is None:
            tried, rows = train, shuffled(len(train))[:CANDIDATES]
            right = torch.ones(len(rows), dtype=torch.bool)
        if len(train) != len(tried) or not torch.equal(train.x[rows], tried.x[rows]):
            raise UserError(
                f"gradcam: {run.name} has learnt from other images than the runs before it; name "
                "runs on the same data with the same --train-per-class"
            )
        said = first_peer(run.learner, train.x[rows], PeerModel.logits).argmax(dim=1)
        own = said == _labels(run, rows)
        facts[f"{run.name}: right of the images tried"] = float(own.double().mean())
        right &= own
    assert tried is not None, "there is a run"
    rows = rows[right]
    if not len(rows):
        raise UserError("gradcam: there is no image that all these runs get right; name fewer runs")
    return tried, rows[one_per_class(tried.y[rows], SHOWN)], facts


def _labels(run: Trained, rows: Tensor) -> Tensor:
    """The labels of training images as the run's stream numbers them."""
    order = run.stream.info.class_ids
    assert order is not None
    return torch.tensor(order).argsort()[run.stream.dataset.train.y[rows]]
