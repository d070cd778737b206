"""Run folders as `peerlearn run` leaves them, made up with plausible numbers."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

NAMES = ["airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
STRENGTH = {"er": 0.0, "derpp": 0.02, "er_ace": 0.05, "ocm": 0.08, "gsa": 0.07, "onpro": 0.1}


Rows = list[list[float | None]]


def accuracies(rng: random.Random, tasks: int, lift: float, keep: float) -> Rows:
    rows: Rows = []
    for i in range(tasks):
        known = [
            max(0.0, min(1.0, (0.55 + lift) * keep ** (i - j) + rng.gauss(0, 0.02)))
            for j in range(i + 1)
        ]
        rows.append([*(round(a, 4) for a in known), *[None] * (tasks - i - 1)])
    return rows


def metrics_of(rows: Rows) -> dict[str, float | None]:
    a = [[x for x in row if x is not None] for row in rows]
    k = len(a) - 1
    best = [max(a[i][j] for i in range(j, k + 1)) for j in range(k + 1)]
    lost = [1 - a[k][j] / best[j] if best[j] else 1.0 for j in range(k)]
    old = [max(a[i][j] for i in range(j, k)) - a[k][j] for j in range(k)]
    pairs = [a[i][j] - a[j][j] for i in range(k + 1) for j in range(i)]
    return {
        "AA": sum(a[k]) / (k + 1),
        "LA": sum(a[j][j] for j in range(k + 1)) / (k + 1),
        "FM": sum(old) / k if k else None,
        "RF": sum(lost) / (k + 1),
        "BWT": sum(pairs) / len(pairs) if pairs else None,
        "anytime": sum(sum(row) / len(row) for row in a) / (k + 1),
    }


def fabricate(
    root: Path,
    method: str = "er",
    *,
    data: str = "mini",
    memory: int = 200,
    seed: int = 0,
    tasks: int = 5,
    classes: int = 10,
    status: str = "done",
    reached: int | None = None,
    names: list[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write one run folder and return it; `reached` tasks of a run that is still running."""
    base, _, extra = method.partition("+")
    peers = 2 if extra in ("ccldc", "ccl") else 1
    rng = random.Random(f"{method} {data} {memory} {seed}")
    folder = root / data / method / f"m{memory}" / f"seed{seed}"
    folder.mkdir(parents=True)
    lift = STRENGTH.get(base, 0.0) + (0.12 if extra == "ccldc" else 0.05 if extra else 0)
    keep = 0.8 + 0.03 * (memory > 500) + (0.02 if extra else 0)
    done = tasks if reached is None else reached
    rows = accuracies(rng, done, lift, keep)
    slots = names or [NAMES[i] if classes == 10 else f"class{i:03d}" for i in range(classes)]
    if names is None:
        rng.shuffle(slots)
    per_task = classes // tasks
    each = [rows] + [accuracies(rng, done, lift - 0.03, keep) for _ in range(peers)]
    write(folder / "accuracy.json", {
        "schema": 1, "class_names": slots, "classes_per_task": per_task, "ensemble": each[0],
        "peers": each[1:] if peers > 1 else [], "ncm": accuracies(rng, done, lift - 0.01, keep),
    })  # fmt: skip
    stored = []
    for t in range(done):
        seen = (t + 1) * per_task
        counts = [0] * classes
        for _ in range(memory):
            counts[rng.randrange(seen)] += 1
        stored.append(counts)
    nothing = dict.fromkeys(("AA", "LA", "FM", "RF", "BWT", "anytime"))
    summaries = [metrics_of(matrix) if matrix else nothing for matrix in each]
    forward = {"": 2.0, "ccldc": 14.0}.get(extra, 6.0) * (3 if base in ("ocm", "onpro") else 1)
    write(folder / "summary.json", {
        "schema": 1, "status": status, "data": data, "method": method, "memory": memory,
        "seed": seed, **summaries[0], "peers": summaries[1:] if peers > 1 else [],
        "ncm": summaries[0],
        "cost": {
            "forward_per_image": forward, "backward_per_image": forward,
            "train_seconds": 21.5 * forward * rng.uniform(0.95, 1.05), "eval_seconds": 4.2,
            "peak_bytes": 310_000_000 + 40_000_000 * peers,
            "kept_bytes": {"images": memory * 3072, "extras": 0, "networks": 2_800_000 * peers},
        },
        "memory_classes": stored,
    })  # fmt: skip
    values: dict[str, Any] = {
        "data": data, "method": method, "memory": memory, "seed": seed, "batch": 10,
        "replay_batch": 64, "tasks": tasks, "lr": 0.0005 if extra else 0.001, "width": 16,
        "weight_decay": 0.0001, "augment": ["crop", "flip"], **(settings or {}),
    }  # fmt: skip
    origins = dict.fromkeys(values, "default") | {"lr": "preset", "memory": "flag"}
    config = {"schema": 1, "settings": values, "origins": origins}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    write(folder / "environment.json", {
        "peerlearn": "0.1.0", "python": "3.11.7", "torch": "2.6.0", "platform": "Linux x86_64",
        "threads": 2, "device": "cpu", "commit": "0f3c2a1",
        "command": f"peerlearn run {method} --data {data} --memory {memory} --seeds {seed}",
    })  # fmt: skip
    lines = []
    for batch in range(0, done * 40, 2):
        fade = 2.3 / (1 + 0.05 * (batch % 40)) + abs(rng.gauss(0, 0.15))
        losses = {"base": fade}
        if extra:
            losses |= {"labels": 4 * fade, "lessons": 3.0 / (1 + 0.2 * batch) + 0.01}
        step = {"batch": batch, "task": batch // 40, "losses": losses, "seconds": 0.04}
        lines.append(json.dumps(step))
    (folder / "steps.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def fabricate_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run folder below `tmp_path / "runs"` and return it."""
    return lambda method="er", **kwargs: fabricate(tmp_path / "runs", method, **kwargs)


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    """Return a folder with `er` and `er+ccldc` on two seeds."""
    for method in ("er", "er+ccldc"):
        for seed in (0, 1):
            fabricate(tmp_path / "runs", method, seed=seed)
    return tmp_path / "runs"
