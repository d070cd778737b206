"""Features of the images in memory, in the plane."""

from typing import NamedTuple

import torch
from torch import Tensor

from peerlearn.analysis.networks import first_peer
from peerlearn.analysis.runs import Found, Runs
from peerlearn.errors import UserError
from peerlearn.peer import PeerModel
from peerlearn.records.analysis import MOST_PARTS, Curve, Scatter

PERPLEXITY = 30.0
FEWEST = 4  # images that make a picture
NEIGHBOURS = 10
TITLE = "Features of the images in memory"
ABOUT = (
    "t-SNE (perplexity 30, or a third of the images where they are few; started from the principal "
    "components; seed 0) of the features before the classifier, first peer, evaluation mode, of "
    "all images in memory at the end of training. Distances between far groups and the axes mean "
    "nothing. The number beside it needs no picture: the share of an image's 10 nearest "
    "neighbours, in the features themselves, that are of its class."
)


class Plane(NamedTuple):
    """Points in the plane, (N, 2), and how much they differ from the features, as t-SNE counts."""

    points: Tensor
    divergence: float


def embed(features: Tensor, perplexity: float = PERPLEXITY) -> Plane:
    """t-SNE of features, (N, D); the perplexity is lowered to (N - 1) / 3 where that is less."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UserError(
            "tsne: scikit-learn is not installed; pip install 'peerlearn[analysis]'"
        ) from error
    fitting = min(perplexity, (len(features) - 1) / 3)
    fit = TSNE(perplexity=fitting, init="pca", learning_rate="auto", random_state=0)
    points = fit.fit_transform(features.double().numpy())
    return Plane(torch.from_numpy(points), float(fit.kl_divergence_))


def same_class_neighbours(features: Tensor, y: Tensor, most: int = NEIGHBOURS) -> float:
    """The share of the nearest neighbours of each point, itself left out, that have its label.

    >>> same_class_neighbours(torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([0, 0, 1]), most=1)
    0.6666666666666666
    """
    distances = torch.cdist(features.double(), features.double()).fill_diagonal_(torch.inf)
    nearest = distances.topk(min(most, len(y) - 1), largest=False).indices
    return float((y[nearest] == y[:, None]).double().mean())


def find(runs: Runs) -> Found:
    """Points for each run, a set for each class."""
    facts: dict[str, float] = {}
    panels = []
    for run in runs.trained():
        memory = run.learner.memory
        if len(memory) < FEWEST:
            raise UserError(f"{run.name}: {len(memory)} images in memory are too few; leave it out")
        features, y = first_peer(run.learner, memory["x"], PeerModel.features), memory["y"].cpu()
        classes = y.unique().tolist()
        if len(classes) > MOST_PARTS:
            raise UserError(f"{run.name}: {len(classes)} classes are more than a picture can show")
        plane = embed(features)
        facts |= {
            f"{run.name}: neighbours of the same class": same_class_neighbours(features, y),
            f"{run.name}: KL divergence of t-SNE": plane.divergence,
        }
        sets = []
        for k in classes:
            across, up = plane.points[y == k].T.tolist()
            sets.append(Curve(name=f"{run.stream.class_names[k]:.80}", x=across, y=up))
        panels.append(Scatter(title=run.name, sets=sets))
    return Found(facts, panels)
