"""What layout and precision cost and gain on this machine: the tables of docs/precision.md.

    python scripts/measure_precision.py            both, a few minutes on a quiet core
    python scripts/measure_precision.py --json     as JSON

The time of a step is the processor's, in one thread, of batches as ER trains on them; the four
kinds take turns, and medians count. Gradients are those of the whole network in training mode,
next to the same network in float64.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.nets import ResNet18
from peerlearn.nets.processor import Precision, bf16_trial
from peerlearn.peer import Layout, PeerModel
from peerlearn.runtime import keep_freed_memory

BATCH, SIZE, CLASSES = 74, 32, 10
WIDTHS = (16, 64)


class Kind(NamedTuple):
    """A way to compute."""

    layout: Layout
    precision: Precision

    def __str__(self) -> str:
        return f"{self.layout}, {self.precision}"


KINDS = [Kind("channels_last", "fp32"), Kind("default", "fp32"),
         Kind("channels_last", "bf16"), Kind("default", "bf16")]  # fmt: skip


def model(kind: Kind, width: int, seed: int = 0) -> PeerModel:
    """A network of this kind; the same seed gives the same weights."""
    torch.manual_seed(seed)
    found = PeerModel(ResNet18(CLASSES, width=width), kind.precision, kind.layout)
    found.settle(torch.device("cpu"))
    return found


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Images (BATCH, 3, SIZE, SIZE) and labels."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(BATCH, 3, SIZE, SIZE, generator=rng)
    return x, torch.randint(CLASSES, (BATCH,), generator=rng)


def step_seconds(kinds: Sequence[Kind], width: int, rounds: int) -> dict[Kind, float]:
    """Median of a forward and backward of each kind, taking turns."""
    models = {kind: model(kind, width) for kind in kinds}
    x, y = batch(0)
    taken: dict[Kind, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds + 1):
        for kind, one in models.items():
            start = time.process_time()
            F.cross_entropy(one.logits(x), y).backward()
            taken[kind].append(time.process_time() - start)
            one.zero_grad()
    return {kind: statistics.median(times[1:]) for kind, times in taken.items()}


def gradient_error(kind: Kind, width: int, seed: int) -> float:
    """How far the gradient of the whole network is from float64, relative to its length."""
    one = model(kind, width, seed)
    exact = copy.deepcopy(one.net).double()
    x, y = batch(seed)
    F.cross_entropy(one.logits(x), y).backward()
    F.cross_entropy(exact(x.double()), y).backward()
    return float((_gradient(one.net) - _gradient(exact)).norm() / _gradient(exact).norm())


def _gradient(net: torch.nn.Module) -> Tensor:
    return torch.cat([p.grad.double().flatten() for p in net.parameters() if p.grad is not None])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="of steps (9)")
    parser.add_argument("--seeds", type=int, default=5, help="of weights and images (5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    kinds = [kind for kind in KINDS if kind.precision == "fp32" or not bf16_trial().fault]
    rows: list[dict[str, Any]] = []
    for width in WIDTHS:
        seconds = step_seconds(kinds, width, args.rounds)
        for kind in kinds:
            errors = [gradient_error(kind, width, seed) for seed in range(args.seeds)]
            rows.append({
                "width": width, **kind._asdict(),
                "step_seconds": seconds[kind],
                "step_ratio": seconds[kind] / seconds[kinds[0]],
                "gradient_error_median": statistics.median(errors),
                "gradient_error_max": max(errors),
            })  # fmt: skip
    if args.json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
        return
    for row in rows:
        print(
            f"width {row['width']}, {row['layout']}, {row['precision']}: "
            f"{row['step_seconds']:.3f} s, ratio {row['step_ratio']:.2f}; gradient off by "
            f"{row['gradient_error_median']:.2%}, at most {row['gradient_error_max']:.2%}"
        )


if __name__ == "__main__":
    main()
