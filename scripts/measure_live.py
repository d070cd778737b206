"""A stream of one's own, measured.

    python scripts/measure_live.py DATA OUT --seeds 0 1 2 [--learners er,updates=5]
    python scripts/measure_live.py DATA OUT --kills 2

CIFAR-100 in batches of ten, labels as words, no boundaries. Half of the classes appear, each at a
random moment, and fade: the images of a class come at exponentially distributed distances after its
first. The other half never comes. A stream that breaks off goes on from its checkpoint; with
--kills its process is killed so often, at random moments, and what it leaves is compared with the
unbroken run.
"""

import argparse
import hashlib
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from scipy.stats import mannwhitneyu
from torch import Tensor

from peerlearn import OpenLearner
from peerlearn.data import Dataset, ImageSet, load
from peerlearn.live.signals import entropy
from peerlearn.metrics.calibration import RecentSureness, reliability

CLASSES, PER_CLASS, BATCH = 50, 120, 10
FADING = 600.0  # images, on average, from the first of a class to any of its images
APART = 5000  # images within which classes appear
TESTED = 100  # test images of each class
EVERY = 50  # batches between two checkpoints
SETTINGS: dict[str, Any] = {"memory": 500, "net": "resnet18", "width": 16}
LEARNERS = ["er", "er+ema-chain", "er+ccldc"]  # settings behind commas


