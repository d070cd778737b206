"""What a step costs, and where its time goes.

    python benchmarks/step.py                  # all of it, about ten minutes on two quiet cores
    python benchmarks/step.py --ratios         # only the comparison with a bare loop

A bare loop does the same forwards, backwards and optimizer steps on the same number of images with
the same networks, and nothing else. Both sides take turns in one process and medians are compared,
because machines are shared: only ratios carry over.
"""

import argparse
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional as F

from peerlearn import METHODS, ClassStream, OnlineLearner, ResNet18, build_learner, toy_images
from peerlearn.augment import AUGMENTATIONS, ViewChain
from peerlearn.memory import Memory
from peerlearn.peer import Peer, PeerModel
from peerlearn.runtime import keep_freed_memory, peak_memory, reset_peak_memory
from peerlearn.stream import Batch

CLASSES, MEMORY = 10, 200
OWN_AUGMENTATION = {
    "ocm": "full",
    "gsa": "crop_grey_mirrored",
    "onpro": "flip_grey_crop",
    "pcr": "full",
}


def prepared(name: str, width: int) -> tuple[OnlineLearner, Iterator[Batch]]:
    """A learner in its second task, its memory full, and batches to go on with."""
    data = toy_images(num_classes=CLASSES, train_per_class=150, size=32)
    stream = ClassStream(data, num_tasks=5, batch_size=10, seed=0)
    net = partial(ResNet18, CLASSES, width=width)
    learner = build_learner(name, stream.info, net, memory=MEMORY)
    for x, y in stream.tasks[0].batches():
        learner.memory.add(learner.rngs["memory"], x=x, y=y, **columns(name, len(y)))
    first = next(iter(stream.tasks[0].batches()))
    learner.learn(*first)
    learner.end_task()
    return learner, itertools.cycle(list(stream.tasks[1].batches()))


def columns(name: str, count: int) -> dict[str, torch.Tensor]:
    return {"logits": torch.zeros(count, CLASSES)} if name.startswith("derpp") else {}


def bare_step(peers: int, width: int, views: int) -> Callable[[], None]:
    """The arithmetic of a step: each peer, each batch of 74, forward and backward."""
    nets = [ResNet18(CLASSES, width=width) for _ in range(peers)]
    for net in nets:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=5e-4, fused=True) for net in nets]
    batches = [
        torch.rand(74, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        for _ in range(views)
    ]
    y = torch.randint(CLASSES, (74,))

    def step() -> None:
        for net, optimizer in zip(nets, optimizers, strict=True):
            torch.stack([F.cross_entropy(net(x), y) for x in batches]).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ratio(name: str, width: int, rounds: int) -> tuple[float, float]:
    """Medians of our step and of the bare one, in turns."""
    learner, batches = prepared(name, width)
    bare = bare_step(len(learner.peers), width, views=5 if "+" in name else 1)
    ours, theirs = [], []
    for number in range(rounds + 2):
        pair = (seconds(lambda: learner.learn(*next(batches))), seconds(bare))
        if number >= 2:  # the first ones warm up
            ours.append(pair[0])
            theirs.append(pair[1])
    return statistics.median(ours), statistics.median(theirs)


@contextmanager
def timed(parts: dict[str, float], name: str) -> Iterator[None]:
    """Add the time of everything that a step does to its part."""
    depth = [0]

    def watch(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if depth[0]:
                return function(*args, **kwargs)  # counted by the part around it
            depth[0] = 1
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                parts[part] += time.perf_counter() - start
                depth[0] = 0

        return watched

    base = name.split("+")[0]
    module = f"peerlearn.methods.{base}"
    targets = [
        (PeerModel, "_run", "forward"),
        (Peer, "backward", "backward"),
        (Peer, "step", "optimizer"),
        (Memory, "add", "memory"),
        (Memory, "draw", "memory"),
        (Memory, "draw_where", "memory"),
        (ViewChain, "__call__", "augmentation"),
    ]
    with ExitStack() as stack:
        for owner, attribute, part in targets:
            original = getattr(owner, attribute)
            stack.enter_context(patch.object(owner, attribute, watch(part, original)))
        named = {name: watch("augmentation", f) for name, f in AUGMENTATIONS.items()}
        stack.enter_context(patch.dict(AUGMENTATIONS, named))
        if (function := OWN_AUGMENTATION.get(base)) is not None:
            original = getattr(import_module(module), function)
            stack.enter_context(patch(f"{module}.{function}", watch("augmentation", original)))
        yield


def shares(name: str, width: int, rounds: int) -> dict[str, float]:
    """Seconds of a step, the share of each of its parts, images per second, peak memory."""
    learner, batches = prepared(name, width)
    learner.learn(*next(batches))
    reset_peak_memory()
    parts: dict[str, float] = defaultdict(float)
    before = learner.cost["forward_images"]
    with timed(parts, name):
        times = [seconds(lambda: learner.learn(*next(batches))) for _ in range(rounds)]
    images = (learner.cost["forward_images"] - before) / rounds
    total = sum(times)
    names = ("forward", "backward", "optimizer", "augmentation", "memory")
    return {
        "seconds": statistics.median(times),
        "images": images,
        "rate": images * rounds / total,
        "peak": peak_memory() / 2**20,
        **{part: 100 * parts[part] / total for part in names},
        "rest": 100 * (1 - sum(parts.values()) / total),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ratios", action="store_true", help="only the comparison")
    parser.add_argument("--rounds", type=int, default=0, help="steps of each kind")
    args = parser.parse_args()
    keep_freed_memory()
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians\n")
    print("| step | width | ours (s) | bare (s) | ratio |\n|---|---|---|---|---|")
    for width, name in itertools.product((16, 64), ("er", "er+ccldc")):
        usual = {16: {"er": 60, "er+ccldc": 15}, 64: {"er": 15, "er+ccldc": 5}}[width][name]
        ours, bare = ratio(name, width, args.rounds or usual)
        print(f"| {name} | {width} | {ours:.3f} | {bare:.3f} | {ours / bare:.3f} |", flush=True)
    if args.ratios:
        return
    head = ["step", "seconds", "images forward", "images/s", "peak MB"]
    head += ["forward %", "backward %", "optimizer %", "augmentation %", "memory %", "rest %"]
    print("\nWidth 16, second task.\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name in [method + kind for method in METHODS for kind in ("", "+ccldc")]:
        usual = 3 if name.startswith(("ocm", "onpro")) else 10
        found = shares(name, 16, args.rounds or usual)
        cells = [name, f"{found['seconds']:.3f}", f"{found['images']:.0f}", f"{found['rate']:.0f}"]
        cells += [f"{found['peak']:.0f}"]
        cells += [f"{found[part]:.1f}" for part in list(found)[4:]]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
