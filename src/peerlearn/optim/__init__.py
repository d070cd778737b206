"""Optimizers by name: their settings, and how one is made for a peer."""

from typing import TYPE_CHECKING

from peerlearn.lazy import lazy
from peerlearn.registry import Registry

if TYPE_CHECKING:
    from peerlearn.optim.optimizers import SGD as SGD
    from peerlearn.optim.optimizers import Adam as Adam
    from peerlearn.optim.optimizers import AdamW as AdamW
    from peerlearn.optim.optimizers import Optimizer as Optimizer

OPTIMIZERS: "Registry[type[Optimizer]]" = Registry(
    "optimizer", "peerlearn.optim.optimizers", "peerlearn.optim.optimizers:Optimizer"
)

if not TYPE_CHECKING:  # an unknown name must not pass the type checker
    __getattr__ = lazy(__name__, dict.fromkeys(("SGD", "Adam", "AdamW", "Optimizer"), "optimizers"))
