"""The core's results: each method with and without CCL-DC on a slice of real CIFAR-10.

    python benchmarks/core.py run --data FOLDER --out runs/core      # about two hours on two cores
    python benchmarks/core.py table --out runs/core > docs/results/core-table.md

FOLDER holds CIFAR-10's official python files. Runs that are finished are skipped, and several
processes may share the work: start the first command twice, with --threads 1.
"""

import argparse
import fcntl
import json
import resource
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from peerlearn import AccuracyMatrix, ClassStream, ResNet18, accuracy, build_learner
from peerlearn.data import Dataset, cifar10
from peerlearn.runtime import keep_freed_memory

WIDTH, MEMORY, TASKS, TEST_PER_CLASS = 16, 200, 5, 200


class Job(NamedTuple):
    """One run."""

    method: str
    seed: int
    per_class: int  # training images

    @property
    def file(self) -> str:
        """Its result."""
        return f"{self.method}-{self.per_class}-seed{self.seed}.json"


def jobs() -> list[Job]:
    """All runs, the cheap comparison first."""
    seeds = {"er": 3, "er_ace": 3, "derpp": 1, "gsa": 1, "ocm": 1, "onpro": 1}
    return [
        Job(method + with_peers, seed, 50 if method in ("ocm", "onpro") else 500)
        for method, count in seeds.items()
        for seed in range(count)
        for with_peers in ("+ccldc", "")
    ]


def run(job: Job, data: Dataset) -> dict[str, Any]:
    """Train once over the stream; evaluate after each task."""
    part = Dataset(
        data.train.first_per_class(job.per_class),
        data.test.first_per_class(TEST_PER_CLASS),
        "slice",
    )
    stream = ClassStream(part, num_tasks=TASKS, batch_size=10, seed=job.seed)
    net = partial(ResNet18, 10, width=WIDTH)
    learner = build_learner(job.method, stream.info, net, memory=MEMORY, seed=job.seed)
    scores, seconds = AccuracyMatrix(), 0.0
    for task in stream:
        start = time.perf_counter()
        for batch in task:
            learner.learn(*batch)
        learner.end_task()
        seconds += time.perf_counter() - start
        scores.add_row([accuracy(learner.predict, s) for s in stream.test_sets[: task.index + 1]])
        print(f"{job.file} task {task.index}: {scores.summary()} {seconds:.0f} s", flush=True)
    return {
        **job._asdict(),
        "accuracy": scores.to_lists(),
        "summary": scores.summary(),
        "cost": learner.cost,
        "seconds": seconds,
        "threads": torch.get_num_threads(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def run_all(data: Dataset, out: Path) -> None:
    """Every job that is not finished and that no other process works on."""
    out.mkdir(parents=True, exist_ok=True)
    for job in jobs():
        with (out / f"{job.file}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if not (out / job.file).exists():
                (out / job.file).write_text(json.dumps(run(job, data), indent=1))


def table(out: Path) -> str:
    """Markdown: a row per method, means over its seeds, the gain by CCL-DC below."""
    results = [
        json.loads((out / job.file).read_text()) for job in jobs() if (out / job.file).exists()
    ]
    names = list(dict.fromkeys(job.method for job in sorted(jobs(), key=lambda j: j.method)))
    head = ["method", "images per class", "seeds", "AA", "LA", "RF", "FM", "forward", "seconds"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    means: dict[str, dict[str, float]] = {}
    for name in names:
        runs = [r for r in results if r["method"] == name]
        if not runs:
            continue
        cells = [name, str(runs[0]["per_class"]), str(len(runs))]
        means[name] = {}
        for metric in ("AA", "LA", "RF", "FM"):
            values = [100 * r["summary"][metric] for r in runs]
            means[name][metric] = statistics.mean(values)
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{means[name][metric]:.1f}{spread}")
        per_image = runs[0]["cost"]["forward_images"] / runs[0]["cost"]["stream_images"]
        cells += [f"{per_image:.0f}", f"{statistics.mean(r['seconds'] for r in runs):.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    pairs = [(means[n], means[n + "+ccldc"]) for n in means if n + "+ccldc" in means]
    if pairs:
        gains = {k: statistics.mean(b[k] - a[k] for a, b in pairs) for k in pairs[0][0]}
        gained = ", ".join(f"{k} {v:+.1f}" for k, v in gains.items())
        lines += ["", f"CCL-DC over its baseline, mean over {len(pairs)} methods: {gained}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/core"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    if args.what == "table":
        print(table(args.out))
        return
    if args.data is None:
        parser.error("run needs --data FOLDER")
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    run_all(cifar10(args.data), args.out)


if __name__ == "__main__":
    main()
