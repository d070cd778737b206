"""Answers of a learner that has seen a stream, asked while it learns on, and exported.

    python scripts/measure_answers.py DATA OUT --learners er er+ccldc

OUT is that of scripts/measure_live.py, whose learners are taken from their checkpoints, seed 0. One
thread for PyTorch and for ONNX Runtime.
"""

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure_live import BATCH, LEARNERS, digest, stream
from torch import Tensor

from peerlearn import OpenLearner
from peerlearn.data import Dataset, load
from peerlearn.export import Exported

SEED = 0
STEPS = 40  # while predictions are asked for; more if they take longer
ASKED, THREADS = 1000, 8
SHOWN = 20  # images that are asked about
TESTED = 20  # test images of each class, for exports
ROUNDS = 9  # of each engine
SIZES = (1, 64)  # images at once


def main() -> None:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cifar100", args.data)
    for name in args.learners:
        place = args.out / f"{name}-{SEED}"
        if not (place / "answers.json").exists():
            found = {
                "learner": name,
                "while_learning": while_learning(data, place / "checkpoint"),
                "exported": exported(data, place / "checkpoint"),
            }
            text = json.dumps(found, indent=1) + "\n"
            (place / "answers.json").write_text(text, encoding="utf-8")
            print(text, flush=True)


def while_learning(data: Dataset, checkpoint: Path) -> dict[str, Any]:
    """Many predictions from several threads during steps: whose answers, and after how long."""
    learner, alone = OpenLearner.restore(checkpoint), OpenLearner.restore(checkpoint)
    batches, shown = _more(data), [data.test.x[k : k + 1] for k in range(SHOWN)]
    answers: list[list[tuple[int, Tensor, float]]] = [[] for _ in range(THREADS)]
    ready = threading.Event()

    def ask(own: list[tuple[int, Tensor, float]], k: int) -> None:
        rng = random.Random(k)
        ready.wait()
        for _ in range(ASKED // THREADS):
            which = rng.randrange(SHOWN)
            begun = time.perf_counter()
            said = learner.predict_proba(shown[which])
            own.append((which, said, time.perf_counter() - begun))

    threads = [threading.Thread(target=ask, args=(own, k)) for k, own in enumerate(answers)]
    for thread in threads:
        thread.start()
    steps, number = [], 0
    ready.set()
    while number < STEPS or any(thread.is_alive() for thread in threads):
        begun = time.perf_counter()
        learner.learn(*batches[number])
        steps.append(time.perf_counter() - begun)
        number += 1
    states, quiet, steps_alone = [[alone.predict_proba(x) for x in shown]], [], []
    for batch in batches[:number]:
        begun = time.perf_counter()
        alone.learn(*batch)
        steps_alone.append(time.perf_counter() - begun)
        states.append([])
        for x in shown:
            begun = time.perf_counter()
            states[-1].append(alone.predict_proba(x))
            quiet.append(time.perf_counter() - begun)
    given = [answer for own in answers for answer in own]
    known = [sum(torch.equal(said, of[which]) for of in states) for which, said, _ in given]
    assert len(given) == ASKED, "an answer was lost"
    return {
        "asked": ASKED,
        "threads": THREADS,
        "steps": number,
        "of_no_state": known.count(0),
        "same_bytes": digest(learner) == digest(alone),
        "milliseconds": _distribution([1000 * seconds for _, _, seconds in given]),
        "milliseconds_while_nothing_learns": _distribution([1000 * s for s in quiet]),
        "step_milliseconds": 1000 * statistics.median(steps),
        "step_milliseconds_alone": 1000 * statistics.median(steps_alone),
    }


def _more(data: Dataset) -> list[tuple[Tensor, list[str]]]:
    """Further images of the classes that came, in batches."""
    train = data.train
    classes, past = stream(train, SEED)
    left = torch.isin(train.y, torch.tensor(classes))
    left[past] = False
    rows = left.nonzero().flatten()
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))]
    return [
        (train.x[part], [train.class_names[int(k)] for k in train.y[part]])
        for part in rows.split(BATCH)
    ]


def _distribution(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"50": cuts[49], "90": cuts[89], "99": cuts[98], "most": max(values)}


def exported(data: Dataset, checkpoint: Path) -> dict[str, Any]:
    """Size, speed and agreement of what answers: the learner, the program and ONNX."""
    learner = OpenLearner.restore(checkpoint)
    classes, _ = stream(data.train, SEED)
    parts = [(data.test.y == label).nonzero().flatten()[:TESTED] for label in classes]
    rows = torch.cat(parts)
    x, names = data.test.x[rows], [data.test.class_names[int(k)] for k in data.test.y[rows]]
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "export"
        about = learner.export(folder, test=(x, names))
        engines: dict[str, Callable[[Tensor], Tensor]] = {
            "pytorch": learner.predict_proba,
            "program": Exported(folder, "program").probabilities,
            "onnx": Exported(folder, "onnx").probabilities,
        }
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        said = {name: run(x) for name, run in engines.items()}
        rates = {str(size): _rates(engines, x[:size]) for size in SIZES}
    off = {
        f"{one} {other}": float((said[one] - said[other]).abs().max())
        for one, other in (("pytorch", "program"), ("pytorch", "onnx"), ("program", "onnx"))
    }
    return {
        "images": len(x),
        "accuracy": about["accuracy"],
        "networks": len(learner.learner.answering(None).now().models),
        "bytes": files,
        "largest_difference": off,
        "images_per_second": rates,
    }


def _rates(engines: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> dict[str, float]:
    """Medians over rounds, each in another order."""
    found: dict[str, list[float]] = {name: [] for name in engines}
    order, times = random.Random(0), max(1, 64 // len(x))
    for _ in range(ROUNDS):
        for name in order.sample([*engines], len(engines)):
            begun = time.perf_counter()
            for _ in range(times):
                engines[name](x)
            found[name].append(times * len(x) / (time.perf_counter() - begun))
    return {name: statistics.median(own) for name, own in found.items()}


if __name__ == "__main__":
    main()
