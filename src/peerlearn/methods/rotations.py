"""Rotated pairs: what OCM and OnPro contrast."""

from typing import NamedTuple

import torch
from torch import Tensor

from peerlearn.augment import Augment, rot16, rot16_labels
from peerlearn.errors import UserError
from peerlearn.losses import similarity, unit
from peerlearn.peer import Peer


class Pairs(NamedTuple):
    """Sixteen rotations of each image, then an augmented version of each of those.

    x: (32 B, 3, H, W); labels: (32 B,), a pseudo class per class and rotation. Row i and row
    i + 16 B show the same rotation of the same image; rows 0 to B - 1 are the images themselves.
    """

    x: Tensor
    labels: Tensor


def rotated_pairs(
    x: Tensor, y: Tensor, augment: Augment, rng: torch.Generator, *, stride: int
) -> Pairs:
    """Pairs of the images x, (B, 3, H, W); rotation b of class k is pseudo class k + b * stride."""
    rotated = rot16(x)
    return Pairs(torch.cat([rotated, augment(rotated, rng)]), rot16_labels(y, stride).repeat(2))


def check_rotatable(x: Tensor) -> None:
    """Refuse images that cannot be turned and halved. x: (B, 3, H, W)."""
    height, width = x.shape[2:]
    if height != width or width % 2:
        raise UserError(
            f"images of {height} x {width} pixels cannot be rotated by this method; "
            "resize them to a square of even width"
        )


class Embedding(NamedTuple):
    """Rows of unit length: projections z, (R, P), and features v, (R, D)."""

    z: Tensor
    v: Tensor


def embed(peer: Peer, pairs: list[Pairs]) -> list[Embedding]:
    """All pairs in one forward, so that they share batch-norm statistics; one result for each."""
    sizes = [len(p.x) for p in pairs]
    features = peer.model.features(torch.cat([p.x for p in pairs]))
    z, v = unit(peer.model.project(features)), unit(features)
    return [Embedding(*both) for both in zip(z.split(sizes), v.split(sizes), strict=True)]


def peer_similarity(peer: Peer, rows: Embedding, weight: float) -> Tensor:
    """Similarity of the rows, (R, R), against a slice of the features that the peer draws."""
    spare = rows.v.shape[1] - rows.z.shape[1]
    offset = int(torch.randint(max(spare, 1), (), generator=peer.rng))
    return similarity(*rows, offset=offset, weight=weight)
