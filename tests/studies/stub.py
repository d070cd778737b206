"""A process that stands for a run: it sleeps instead of learning, saves, and may die on the way.

    python tests/studies/stub.py JOURNAL --seconds 1 --deaths 0.3

It takes the lease of the run and writes its record as `peerlearn run` does. The journal gets a line
for all that happens, so that one can see afterwards who did what when.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from peerlearn.files import replace_file
from peerlearn.leases import leased
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.metrics.table import summarise
from peerlearn.records.folder import RunFolder
from peerlearn.records.schema import Config
from peerlearn.studies.process import lifeline

TASKS = 5
STEPS = TASKS  # one for each


class BusyError(Exception):
    pass


def command(journal: Path, **options: float) -> tuple[str, ...]:
    """What starts a stub."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return (sys.executable, str(Path(__file__).resolve()), str(journal), *words)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("journal", type=Path)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--deaths", type=float, default=0.0)  # the chance to die in an attempt
    parser.add_argument("--always", type=float, default=-1)  # the seed that always dies
    parser.add_argument("--fails", type=float, default=-1)  # the seed that fails
    parser.add_argument("--memory", type=float, default=-1)  # the seed for which memory is short
    args = parser.parse_args()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    spec = lifeline()
    if spec["seed"] == args.fails:
        print("Traceback\nValueError: a bug")
        return 1
    if spec["seed"] == args.memory:
        return 83
    dies = STEPS if random.random() >= args.deaths else random.randrange(STEPS)
    folder = RunFolder(Path(spec["out"]) / spec["key"])
    folder.path.mkdir(parents=True, exist_ok=True)
    dead = tuple(spec["dead"]) if spec.get("dead") else None

    def busy() -> None:
        raise BusyError

    try:
        with leased(folder.path, busy, dead):
            if folder.finished(TASKS):
                return 0
            place = folder.path / "progress"
            done = int(place.read_text()) if place.exists() else 0
            _note(args.journal, spec["key"], "begin", done)
            for step in range(done, STEPS):
                time.sleep(args.seconds / STEPS)
                if step == dies or spec["seed"] == args.always:
                    os.kill(os.getpid(), signal.SIGKILL)
                _record(folder, spec, step + 1)
                replace_file(place, str(step + 1))
                _note(args.journal, spec["key"], "step", step)
                if stopped and step + 1 < STEPS:
                    return 130
            _note(args.journal, spec["key"], "end", STEPS)
    except BusyError:
        return 84
    return 0


def _note(journal: Path, key: str, what: str, step: int) -> None:
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    line = json.dumps([key, os.getpid(), what, step, time.time(), devices]) + "\n"
    handle = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def quality(key: str) -> float:
    """How well a run does, by its settings alone: between 0 and 1."""
    return random.Random(key.rpartition("/")[0]).random()


def _record(folder: RunFolder, spec: dict[str, object], tasks: int) -> None:
    good = quality(str(spec["key"]))
    # AA falls from task to task, as it does where classes arrive
    matrix = AccuracyMatrix([[good * (1 - 0.1 * i)] * (i + 1) for i in range(tasks)])
    data, method, memory, *_ = str(spec["key"]).split("/")
    seed = int(str(spec["key"]).rpartition("seed")[2])
    settings = {"data": data, "stream.tasks": TASKS, "method.name": method, "machine.threads": 1}
    config = Config(data=data, method=method, memory=int(memory[1:]), seed=seed, settings=settings)
    folder.write_accuracy([str(i) for i in range(10)], 2, {
        "ensemble": matrix.to_lists(), "peers": [], "ncm": None,
    })  # fmt: skip
    folder.write_environment({})
    cost = {"train_seconds": 1.0, "eval_seconds": 0.0}
    status = "done" if tasks == TASKS else "running"
    folder.write_summary(config, status, metrics=summarise(matrix), cost=cost)


if __name__ == "__main__":
    sys.exit(main())
