"""Take a step in every width, image size, layout and precision; see whether any ends the process.

    python scripts/sweep_layouts.py --widths 1-64 --sizes 8-96

Each configuration has a network of its own, which learns a batch of three images (forward,
backward, step) and answers for one. Many share a child process. Where a child dies, each of its
configurations is tried again in a process of its own: what was written beyond its memory may be
noticed late. With glibc it is noticed for sure, when the memory is freed, in

    LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 python scripts/sweep_layouts.py

Prints a line per death, and a line per width; exit code 1 if any child died.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch.nn import functional as F

from peerlearn.nets import NETWORKS
from peerlearn.nets.processor import Precision, bf16_trial
from peerlearn.optim.optimizers import AdamW
from peerlearn.peer import Layout, Peer
from peerlearn.runtime import keep_freed_memory

PROCESSES = multiprocessing.get_context("fork")  # torch is imported once
PER_CHILD = 100
CLASSES, BATCH = 4, 3


class Configuration(NamedTuple):
    """What may decide which kernels run, and over which memory."""

    net: str
    width: int
    size: int
    layout: Layout
    precision: Precision


def take_step(one: Configuration) -> None:
    """Learn a batch and answer for an image."""
    peer = Peer(
        lambda: NETWORKS[one.net](CLASSES, width=one.width),
        lambda _: None,
        AdamW(),
        seed=0,
        index=0,
        device=torch.device("cpu"),
        precision=one.precision,
        layout=one.layout,
    )
    x = torch.rand(BATCH, 3, one.size, one.size)
    peer.backward(F.cross_entropy(peer.logits(x), torch.arange(BATCH)))
    peer.step()
    peer.model.eval()
    with torch.no_grad():
        assert peer.logits(x[:1]).isfinite().all(), one


def sweep(configurations: Sequence[Configuration]) -> list[str]:
    """Take a step in each, in child processes; a line for each that ended its process."""
    deaths: list[str] = []
    for start in range(0, len(configurations), PER_CHILD):
        some = configurations[start : start + PER_CHILD]
        if code := _in_child(some):
            alone = {one: _in_child([one]) for one in some}
            found = [f"{one} ends with exit code {code}" for one, code in alone.items() if code]
            deaths += found or [f"{some[0]} to {some[-1]} together end with exit code {code}"]
    return deaths


def _in_child(some: Sequence[Configuration]) -> int:
    """The exit code of a child that takes these steps; a negative one is a signal's."""
    child = PROCESSES.Process(target=_work, args=(some,))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def _work(some: Sequence[Configuration]) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as `peerlearn run` does
    for one in some:
        take_step(one)


def grid(
    nets: Sequence[str],
    widths: Sequence[int],
    sizes: Sequence[int],
    precisions: Sequence[Precision],
) -> Iterator[Configuration]:
    """Every combination in both layouts; "auto" is channels_last wherever that is allowed."""
    layouts: tuple[Layout, ...] = ("auto", "default")
    for net, width, size, layout, precision in product(nets, widths, sizes, layouts, precisions):
        yield Configuration(net, width, size, layout, precision)


def _numbers(text: str) -> list[int]:
    """Numbers as a person writes them: 1-3,16."""
    parts = [part.partition("-") for part in text.split(",")]
    return [n for first, _, last in parts for n in range(int(first), int(last or first) + 1)]


def main() -> int:
    """Sweep over what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--widths", type=_numbers, default="1-64", help="such as 1,3,16 (1-64)")
    parser.add_argument("--sizes", type=_numbers, default="8-96", help="in pixels (8-96)")
    parser.add_argument("--nets", default="resnet18", help="such as resnet18,small (resnet18)")
    parser.add_argument("--precisions", default="fp32,bf16", help="fp32, bf16 or both (both)")
    args = parser.parse_args()
    precisions = args.precisions.split(",")
    if "bf16" in precisions and (fault := bf16_trial().fault):
        print(f"bf16 is left out: a trial in a process of its own {fault}")
        precisions.remove("bf16")
    widths, sizes = args.widths, args.sizes
    began, steps, deaths = time.monotonic(), 0, 0
    for width in widths:
        configurations = list(grid(args.nets.split(","), [width], sizes, precisions))
        lines = sweep(configurations)
        steps, deaths = steps + len(configurations), deaths + len(lines)
        minutes = (time.monotonic() - began) / 60
        summary = f"width {width}: {steps} steps so far, {deaths} deaths, {minutes:.1f} min"
        print(*lines, summary, sep="\n", flush=True)
    return int(deaths > 0)


if __name__ == "__main__":
    sys.exit(main())
