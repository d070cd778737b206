"""What a learner accepts; everything else is refused before anything changes."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import torch
from torch import nn

from peerlearn.distill.distillation import Distillation
from peerlearn.errors import UserError
from peerlearn.nets.processor import bf16_trial
from peerlearn.optim.optimizers import Optimizer
from peerlearn.peer import Precision

Devices = str | torch.device | Sequence[str | torch.device]  # "cuda:0,cuda:1" names two


def usable_devices(devices: Devices, precision: str) -> list[torch.device]:
    """The devices to run on, at least one; refused if one of them cannot be used.

    >>> usable_devices("cpu", "fp32")
    [device(type='cpu')]
    """
    names: Sequence[str | torch.device]
    if isinstance(devices, str):
        names = [name.strip() for name in devices.split(",")]
    elif isinstance(devices, Sequence):
        names = devices
    else:
        names = [devices]
    if not names:
        raise UserError("device: none is named; take cpu")
    for name in names:
        if not isinstance(name, str | torch.device):
            raise UserError(f"device: need a name such as cpu or cuda:0, got {name!r:.60}")
    return [_usable_device(name, precision) for name in names]


def _usable_device(device: str | torch.device, precision: str) -> torch.device:
    """The device to run on; refused if there is none such, or not with this precision."""
    if precision not in get_args(Precision):
        raise UserError(f"precision must be fp32, bf16 or fp16, got {precision!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of devices that it then refuses
            probe = torch.zeros((), device=device)
            found, _ = probe.device, probe.item()  # not every device has values: "meta" has none
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].partition(" at start of device string")[0]
        raise UserError(f"device {str(device)!r} cannot be used ({reason}); take cpu") from error
    if precision == "bf16" and found.type == "cpu":
        if fault := bf16_trial().fault:
            raise UserError(
                f"precision bf16 cannot be used on this processor: a trial in a process of its "
                f"own {fault}; take precision='fp32'"
            )
    elif precision != "fp32" and found.type != "cuda":
        raise UserError(
            f"precision {precision} needs device='cuda', got {found.type!r}; take precision='fp32'"
        )
    return found


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
