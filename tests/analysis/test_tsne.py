"""t-SNE: what scikit-learn minimises is what the paper of t-SNE says."""

import sys

import pytest
import torch
from torch import Tensor

from peerlearn.analysis.tsne import embed
from peerlearn.errors import UserError


def blobs() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    return torch.eye(8)[y] * 20 + torch.randn(60, 8, generator=rng), y


def neighbour_chances(distances: Tensor, perplexity: float) -> Tensor:
    """P of t-SNE, (N, N): each row's width is found by halving until its perplexity fits."""
    n = len(distances)
    rows = torch.zeros(n, n, dtype=torch.float64)
    others = ~torch.eye(n, dtype=torch.bool)
    for i in range(n):
        low, high = 0.0, 1e6
        for _ in range(200):
            beta = (low + high) / 2
            p = (-beta * distances[i, others[i]]).softmax(dim=0)
            entropy = -(p * p.clamp(min=1e-300).log()).sum()
            low, high = (beta, high) if entropy.exp() > perplexity else (low, beta)
        rows[i, others[i]] = p
    return (rows + rows.T) / (2 * n)


def test_the_divergence_is_that_of_a_plain_second_computation() -> None:
    rng = torch.Generator().manual_seed(1)
    features = torch.randn(16, 5, generator=rng, dtype=torch.float64)
    points, divergence = embed(features, perplexity=5)
    p = neighbour_chances(torch.cdist(features, features) ** 2, 5)
    q = 1 / (1 + torch.cdist(points.double(), points.double()) ** 2)
    q = q.fill_diagonal_(0) / q.fill_diagonal_(0).sum()
    apart = ~torch.eye(16, dtype=torch.bool)
    expected = float((p[apart] * (p[apart] / q[apart]).log()).sum())
    assert divergence == pytest.approx(expected, rel=0.02)


def test_groups_that_lie_apart_lie_apart_in_the_plane() -> None:
    features, y = blobs()
    points = embed(features).points
    nearest = torch.cdist(points, points).fill_diagonal_(torch.inf).argmin(dim=1)
    assert torch.equal(y[nearest], y)


def test_the_same_features_give_the_same_points() -> None:
    features, _ = blobs()
    assert torch.equal(embed(features).points, embed(features).points)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(UserError, match=r"pip install 'peerlearn\[analysis\]'"):
        embed(torch.rand(10, 3))
