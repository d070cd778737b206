"""Online prototype equilibrium (OnPro): class means that agree across views and stand apart."""

import torch
from torch import Tensor
from torch.nn import functional as F


def class_means(z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mean row of each class, zeros for an absent one. z: (B, P); labels: (B,) -> (C, P)."""
    member = F.one_hot(labels, num_classes).to(z.dtype)  # (B, C)
    return (member.T @ z) / member.sum(dim=0)[:, None].clamp(min=1)


def prototype_contrast(means: Tensor, others: Tensor, *, temperature: float = 0.5) -> Tensor:
    """Contrast of K class means with those of another view: (K, P), (K, P) -> scalar.

    Each of the 2K normalised means must find its counterpart of the other view among all means but
    itself. With one class there is nothing to tell apart and the value is 0.
    """
    v = F.normalize(torch.cat([means, others]), dim=1)
    sim = v @ v.T / temperature
    sim = sim.masked_fill(torch.eye(len(v), dtype=torch.bool, device=v.device), float("-inf"))
    counterpart = torch.arange(len(v), device=v.device).roll(len(means))
    return F.cross_entropy(sim, counterpart)
