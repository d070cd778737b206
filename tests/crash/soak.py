"""Does anything grow while a learner, or a run, works for long?"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import torch

from crash.runs import exit_code, fork
from peerlearn import ClassStream, build_learner, cli, small_net, toy_images
from peerlearn.data import embedded

METHODS = ("er+ccldc", "ocm")
SAMPLES = 20
STEPS_PER_SAVE = 100
UNEVEN = 0.05  # difference of the log's bytes per batch, that still counts as even
BATCH = 5  # of the run
LINES = 10  # batches per line of steps.jsonl

# growth over the last half that still counts as flat
ALLOWED = {"resident": 0.01, "files": 0.0, "threads": 0.0, "objects": 0.01, "folder": 0.01}

Say = Callable[[str], None]


class Sample(NamedTuple):
    """What a process holds at some step."""

    step: int
    resident: int  # bytes
    files: int  # open ones
    threads: int
    objects: int  # of Python; 0: not known
    folder: int  # bytes on the disk, of the checkpoint or of the log


def soak(steps: int, scratch: Path, say: Say) -> dict[str, Any]:
    """Let learners and a run work for so many steps; what they held, and what of it grew."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"steps": steps, "faults": []}
    every = max(steps // SAMPLES, 1)
    for method in METHODS:
        samples = list(_told(method, learner_at_work(method, steps, every, scratch / method), say))
        found[method] = {"first": samples[0]._asdict(), "last": samples[-1]._asdict()}
        found["faults"] += [f"{method}: {name} grew" for name in grown(samples)]
    samples = list(_told("run", run_at_work(steps, scratch / "runs"), say))
    log = samples[-1].folder
    found["run"] = {"bytes_per_1000_batches": round(1000 * log / samples[-1].step)}
    found["run"] |= {"first": samples[0]._asdict(), "last": samples[-1]._asdict()}
    found["faults"] += [f"run: {name} grew" for name in grown(samples) if name != "folder"]
    half = samples[len(samples) // 2]
    if abs(half.folder / half.step * samples[-1].step / log - 1) > UNEVEN:
        found["faults"].append("run: the log does not grow evenly")
    return found


def _told(name: str, samples: Iterator[Sample], say: Say) -> Iterator[Sample]:
    for s in samples:
        say(
            f"{name:9} step {s.step:5}  resident {s.resident / 2**20:6.1f} MiB  files {s.files}  "
            f"threads {s.threads}  objects {s.objects}  folder {s.folder} bytes"
        )
        yield s


def grown(samples: list[Sample]) -> list[str]:
    """What grew in the last half: more than is allowed.

    The third quarter is compared with the last. Memory goes up and down with each step, and now and
    then the C library has not yet handed back what was freed: of it the least counts, which a leak
    raises too; of the rest the most.
    """
    quarter = len(samples) // 4
    names = []
    for name, growth in ALLOWED.items():
        values = [getattr(sample, name) for sample in samples]
        level = min if name == "resident" else max
        if level(values[-quarter:]) > level(values[-2 * quarter : -quarter]) * (1 + growth):
            names.append(name)
    return names


def learner_at_work(method: str, steps: int, every: int, folder: Path) -> Iterator[Sample]:
    """Learn, predict and save; the second task begins after a tenth of the steps."""
    stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)
    net = partial(small_net, 4, width=4)
    learner = build_learner(method, stream.info, net, memory=50, seed=0, replay_batch=10)
    first, second = (cycle(list(task)) for task in stream.tasks)
    for step in range(1, steps + 1):
        x, y = next(first if step <= steps // 10 else second)
        learner.learn(x, y)
        if step == steps // 10:
            learner.end_task()
        if step % 10 == 0:
            learner.predict(x)
        if step % min(STEPS_PER_SAVE, every) == 0:
            learner.save(folder)
        if step % every == 0:
            gc.collect()
            yield _sample("self", step, len(gc.get_objects()), _size(folder))


def run_at_work(batches: int, out: Path) -> Iterator[Sample]:
    """The command, with so many batches; looked at from outside."""
    data = toy_images(num_classes=10, train_per_class=batches * BATCH // 10, test_per_class=2)

    def work() -> int:
        embedded.mini = lambda: data
        words = ["run", "er", "--data", "mini", "--net", "small", "--width", "1", "--memory", "50"]
        return cli.main([*words, "--batch", str(BATCH), "--peer-threads", "1", "--out", str(out)])

    child = fork(work, out.with_suffix(".said"))
    every, heard = max(batches // SAMPLES, LINES), 0
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        lines = b"".join(log.read_bytes() for log in out.rglob("steps.jsonl"))
        if (step := lines.count(b"\n") * LINES) >= heard + every:
            heard = step
            yield _sample(str(child), step, 0, len(lines))
        time.sleep(0.05)
    assert exit_code(child) == 0, out.with_suffix(".said").read_text()


def _sample(process: str, step: int, objects: int, folder: int) -> Sample:
    home = Path("/proc") / process
    resident = int((home / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    files, threads = (len(list((home / name).iterdir())) for name in ("fd", "task"))
    return Sample(step, resident, files, threads, objects, folder)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
