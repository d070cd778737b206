"""What this processor can be trusted with: bf16, tried in a child process, and memory layouts.

Some processors, and some systems around them, end a process at its first bf16 instruction. Run as a
program, `python -m peerlearn.nets.processor WIDTH`, this module is the process that may end so.
"""

import json
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn.errors import UserError
from peerlearn.nets.resnet import ResNet18
from peerlearn.runtime import child_environment

COMMAND = (sys.executable, "-P", "-m", "peerlearn.nets.processor")
TIMEOUT = 120.0  # seconds; importing torch on a busy machine takes some of them
WIDTHS = (1, 3, 16, 20, 64)  # beside, in and between the sizes that kernels are made for
MOST_WIDTH = 64  # a wider network gains no more, and takes longer to tell
ROUNDS, ENOUGH_SECONDS = 3, 1.0
MOST_ERROR = 0.2  # of a layer, relative to fp32; rounding to bf16 costs less than 0.06
SAFE_CHANNELS = 16  # of a strided 1x1 convolution in channels_last

Precision = Literal["fp32", "bf16", "fp16"]
Devices = str | torch.device | Sequence[str | torch.device]  # "cuda:0,cuda:1" names two

_trials: dict[int, "Trial"] = {}  # by width, of this process


class Trial(NamedTuple):
    """What came of trying bf16 on this processor.

    fault: why it cannot be used, "" if it can. gain: how many times as fast as in fp32 the steps of
    a network were, 0 if that is not known.
    """

    fault: str
    gain: float = 0.0


def bf16_trial(width: int | None = None) -> Trial:
    """Try bf16 in a child process; what was found is remembered for this process.

    width: of the ResNet-18 whose steps are timed. None: whatever was tried before will do.
    """
    if width is None:
        width = next(iter(_trials), WIDTHS[0])
    width = min(width, MOST_WIDTH)
    if width not in _trials:
        _trials[width] = _try(width)
    return _trials[width]


def _try(width: int) -> Trial:
    try:
        ended = subprocess.run(
            [*COMMAND, str(width)],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Trial(f"did not end within {TIMEOUT:g} s")
    except OSError as error:
        return Trial(f"could not be started ({error})")
    if ended.returncode < 0:
        return Trial(f"was ended by {_signal_name(-ended.returncode)}")
    try:
        seconds = json.loads(ended.stdout.splitlines()[-1])
        return Trial("", seconds["fp32"] / seconds["bf16"])
    except (ValueError, LookupError, TypeError, ArithmeticError):
        said = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Trial(f"failed ({said[0] if said else f'exit code {ended.returncode}'!s:.200})")


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


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


def may_overrun(module: nn.Module) -> bool:
    """Return whether a layer may write beyond its memory in channels_last; see `PeerModel.settle`.

    A layer of an unknown class may if its weights look like those of such a convolution.
    """
    if isinstance(module, nn.Conv2d):
        few = module.in_channels // module.groups < SAFE_CHANNELS
        return few and max(module.kernel_size) == 1 and max(module.stride) > 1
    return any(
        weight.ndim == 4 and weight.shape[2:] == (1, 1) and weight.shape[1] < SAFE_CHANNELS
        for weight in module.parameters(recurse=False)
    )


# ---- in the child ----


def main(width: int) -> None:
    """Try every kind of layer, then time a network; print its seconds by precision as JSON."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a death that was expected leaves no file
    torch.set_num_threads(1)  # others may need the cores
    torch.manual_seed(0)
    for layout in (torch.contiguous_format, torch.channels_last):
        for channels in WIDTHS:
            for layer in _layers(channels, layout):
                _compare(layer, torch.rand(4, channels, 16, 16), layout)
    print(json.dumps(_seconds(width)))


def _layers(channels: int, layout: torch.memory_format) -> list[nn.Module]:
    """What networks are made of; not the one that overruns, see `PeerModel.settle`."""
    more = 2 * channels
    layers = [
        nn.Conv2d(channels, more, 3, padding=1, bias=False),
        nn.Conv2d(channels, more, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(channels, more, 1, bias=False),
        nn.Sequential(nn.Conv2d(channels, more, 3, bias=False), nn.BatchNorm2d(more)),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)),
    ]
    if channels >= SAFE_CHANNELS or layout == torch.contiguous_format:
        layers.append(nn.Conv2d(channels, more, 1, stride=2, bias=False))
    return layers


def _compare(layer: nn.Module, x: Tensor, layout: torch.memory_format) -> None:
    """Fail if answers or gradients of a layer are far from those in fp32."""
    layer.to(memory_format=layout)  # type: ignore[call-overload]
    x = x.contiguous(memory_format=layout)
    for low, plain in zip(_pass(layer, x, "bf16"), _pass(layer, x, "fp32"), strict=True):
        error = float((low - plain).norm() / plain.norm().clamp(min=1e-6))
        if not error < MOST_ERROR:
            layer_name = " ".join(str(layer).split())
            raise ArithmeticError(f"{layer_name} is wrong in bf16 by {error:.0%}")


def _pass(layer: nn.Module, x: Tensor, precision: str) -> list[Tensor]:
    """Forward and backward: what it answers, and the gradients of its weights and input."""
    x = x.detach().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        y = layer(x)
    pull = torch.linspace(-1, 1, y.numel()).sin_().view_as(y)
    (y.float() * pull).sum().backward()
    wanted = [x, *layer.parameters()]
    found = [t.grad.clone() for t in wanted if t.grad is not None]
    layer.zero_grad()
    return [y.detach().float(), *found]


def _seconds(width: int) -> dict[str, float]:
    """The time of a step of a ResNet-18 in each precision, taking turns."""
    taken: dict[str, list[float]] = {"fp32": [], "bf16": []}
    nets = {p: ResNet18(10, width=width) for p in taken}
    for net in nets.values():
        if width >= SAFE_CHANNELS:
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, y = torch.rand(16, 3, 32, 32), torch.arange(16) % 10
    began = time.monotonic()
    while len(taken["bf16"]) <= ROUNDS or time.monotonic() - began < ENOUGH_SECONDS:
        for precision, times in taken.items():
            start = time.process_time()  # others on the machine do not change it much
            low = precision == "bf16"
            with torch.autocast("cpu", torch.bfloat16, enabled=low, cache_enabled=False):
                logits = nets[precision](x)
            F.cross_entropy(logits.float(), y).backward()
            times.append(time.process_time() - start)
    return {precision: statistics.median(times[1:]) for precision, times in taken.items()}


if __name__ == "__main__":
    main(int(sys.argv[1]))
