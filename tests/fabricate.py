"""Run folders as `peerlearn run` leaves them: made-up accuracies through the real writer."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from peerlearn import files
from peerlearn.files import Log
from peerlearn.metrics.along import Point, summarise_points
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.table import summarise
from peerlearn.records.folder import RunFolder, run_path
from peerlearn.records.read import RunRecord
from peerlearn.records.schema import Config, Cost, Summary

NAMES = ["airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
STRENGTH = {"er": 0.0, "derpp": 0.02, "er_ace": 0.05, "ocm": 0.08, "gsa": 0.07, "onpro": 0.1}
SHORT = {"optim.lr": "lr", "net.width": "width", "stream.tasks": "tasks"}


def record(
    method: str = "er",
    aa: float | None = 0.5,
    *,
    seed: int = 0,
    data: str = "mini",
    memory: int = 200,
    status: str = "done",
    settings: Mapping[str, Any] | None = None,
    cost: Cost | None = None,
    fingerprint: str = "f00d",
    plugins: Mapping[str, str] | None = None,
    root: str = "runs",
    along: Mapping[str, float] | None = None,
    **metrics: float | None,
) -> RunRecord:
    """A run that is in no folder. settings: those that leave the preset."""
    config = config_of(method, data, memory, seed, settings or {}, fingerprint, plugins or {})
    folder = run_path(Path(root), config)
    summary = Summary(
        status=status,  # type: ignore[arg-type]
        data=data,
        method=method,
        memory=memory,
        seed=seed,
        metrics={"AA": aa, "LA": 0.6, "FM": 0.2, "RF": 0.3, **metrics},
        cost=cost or cost_of(2.0, 2.0, 44.0, 4.0, 350e6, 3.4e6),
        along=dict(along or {}),
    )
    return RunRecord(folder=folder, config=config, summary=summary)


def cost_of(*values: float) -> Cost:
    """A cost by the order of its fields."""
    return Cost(**dict(zip(Cost.model_fields, values, strict=False)))


def config_of(
    method: str,
    data: str,
    memory: int,
    seed: int,
    given: Mapping[str, Any],
    fingerprint: str,
    plugins: Mapping[str, str],
    old_fingerprint: str = "",
) -> Config:
    """The settings of a run, some of them given by hand."""
    base, plus, wrapper = method.partition("+")
    settings: dict[str, Any] = {
        "data": data, "seed": seed, "profile": "paper", "method.name": base,
        "method.replay_batch": 64, "memory.name": "reservoir", "memory.size": memory,
        "stream.tasks": 5, "stream.batch": 10, "net.name": "resnet18", "net.width": 16,
        "optim.name": "adamw", "optim.lr": 0.0005, "optim.weight_decay": 0.0001,
        "machine.device": "cpu", "machine.threads": 2, "machine.precision": "fp32",
    }  # fmt: skip
    if plus:
        settings |= {"collaboration.name": wrapper, "collaboration.peers": 2}
    variant = {SHORT.get(name, name.rpartition(".")[2]): value for name, value in given.items()}
    origins = {name: "preset" if name == "optim.lr" else "default" for name in settings}
    return Config(
        data=data,
        method=method,
        memory=memory,
        seed=seed,
        variant=variant,
        settings=settings | dict(given),
        origins=origins | dict.fromkeys(given, "flag"),
        fingerprint=fingerprint,
        old_fingerprint=old_fingerprint,
        plugins=dict(plugins),
    )


def accuracies(rng: random.Random, tasks: int, lift: float, keep: float) -> list[list[float]]:
    """A matrix of a learner that forgets."""
    return [
        [
            round(max(0.0, min(1.0, (0.55 + lift) * keep ** (i - j) + rng.gauss(0, 0.02))), 4)
            for j in range(i + 1)
        ]
        for i in range(tasks)
    ]


def guesses(rng: random.Random, tasks: int, per_task: int) -> list[list[float]]:
    """A matrix of a learner that guesses."""
    return [
        [max(0.0, 1 / ((i + 1) * per_task) + rng.gauss(0, 0.01)) for _ in range(i + 1)]
        for i in range(tasks)
    ]


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
    settings: Mapping[str, Any] | None = None,
    fingerprint: str = "f00d",
    old_fingerprint: str = "",
    plugins: Mapping[str, str] | None = None,
    chance: bool = False,
    matrix: list[list[float]] | None = None,
    along: Mapping[str, int] | None = None,
) -> Path:
    """Write one run folder; `reached` tasks of a run that is still running.

    along: as in summary.json, how it was evaluated inside tasks; then its steps were counted too.
    """
    given = dict(settings or {}) | ({"stream.tasks": tasks} if tasks != 5 else {})
    config = config_of(
        method, data, memory, seed, given, fingerprint, plugins or {}, old_fingerprint
    )
    base, _, extra = method.partition("+")
    peers = 2 if extra in ("ccldc", "ccl") else 1
    rng = random.Random(f"{method} {data} {memory} {seed} {sorted(map(str, given.items()))}")
    path = run_path(root, config)
    path.mkdir(parents=True)
    folder = RunFolder(path)
    done, per_task = tasks if reached is None else reached, classes // tasks
    lift = STRENGTH.get(base, 0.0) + (0.12 if extra == "ccldc" else 0.05 if extra else 0)
    keep = 0.8 + 0.03 * (memory > 500) + (0.02 if extra else 0)

    def measured() -> AccuracyMatrix:
        rows = guesses(rng, done, per_task) if chance else accuracies(rng, done, lift, keep)
        return AccuracyMatrix(matrix or rows)

    ensemble, ncm = measured(), measured()
    singles = [measured() for _ in range(peers)] if peers > 1 else []
    slots = names or [NAMES[i] if classes == 10 else f"class{i:03d}" for i in range(classes)]
    if names is None:
        rng.shuffle(slots)
    folder.write_config(config)
    folder.write_accuracy(slots, per_task, {
        "ensemble": ensemble.to_lists(), "peers": [one.to_lists() for one in singles],
        "ncm": ncm.to_lists(),
    })  # fmt: skip
    points = points_of(ensemble, classes, along) if along else []
    forward = {"": 2.0, "ccldc": 14.0}.get(extra, 6.0) * (3 if base in ("ocm", "onpro") else 1)
    folder.write_summary(
        config,
        status,
        metrics=summarise(ensemble) | summarise_points(points),
        along=along,
        peers=[summarise(one) for one in singles],
        ncm=summarise(ncm),
        cost={
            "forward_per_image": forward, "backward_per_image": forward,
            "train_seconds": 21.5 * forward * rng.uniform(0.95, 1.05), "eval_seconds": 4.2,
            "peak_bytes": 310_000_000 + 40_000_000 * peers,
            "kept_bytes": {"images": memory * 3072, "extras": 0, "networks": 2_800_000 * peers},
            **({"relative": forward / 2, "updates_per_image": 0.1} if along else {}),
        },
        memory_classes=[stored(rng, memory, classes, (t + 1) * per_task) for t in range(done)],
    )  # fmt: skip
    folder.write_environment({
        "peerlearn": "0.1.0", "python": "3.11.7", "torch": "2.6.0", "platform": "Linux x86_64",
        "threads": 2, "device": "cpu", "commit": "0f3c2a1",
        "command": f"peerlearn run {method} --data {data} --memory {memory} --seeds {seed}",
    })  # fmt: skip
    folder.steps.unlink(missing_ok=True)
    with Log(folder.steps) as log:
        for batch in range(0, done * 40, 2):
            fade = 2.3 / (1 + 0.05 * (batch % 40)) + abs(rng.gauss(0, 0.15))
            losses = {"base": fade}
            if extra:
                losses |= {"labels": 4 * fade, "distill": 3.0 / (1 + 0.2 * batch) + 0.01}
            folder.log(log, batch, batch // 40, losses, 0.04)
    if along:
        with Log(folder.probes) as log:
            for point in points:
                batch = point.images // 10
                task = (batch - 1) // 40
                folder.log_probe(log, batch, task, 40 * task, point._asdict())
    return path


def points_of(matrix: AccuracyMatrix, classes: int, along: Mapping[str, int]) -> list[Point]:
    """What a run with this matrix might have said along its stream of 400 images per task."""
    points, rows = [], matrix.to_lists()
    every = along.get("every", 100)
    images = {*range(every, 400 * len(rows) + 1, every)}
    for x in sorted(images | {*range(400, 400 * len(rows) + 1, 400)}):
        task = (x - 1) // 400
        known = [a for a in rows[task] if a is not None]
        part = (x - 400 * task) / 400  # of the task
        asked = tuple(a * (0.6 + 0.4 * part) for a in known)
        point = Point(x, x in images)
        if "every" in along:
            end = (*known, *[None] * (classes - len(known))) if part == 1 else None
            point = point._replace(pool=sum(asked) / len(asked), tasks=asked, classes=end)
        if "window" in along:
            point = point._replace(prequential=0.8 * known[0], recent=0.9 * part * known[-1])
        points.append(point)
    return points


def stored(rng: random.Random, memory: int, classes: int, seen: int) -> list[int]:
    """Images of each class in a memory that has seen some of the classes."""
    counts = [0] * classes
    for _ in range(memory):
        counts[rng.randrange(seen)] += 1
    return counts


@pytest.fixture
def fabricate_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run folder below `tmp_path / "runs"`."""
    return lambda method="er", **kwargs: fabricate(tmp_path / "runs", method, **kwargs)


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    """A folder with `er` and `er+ccldc` on two seeds."""
    for method in ("er", "er+ccldc"):
        for seed in (0, 1):
            fabricate(tmp_path / "runs", method, seed=seed)
    return tmp_path / "runs"


def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a file of each name is read from now on."""
    names: Counter[str] = Counter()
    read_bytes = files.read_bytes

    def read_counted(path: Path, most: int | None = None) -> bytes:
        names[path.name] += 1
        return read_bytes(path, most)

    monkeypatch.setattr(files, "read_bytes", read_counted)
    return names
