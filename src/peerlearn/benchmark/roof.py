"""The machine's roof: how much arithmetic it does at best."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from peerlearn.benchmark.learners import Scene
from peerlearn.benchmark.timing import Action, Effort, in_turns, taking_threads
from peerlearn.peer import PeerModel

SIZE = 2048  # of square matrices: large enough that moving them costs little
SHOWN = 74  # images: a stream batch of 10 with 64 of the memory


def roof(widths: Sequence[int], threads: int, effort: Effort) -> Iterator[dict[str, Any]]:
    """Operations per second of matrix products, and of the convolutions of each network."""
    works = {"matrix products": _products(SIZE)}
    for width in widths:
        works[f"convolutions of width {width}"] = _convolutions(Scene(width=width))
    for name, work in works.items():
        with FlopCounterMode(display=False) as counter:
            work()
        for count in sorted({1, threads}):
            with taking_threads(count):
                (times,) = in_turns([work], effort._replace(seconds=1.0))
            speed = counter.get_total_flops() / min(times.clock)
            yield {"what": name, "threads": count, "flops_per_second": speed}


def _products(size: int) -> Action:
    a, b = torch.rand(size, size), torch.rand(size, size)
    out = torch.empty(size, size)
    return partial(torch.mm, a, b, out=out)


def _convolutions(scene: Scene) -> Action:
    """Forward and backward of every convolution of a network by itself, as a step shows it."""
    model = PeerModel(scene.net())
    model.settle(torch.device("cpu"))
    seen: list[tuple[nn.Conv2d, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        seen.append((layer, inputs[0].detach().clone().requires_grad_(bool(seen))))

    hooks = [
        layer.register_forward_pre_hook(note)
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    with torch.no_grad():
        model.features(torch.rand(SHOWN, 3, scene.pixels, scene.pixels))
    for hook in hooks:
        hook.remove()
    pulls = [torch.randn_like(layer(x).detach()) for layer, x in seen]

    def work() -> None:
        for (layer, x), pull in zip(seen, pulls, strict=True):
            layer(x).backward(pull)
            layer.weight.grad = x.grad = None

    return work
