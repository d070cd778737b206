"""Peers: a model with its optimizer, its randomness and what its method keeps for it."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.peer.model import PeerModel as PeerModel
    from peerlearn.peer.model import Precision as Precision
    from peerlearn.peer.optimizers import SGD as SGD
    from peerlearn.peer.optimizers import Adam as Adam
    from peerlearn.peer.optimizers import AdamW as AdamW
    from peerlearn.peer.optimizers import Optimizer as Optimizer
    from peerlearn.peer.peer import Peer as Peer

OPTIMIZERS: "Registry[type[Optimizer]]" = Registry(
    "optimizer", "peerlearn.peer.optimizers", "peerlearn.peer.optimizers:Optimizer"
)

if not TYPE_CHECKING:  # a name that nobody has must not pass the type checker
    __getattr__ = lazy(
        __name__,
        {
            "Adam": "optimizers",
            "AdamW": "optimizers",
            "Optimizer": "optimizers",
            "Peer": "peer",
            "PeerModel": "model",
            "Precision": "model",
            "SGD": "optimizers",
        },
    )