def main() -> None:
    """Measure what is asked for and not there yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--kills", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for name in args.learners:
            place = args.out / f"{name}-{seed}"
            if args.kills:
                _killed(args, name, seed)
            elif not (place / "found.json").exists():
                _measure(load("cifar100", args.data), name, seed, place)


def stream(train: ImageSet, seed: int) -> tuple[list[int], Tensor]:
    """The classes that come, and the rows of their images in the order in which they do."""
    rng = torch.Generator().manual_seed(seed)
    classes = torch.randperm(train.num_classes, generator=rng)[:CLASSES].tolist()
    moments, rows = [], []
    for label in classes:
        own = (train.y == label).nonzero().flatten()
        rows.append(own[torch.randperm(len(own), generator=rng)[:PER_CLASS]])
        first = APART * torch.rand(1, generator=rng)
        after = -FADING * torch.rand(PER_CLASS, generator=rng).clamp(min=1e-9).log()
        moments.append(first + after - after.min())
    return classes, torch.cat(rows)[torch.cat(moments).argsort()]


def begin(name: str, seed: int) -> OpenLearner:
    """The learner of a name with settings behind commas, which has seen nothing."""
    method, *chosen = name.split(",")
    settings = {key: json.loads(value) for key, value in (one.split("=") for one in chosen)}
    return OpenLearner(method, seed=seed, **SETTINGS, **settings)


def _measure(data: Dataset, name: str, seed: int, place: Path) -> None:
    classes, rows = stream(data.train, seed)
    names = data.train.class_names
    if (place / "checkpoint" / "state.json").exists():
        learner = OpenLearner.restore(place / "checkpoint")
    else:
        learner = begin(name, seed)
    done = learner.learner.progress.batches
    log = {"seconds": 0.0, "cpu_seconds": 0.0, "megabytes": list[float](), **(learner.extra or {})}
    for number, batch in enumerate(rows.split(BATCH)[done:], done):
        begun = time.perf_counter(), time.process_time()
        learner.learn(data.train.x[batch], [names[int(k)] for k in data.train.y[batch]])
        log["seconds"] += time.perf_counter() - begun[0]
        log["cpu_seconds"] += time.process_time() - begun[1]
        if (number + 1) % EVERY == 0:
            log["megabytes"].append(_megabytes())
            learner.save(place / "checkpoint", extra=log)
    found = {
        "learner": name,
        "seed": seed,
        "images": len(rows),
        "classes": len(learner.classes),
        "prequential": learner.prequential,
        "recent": learner.recent,
        "drift_hints": learner.drift_hints,
        **_tested(learner, data.test, classes),
        "sha256": digest(learner),
        **log,
    }
    (place / "found.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(name, seed, {k: v for k, v in found.items() if isinstance(v, float)}, flush=True)


def _tested(learner: OpenLearner, test: ImageSet, classes: Sequence[int]) -> dict[str, float]:
    """Accuracy on the classes that came, how well each signal tells them from the others, and ECE.

    ECE, the expected calibration error, without a temperature and with the one of `calibrate()`: of
    what was answered along the stream, on which that is fitted, and of test images; of these also
    with one that is fitted on the memory.
    """
    parts = [(test.y == label).nonzero().flatten()[:TESTED] for label in range(test.num_classes)]
    seen = torch.cat([parts[label] for label in classes])
    unseen = torch.cat([part for label, part in enumerate(parts) if label not in classes])
    known, strange = (learner.predict(test.x[of], details=True) for of in (seen, unseen))
    names = [test.class_names[int(label)] for label in test.y[seen]]
    _, y = learner.labels.numbered(names)
    peers = learner.learner.snapshot("peers")
    single = [peers.logits(test.x[of], peer=0).softmax(dim=1).amax(dim=1) for of in (seen, unseen)]
    divergence = [-_divergence(learner, test.x[of]) for of in (seen, unseen)]
    pairs = {
        "disagreement": [-known.disagreement, -strange.disagreement],
        "entropy": [-known.entropy, -strange.entropy],
        "probability": [known.probability, strange.probability],
        "probability_of_one": single,
        "divergence": divergence,
    }
    aurocs = {f"auroc_{name}": auroc(*pair) for name, pair in pairs.items()}
    memory, of_memory = learner.learner.memory, RecentSureness(window=10**9)
    of_memory.add(learner.learner.logits(memory["x"]), memory["y"])
    errors = {}
    for how, fit in (("memory", of_memory.fit()), ("with", learner.calibrate())):
        learner.temperature = fit.temperature
        errors[f"temperature_{how}"] = fit.temperature
        errors[f"ece_test_{how}"] = reliability(learner.predict_proba(test.x[seen]), y).error
    return {
        "accuracy": float((known.probabilities.argmax(dim=1) == y).double().mean()),
        **aurocs,
        **errors,
        "ece_stream_without": fit.before,
        "ece_stream_with": fit.after,
        "ece_test_without": reliability(known.probabilities, y).error,
    }


def _divergence(learner: OpenLearner, x: Tensor) -> Tensor:
    """The Jensen-Shannon divergence of the networks that learn or follow, (B,): a rival signal."""
    inner = learner.learner
    sources = [source for source in inner.sources if source != "average"]
    found = [inner.snapshot(source).outputs(x, features=False) for source in sources]
    each = torch.stack([one.softmax(dim=1) for outputs in found for one in outputs.logits])
    return entropy(each.mean(dim=0)) - torch.stack([entropy(one) for one in each]).mean(dim=0)


def auroc(known: Tensor, strange: Tensor) -> float:
    """The chance that a known image has the larger number than a strange one, ties counted half.

    >>> auroc(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 1.0]))
    0.875
    """
    u = mannwhitneyu(known.numpy(), strange.numpy()).statistic
    return float(u) / (len(known) * len(strange))


def digest(learner: OpenLearner) -> str:
    """Of all tensors that the learner keeps."""
    state = learner.learner.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    return found.hexdigest()


def _megabytes() -> float:
    """The memory that this process has now, on Linux."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def _killed(args: argparse.Namespace, name: str, seed: int) -> None:
    """The same stream in a process that is killed on the way, compared with the unbroken one."""
    unbroken = json.loads((args.out / f"{name}-{seed}" / "found.json").read_text())
    out = args.out / "killed"
    words = [sys.executable, __file__, str(args.data), str(out), "--learners", name]
    words += ["--seeds", str(seed)]
    rng = random.Random(seed)
    shutil.rmtree(out / f"{name}-{seed}", ignore_errors=True)
    for _ in range(args.kills):
        process = subprocess.Popen(words)
        time.sleep(unbroken["seconds"] * rng.uniform(0.15, 0.45))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    subprocess.run(words, check=True)
    found = json.loads((out / f"{name}-{seed}" / "found.json").read_text())
    own = {"seconds", "cpu_seconds", "megabytes"}  # of the machine
    same = all(found[key] == value for key, value in unbroken.items() if key not in own)
    told = {"learner": name, "seed": seed, "kills": args.kills, "same": same}
    print(told, flush=True)
    (args.out / f"{name}-{seed}" / "killed.json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
