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
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from measure_live import BATCH, LEARNERS, digest, stream
from torch import Tensor

from peerlearn import OpenLearner
from peerlearn.data import Dataset, load
from peerlearn.export import Exported

SEED = 0
STEPS = 20  # over which questions are spread; more if answers take longer
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


class Asked(NamedTuple):
    """An answer: of which image, after how long, and how many steps had been taken by then."""

    image: int
    said: Tensor
    seconds: float
    before: int
    after: int


def while_learning(data: Dataset, checkpoint: Path) -> dict[str, Any]:
    """Predictions from several threads all along some steps: whose answers, and after how long.

    An answer must be that of a state which was there while it was asked for. The same questions are
    then asked of a learner that does nothing, and the same steps taken by one that nobody asks.
    """
    batches, shown = _more(data), [data.test.x[k : k + 1] for k in range(SHOWN)]
    learner, idle, silent, twin = (OpenLearner.restore(checkpoint) for _ in range(4))
    given, steps = _asked(learner, shown, (partial(learner.learn, *batch) for batch in batches))
    pause = statistics.median(steps)
    quiet, _ = _asked(idle, shown, repeat(partial(time.sleep, pause)))
    silent_steps = [_seconds(partial(silent.learn, *batch)) for batch in batches[: len(steps)]]
    states = [[twin.predict_proba(x) for x in shown]]
    for batch in batches[: len(steps)]:
        twin.learn(*batch)
        states.append([twin.predict_proba(x) for x in shown])
    whose = [_states(one, states) for one in given]
    assert len(given) == ASKED, "an answer was lost"
    return {
        "asked": ASKED,
        "threads": THREADS,
        "steps": len(steps),
        "steps_with_answers": len({number for own in whose for number in own[:1]}),
        "of_no_state": sum(not own for own in whose),
        "same_bytes": digest(learner) == digest(silent),
        "milliseconds": _distribution([1000 * one.seconds for one in given]),
        "milliseconds_while_nothing_learns": _distribution([1000 * one.seconds for one in quiet]),
        "step_milliseconds": 1000 * pause,
        "step_milliseconds_alone": 1000 * statistics.median(silent_steps),
    }


def _asked(
    learner: OpenLearner, shown: Sequence[Tensor], work: Iterable[Callable[[], object]]
) -> tuple[list[Asked], list[float]]:
    """All answers, and the seconds of the steps meanwhile; questions are spread over the steps."""
    steps: list[float] = []
    each = ASKED // THREADS

    def ask(own: list[Asked], rng: random.Random) -> None:
        for number in range(each):
            while len(steps) < number * STEPS // each:
                time.sleep(0.001)
            time.sleep(rng.random() * steps[-1] * STEPS / each if steps else 0)
            which, before, begun = rng.randrange(SHOWN), len(steps), time.perf_counter()
            said = learner.predict_proba(shown[which])
            seconds = time.perf_counter() - begun
            own.append(Asked(which, said, seconds, before, len(steps)))

    answers: list[list[Asked]] = [[] for _ in range(THREADS)]
    threads = [
        threading.Thread(target=ask, args=(own, random.Random(k))) for k, own in enumerate(answers)
    ]
    for thread in threads:
        thread.start()
    for step in work:
        steps.append(_seconds(step))
        if not any(thread.is_alive() for thread in threads):
            break
    return [one for own in answers for one in own], steps


def _states(one: Asked, states: Sequence[Sequence[Tensor]]) -> list[int]:
    """The states, by steps taken, that were there meanwhile and answer so.

    A step may be over before it is counted.
    """
    there = range(one.before, min(one.after + 2, len(states)))
    return [number for number in there if torch.equal(states[number][one.image], one.said)]


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


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
    """Size, speed and agreement in logits of what answers: the learner, the program and ONNX."""
    learner = OpenLearner.restore(checkpoint)
    classes, _ = stream(data.train, SEED)
    parts = [(data.test.y == label).nonzero().flatten()[:TESTED] for label in classes]
    rows = torch.cat(parts)
    x, names = data.test.x[rows], [data.test.class_names[int(k)] for k in data.test.y[rows]]
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "export"
        about = learner.export(folder, test=(x, names))
        program, onnx = (Exported(folder, engine) for engine in ("program", "onnx"))
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        said = {
            "pytorch": learner.learner.logits(x),
            "program": program.logits(x),
            "onnx": onnx.logits(x),
        }
        engines: dict[str, Callable[[Tensor], Tensor]] = {
            "pytorch": learner.predict_proba,
            "program": program.probabilities,
            "onnx": onnx.probabilities,
        }
        rates = {str(size): _rates(engines, x[:size]) for size in SIZES}
    off = {
        f"{one} {other}": float((said[one] - said[other]).abs().max())
        for one, other in (("pytorch", "program"), ("pytorch", "onnx"), ("program", "onnx"))
    }
    return {
        "images": len(x),
        "accuracy": about["accuracy"],
        "networks": len(learner.learner.snapshot().models),
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
