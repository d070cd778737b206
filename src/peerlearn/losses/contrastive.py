"""Supervised NT-Xent over rotated images (OCM, OnPro).

The two small constants are part of the published losses and are kept where they stand: they cap
each term at -log(EPS) = 18.42, which is reached whenever an image's similarity to itself stands far
above the rest of its row. A log-softmax would not be the same function there.
"""

import torch
from torch import Tensor

EPS = 1e-8


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length one. x: (R, D)."""
    length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / (length + EPS)


def similarity(z: Tensor, v: Tensor, *, offset: int, weight: float) -> Tensor:
    """Weight * (z V' + z z'), V being as many columns of v, from `offset` on, as z has.

    z: (R, P) unit projections; v: (R, D) unit features, D >= P; result (R, R).
    """
    return weight * (z @ (v[:, offset : offset + z.shape[1]] + z).T)


def _pair_losses(sim: Tensor, temperature: float, *, drop_self: bool) -> Tensor:
    """-log of each column's share in its row: (R, R) -> (R, R)."""
    e = torch.exp((sim - sim.max(dim=1, keepdim=True).values.detach()) / temperature)
    if drop_self:
        e = e.masked_fill(torch.eye(len(e), dtype=torch.bool, device=e.device), 0.0)
    return -torch.log(e / (e.sum(dim=1, keepdim=True) + EPS) + EPS)


def _over_positives(losses: Tensor, labels: Tensor) -> Tensor:
    """Mean over rows of the mean over the columns with the row's label, itself included."""
    same = labels[:, None] == labels[None, :]
    return ((losses * same).sum(dim=1) / same.sum(dim=1)).mean()


def nt_xent(sim: Tensor, labels: Tensor, *, temperature: float = 0.07) -> Tensor:
    """Every row close to all columns of its label (replayed images, or the previous model's).

    sim: (R, R); labels: (R,), of rows and columns alike; a row's own column counts.
    """
    return _over_positives(_pair_losses(sim, temperature, drop_self=False), labels)


def nt_xent_new(sim: Tensor, labels: Tensor, *, temperature: float = 0.07) -> Tensor:
    """The form for stream images: each close to its other version, and twice that to its class.

    sim: (R, R), labels: (R,); row i and row i + R / 2 are two versions of one image. A row's own
    column is left out of the competition, yet counted, as the constant -log(EPS), among its
    positives.
    """
    losses = _pair_losses(sim, temperature, drop_self=True)
    other = torch.arange(len(sim), device=sim.device).roll(len(sim) // 2)
    return losses.gather(1, other[:, None]).mean() + 2 * _over_positives(losses, labels)
