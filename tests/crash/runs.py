"""Small runs of the command in processes that die, and what runs leave behind."""

import gc
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch

from crash.layer import WAYS, Layer
from peerlearn import OnlineLearner, cli, leases
from peerlearn.data import embedded
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.experiment import run as running
from peerlearn.experiment.evaluate import Scores
from peerlearn.learner.snapshot import Snapshot

# A net that costs nothing, and a few images.
WORDS = [
    *("--data", "mini", "--net", "small", "--width", "1", "--batch", "5"),
    *("--memory", "20", "--test-per-class", "2", "--peer-threads", "1"),
]
# where a run is at work without writing: at its start, in a step, while it evaluates
STATIONS = [
    (embedded, "mini"),
    (running, "make_learner"),
    *((OnlineLearner, name) for name in ("learn", "end_task", "logits", "predict_ncm")),
    *((OnlineLearner, name) for name in ("load", "save")),
    *((Snapshot, name) for name in ("outputs", "class_means")),
    (Scores, "add"),
]
SECONDS = 120  # after which a process counts as one that hangs


class Small(NamedTuple):
    """A run of two tasks of a few batches."""

    method: str
    batches: int  # of each task

    @property
    def words(self) -> list[str]:
        size = ["--tasks", "2", "--train-per-class", str(self.batches)]
        return ["run", self.method, *WORDS, *size]


class Kill(NamedTuple):
    """Where a run is killed."""

    small: Small
    stop: int  # number of the call, 0: nowhere
    how: str  # see layer.WAYS
    begun: Path | None = None  # a folder of runs in which it goes on; None: it is new
    stations: bool = False  # whether calls of functions count too


class Finished(NamedTuple):
    """A run that has come to its end."""

    calls: list[str]  # of the system, and of functions, that it made
    left: dict[str, Any]  # see `left_by`


def finish(kill: Kill, scratch: Path) -> Finished:
    """Do a run without a kill."""
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        out, calls = _begun(kill, work), Path(work) / "calls"
        end(0, lambda: run(out, kill._replace(stop=0), calls), out)
        return Finished(json.loads(calls.read_text()), left_by(out))


def kill_and_finish(kill: Kill, scratch: Path) -> dict[str, Any]:
    """Kill a run at one call and start it again; what it has left in the end."""
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        out = _begun(kill, work)
        end(-signal.SIGKILL, lambda: run(out, kill), out)
        end(0, lambda: run(out, kill._replace(stop=0)), out)
        return left_by(out)


def _begun(kill: Kill, work: str) -> Path:
    out = Path(work) / "runs"
    if kill.begun is not None:
        shutil.copytree(kill.begun, out)
    return out


def kill_only(kill: Kill, out: Path) -> None:
    """Leave a run as a kill leaves it."""
    end(-signal.SIGKILL, lambda: run(out, kill), out)


def kills_at(calls: list[str], kill: Kill, ways: Iterable[str] = WAYS) -> list[Kill]:
    """A kill at each of these calls, in each of these ways."""
    return [
        kill._replace(stop=number, how=how)
        for number, call in enumerate(calls, start=1)
        for how in ways
        if how != "half" or call.startswith("write ")
    ]


def end(code: int, work: Callable[[], int], out: Path) -> None:
    """See work in a copy of this process to an end with this code, or this signal, negative."""
    said = out.with_suffix(".said")
    found = exit_code(fork(work, said))
    assert found == code, f"ended with {found}, not with {code}: {said.read_text()}"


def fork(work: Callable[[], int], said: Path) -> int:
    """Begin some work in a copy of this process; its number.

    said: the file that gets what it prints.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(SECONDS)
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code = work()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def exit_code(child: int) -> int:
    """Wait for a process to end; its exit code, or the signal, negative."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(out: Path, kill: Kill, calls: Path | None = None) -> int:
    with Layer(out, kill.stop, kill.how, STATIONS if kill.stations else ()) as layer:
        code = cli.main([*kill.small.words, "--out", str(out)])
    if calls is not None:
        calls.write_text(json.dumps(layer.calls))
    return code


def prepare(methods: Iterable[str]) -> None:
    """Make the runs of this process save after every batch, and do one of each method.

    What that imports and reads is there, then, in every process that is forked from this one.
    """
    torch.set_num_threads(1)
    running.CHECKPOINT_SECONDS = -1.0
    leases.STALE = leases.LOOK = 0.1  # of an owner that died before it said who it was
    data = embedded.mini()
    embedded.mini = lambda: data
    with tempfile.TemporaryDirectory() as folder:
        for method in methods:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                run(Path(folder), Kill(Small(method, 1), 0, "before"))
    gc.freeze()


def prepare_smallest(methods: Iterable[str]) -> None:
    """The same with a few images, and a line of the log after every batch."""
    running.LOG_EVERY = 1
    few = _few(embedded.mini())
    embedded.mini = lambda: few
    prepare(methods)


def _few(data: Dataset, images: int = 100) -> Dataset:
    """The first of them."""
    train, test = (
        ImageSet(part.x[:images], part.y[:images], part.class_names)
        for part in (data.train, data.test)
    )
    return Dataset(train, test, data.name)


def left_by(out: Path) -> dict[str, Any]:
    """All that a run has left in its folder, but for seconds and bytes that were measured."""
    found: dict[str, Any] = {"files": _files(out)}
    for config in out.rglob("config.yaml"):
        folder = config.parent
        steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        summary = json.loads((folder / "summary.json").read_text())
        state = json.loads((folder / "checkpoint" / "state.json").read_text())
        tensors = (folder / "checkpoint" / state.pop("tensors")).read_bytes()
        for name in ("train_seconds", "eval_seconds", "peak_bytes"):
            summary["cost"].pop(name)
        for name in ("seconds", "peak", "log_bytes"):
            state["extra"].pop(name)
        found |= {
            "config.yaml": config.read_bytes(),
            "accuracy.json": (folder / "accuracy.json").read_bytes(),
            "steps.jsonl": [step | {"seconds": 0} for step in steps],
            "probes.jsonl": [path.read_bytes() for path in folder.glob("probes.jsonl")],
            "summary.json": summary,
            "state.json": state,
            "tensors": hashlib.sha256(tensors).hexdigest(),
        }
    return found


def _files(out: Path) -> list[str]:
    """Their names; two files of tensors count as one, and so do all leases.

    A kill between the two last steps of a save leaves the old one until the next save.
    """
    names = (str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    return sorted({re.sub(r"tensors-[01]|lease\.\d+(\.free)?", "one", name) for name in names})
