"""Small streams of one's own for tests, and all that an open learner keeps."""

import itertools
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from conftest import tensors
from torch import Tensor

from peerlearn import OpenLearner

Batch = tuple[Tensor, list[str]]


def new(name: str = "er", **settings: Any) -> OpenLearner:
    """A learner with a network of some hundred weights."""
    settings = {"memory": 20, "net": "small", "width": 4} | settings
    return OpenLearner(name, **settings)


def batches(
    count: int, *, classes: int = 3, rows: int = 6, seed: int = 0, side: int = 8
) -> list[Batch]:
    """Noise with a colour for each class; any class may come at any time."""
    rng = torch.Generator().manual_seed(seed)
    colours = torch.randint(120, (classes, 3, 1, 1), generator=rng)
    stream = []
    for _ in range(count):
        y = torch.randint(classes, (rows,), generator=rng)
        noise = torch.randint(120, (rows, 3, side, side), generator=rng)
        stream.append(((colours[y] + noise).to(torch.uint8), [f"class {k}" for k in y.tolist()]))
    return stream


def arriving(count: int, *, rows: int = 6, seed: int = 0) -> list[Batch]:
    """A stream in which a class comes every other batch, and the others come again."""
    found = []
    for number, (x, _) in enumerate(batches(count, rows=rows, seed=seed)):
        known = 1 + number // 2
        found.append((x, [f"class {(number * i) % known}" for i in range(rows - 1)]))
        found[-1][1].append(f"class {known - 1}")
    return found


def learnt(name: str = "er", count: int = 4, **settings: Any) -> OpenLearner:
    """A learner that has learnt some batches of three classes."""
    learner = new(name, **settings)
    for batch in batches(count):
        learner.learn(*batch)
    return learner


def everything(learner: OpenLearner) -> dict[str, Any]:
    """All that outlives a step, of kinds that can be compared; NaN is nothing's equal."""
    state = learner.learner.state_dict()
    numbers = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    kept: dict[str, Any] = json.loads(json.dumps(numbers))  # tuples become lists
    kept |= {name: _bits(t) for name, t in tensors(learner.learner).items()}
    preq = learner._prequential
    return kept | {
        "labels": repr(learner.classes),  # 1, 1.0 and True are told apart
        "size": learner.size,
        "boundaries": learner.boundaries,
        "prequential": (preq.right, preq.count, list(preq.last), preq.last.maxlen),
        "drift": repr(vars(learner._drift)),
        "sureness": learner._sureness.sums.tolist(),
        "temperature": learner.temperature,
        "classes": learner.learner.num_classes,
        "moving": learner.learner.changing,
    }


def _bits(tensor: Tensor) -> tuple[Any, ...]:
    return (str(tensor.dtype), tuple(tensor.shape), tensor.contiguous().numpy().tobytes())


def differences(ours: OpenLearner, theirs: OpenLearner) -> list[str]:
    """Names of what two learners have otherwise than each other."""
    a, b = everything(ours), everything(theirs)
    return [name for name in {**a, **b} if a.get(name, "nothing") != b.get(name, "nothing")]


def killed_savers(folder: Path, kills: int) -> None:
    """Have processes learn and save, and kill each at a time of its own."""
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # a killed process, unlike a power cut, loses nothing written
    new()  # takes seconds the first time, and those who are forked have it done
    for number in range(kills):
        done, saved = os.pipe()
        process = os.fork()
        if process == 0:
            _save_for_ever(folder / str(number), saved)
        os.read(done, 1)
        time.sleep(random.Random(number).uniform(0, 0.1))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _save_for_ever(folder: Path, saved: int) -> NoReturn:
    try:
        learner = new(memory=10)
        for number, (x, labels) in enumerate(itertools.cycle(batches(5, classes=8))):
            learner.learn(x, labels)
            learner.save(folder, {"batches": number + 1})
            os.write(saved, b".")
    finally:
        os._exit(1)  # a fork has no business in what its parent would do next
    raise AssertionError
