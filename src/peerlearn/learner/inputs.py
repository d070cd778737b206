"""What a learner accepts; everything else is refused before anything changes."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from peerlearn.distill.distillation import Distillation
from peerlearn.errors import UserError
from peerlearn.optim.optimizers import Optimizer


def network_of(net: Callable[..., nn.Module], num_classes: int) -> Callable[[], nn.Module]:
    """A function that makes a network for so many classes, of one that can for any number."""
    try:
        inspect.signature(net).bind(num_classes)
    except TypeError as error:
        raise UserError(
            f"net: where classes are not announced it takes their number, and this one does not "
            f"({error}); give such as lambda n: small_net(n)"
        ) from error
    except ValueError:  # not every function has a signature
        pass
    return partial(net, num_classes)


def check_net(net: Any) -> None:
    """Refuse what makes no network."""
    if isinstance(net, nn.Module) or not callable(net):
        raise UserError(
            f"net: give a function that makes a network, such as lambda: small_net(10), or "
            f"lambda n: small_net(n) where classes are not announced; got {type(net).__name__}"
        )


def check_arguments(net: Any, distillation: Any, optim: Any, seed: Any, updates: Any) -> None:
    """Refuse what is not what a learner is made of."""
    if torch.is_inference_mode_enabled():
        raise UserError(
            "learner: torch.inference_mode() is on, and what is made there can never learn; build "
            "or restore it outside of it"
        )
    check_net(net)
    if not isinstance(distillation, Distillation | None):
        raise UserError(
            f"distillation: need a Distillation, got {distillation!r:.60}; for a wrapper by its "
            'name take build_learner("er+ccldc", ...)'
        )
    if not isinstance(optim, Optimizer | None):
        raise UserError(f"optim: need peerlearn.AdamW(...) or the like, got {optim!r:.60}")
    _check_whole("seed", seed)
    check_steps(updates, "updates")


def check_steps(steps: Any, name: str = "steps") -> None:
    """Refuse what is not a number of steps, at least one."""
    _check_whole(name, steps)
    if steps < 1:
        raise UserError(f"{name} must be at least 1, got {steps}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        *most, last = choices
        raise UserError(f"{name}: unknown {value!r:.40}; choose {', '.join(most)} or {last}")


def _check_whole(name: str, number: Any) -> None:
    if not hasattr(number, "__index__") or isinstance(number, bool):
        raise UserError(f"{name} must be a whole number, got {number!r:.60}")
