"""Measure what tables and pages of many runs cost: seconds, memory, and bytes of the page.

    python scripts/measure_scale.py                  # the published grid: 108 series of 10 seeds
    python scripts/measure_scale.py --variants 10    # each with ten learning rates: 10,800 runs
    python scripts/measure_scale.py --keep runs      # leave the folder, or take one left before

The runs are made up, through the writer of real ones: settings as `peerlearn run` resolves them,
matrices, memories and logs of full size. Each command has a process of its own, one after the
other. Prints a table in Markdown. 1,080 runs take 0.4 GB of disk, 10,800 take 4 GB.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from peerlearn.files import Log
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.table import summarise
from peerlearn.records.folder import RunFolder
from peerlearn.records.schema import Config

CLASSES = {"cifar10": 10, "cifar100": 100, "tiny": 200, "imagenet100": 100}
LINES = {"cifar10": 500, "cifar100": 500, "tiny": 1000, "imagenet100": 1300}  # one in ten batches
RATES = [None, 1.1e-4, 2.2e-4, 1.1e-3, 2.2e-3, 3.3e-3, 5.5e-3, 0.011, 0.022, 0.055]  # None: preset


def write_runs(root: Path, variants: int, seeds: int) -> None:
    """Write the published runs with some learning rates each."""
    from peerlearn.experiment.identity import folder_of, reconcile
    from peerlearn.experiment.protocols import published_combinations
    from peerlearn.experiment.resolve import Given, resolve

    rates = RATES[:variants]
    with mock.patch("os.fsync"):  # nothing here need outlast a power cut
        for (data, memory, method), seed in product(published_combinations(), range(seeds)):
            first: RunFolder | None = None
            for rate in rates:
                given = [Given("data", data, "flag", "--data")]
                given += [Given("memory", memory, "flag", "--memory")]
                given += [Given("lr", rate, "flag", "--lr")] if rate else []
                resolved = resolve(method, given, seed=seed)
                folder = folder_of(resolved, root)
                state = {"fingerprint": f"pixels-{data}"}
                write_run(folder, reconcile(folder, resolved).model_copy(update=state), first)
                first = first or folder


def write_run(folder: RunFolder, config: Config, twin: RunFolder | None) -> None:
    """Write a finished run; its matrices and its log are those of a twin, if it has one."""
    rng = random.Random(f"{folder.path}")
    classes, tasks = CLASSES[config.data], int(config.settings["stream.tasks"])
    per_task, peers = classes // tasks, 2 if "+" in config.method else 0
    keep = rng.uniform(0.8, 0.9) + 0.02 * peers
    folder.path.mkdir(parents=True)
    folder.write_config(config)
    ensemble, ncm, *others = [matrix(rng, tasks, keep) for _ in range(2 + peers)]
    folder.write_environment({
        "peerlearn": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu", "processor": "x86_64",
        "platform": "Linux-6.18-x86_64-with-glibc2.36", "threads": 2, "device": "cpu",
        "commit": "6f149275c1a79687f5a24f6c59649fc6ba18dea0",
        "command": ["peerlearn", "run", config.method, "--data", config.data, "--seeds", "0-9"],
    })  # fmt: skip
    folder.write_summary(
        config, "done", metrics=summarise(ensemble), peers=[summarise(one) for one in others],
        ncm=summarise(ncm), memory_classes=list(memories(rng, config.memory, classes, tasks)),
        cost={"forward_per_image": 7.4, "backward_per_image": 7.4, "train_seconds": 900.0,
              "eval_seconds": 60.0, "peak_bytes": 510_000_000,
              "kept_bytes": {"images": config.memory * 3072, "networks": 2_800_000}},
    )  # fmt: skip
    if twin is not None:
        for name in ("accuracy.json", "steps.jsonl"):
            shutil.copyfile(twin.path / name, folder.path / name)
        return
    names = [f"class {k:03d}" for k in rng.sample(range(classes), classes)]
    parts: dict[str, Any] = {"ensemble": ensemble.to_lists(), "ncm": ncm.to_lists()}
    parts["peers"] = [one.to_lists() for one in others]
    folder.write_accuracy(names, per_task, parts)
    lines = LINES[config.data]
    with Log(folder.steps) as log:
        for k in range(lines):
            losses = {"base": rng.uniform(1, 2)}
            losses |= {"labels": rng.uniform(2, 4), "distill": rng.random()} if peers else {}
            folder.log(log, 10 * k + 10, k * tasks // lines, losses, 0.1)


def matrix(rng: random.Random, tasks: int, keep: float) -> AccuracyMatrix:
    """Accuracies of a learner that forgets."""
    return AccuracyMatrix(
        [[rng.uniform(0.5, 0.6) * keep ** (i - j) for j in range(i + 1)] for i in range(tasks)]
    )


def memories(rng: random.Random, size: int, classes: int, tasks: int) -> Iterator[list[int]]:
    """Images of each class in the memory, after each task."""
    for task in range(tasks):
        seen = (task + 1) * classes // tasks
        yield [rng.randint(0, 2 * size // seen) if k < seen else 0 for k in range(classes)]


class Measured(NamedTuple):
    """What a command took, and the bytes that it wrote."""

    seconds: float
    processor: float
    peak: int
    size: int


def measure(command: Sequence[str], out: Path, page: Path) -> Measured:
    """Run `peerlearn` with these arguments in a process of its own, what it prints into a file."""
    start = time.perf_counter()
    with out.open("wb") as file:
        flags = [(os.POSIX_SPAWN_DUP2, file.fileno(), 1)]
        call = [sys.executable, "-m", "peerlearn", *command]
        child = os.posix_spawn(sys.executable, call, os.environ, file_actions=flags)
        _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with {os.waitstatus_to_exitcode(status)}")
    seconds = time.perf_counter() - start
    processor = usage.ru_utime + usage.ru_stime
    written = page if page.exists() else out
    return Measured(seconds, processor, usage.ru_maxrss * 1024, written.stat().st_size)


def main() -> None:
    """Make the runs and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--variants", type=int, default=1, help="learning rates, 1 to 10 (1)")
    parser.add_argument("--seeds", type=int, default=10, help="(10)")
    parser.add_argument("--keep", type=Path, help="folder for the runs; taken as it is if there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peerlearn-scale-") as place:
        root, out = args.keep or Path(place) / "runs", Path(place) / "out"
        if not root.exists():
            # in a process of its own: a child's peak of memory begins with that of its parent
            given = (root, args.variants, args.seeds)
            writer = multiprocessing.get_context("spawn").Process(target=write_runs, args=given)
            writer.start()
            writer.join()
            if writer.exitcode:
                raise SystemExit("the runs could not be written")
        count = sum(1 for _ in root.rglob("summary.json"))
        print("| command | runs | seconds | processor seconds | peak MB | MB written |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        page = Path(place) / "page.html"
        for name, *more in (["table"], ["table", "--json"], ["report", "--out", str(page)]):
            found = measure([name, str(root), *more], out, page)
            said = " ".join([name, "runs", *more]).replace(str(page), "page.html")
            print(
                f"| `peerlearn {said}` | {count:,} | "
                f"{found.seconds:.1f} | {found.processor:.1f} | {found.peak / 1e6:.0f} | "
                f"{found.size / 1e6:.1f} |", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
