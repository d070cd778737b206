"""Long form: runs of every method, killed at random moments, until they have come to their end."""

import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from crash.runs import WORDS, exit_code, fork, left_by, prepare
from peerlearn import METHODS, OnlineLearner, cli
from peerlearn.experiment.evaluate import Scores

NAMES = [
    *(f"er+{slow}" for slow in ("ema", "mkd", "ema-chain", "mkd-pair", "ccldc-ema", "gwm")),
    *(method + wrapper for method in METHODS for wrapper in ("", "+ccldc")),
]
NEW = 0.25  # the share of new processes, `python -m peerlearn`; others are forked, torch imported
MOST_KILLS = 4  # of one run
LONG = ["--tasks", "5", "--train-per-class", "6"]  # three batches in each of five tasks
STARTS, TRAINS, EVALUATES, SAVES = range(4)
PHASES = ("before training", "in training", "in evaluation", "in a checkpoint")
LATER = "later"  # of a new process it is only known whether training had begun

Say = Callable[[str], None]


def kill_by_chance(kills: int, seed: int, scratch: Path, say: Say) -> dict[str, Any]:
    """Kill runs so many times, and compare their ends with those of runs that were not killed."""
    chance = random.Random(seed)
    prepare(NAMES)
    say("all methods are imported")
    unbroken, seconds = {}, {}
    for name in NAMES:
        unbroken[name], seconds[name] = _unbroken(name, scratch / f"unbroken-{name}", new=False)
    _, start_up = _unbroken("er", scratch / "new", new=True)
    say(f"a forked run takes {min(seconds.values()):.1f} s or more, a new one {start_up:.1f} s")
    hits: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    runs = 0
    while kinds.total() < kills:
        name, out = NAMES[runs % len(NAMES)], scratch / f"run-{runs}" / "runs"
        out.parent.mkdir()
        for _ in range(chance.randint(1, MOST_KILLS)):
            new = chance.random() < NEW
            wait = chance.uniform(0, seconds[name] + new * start_up)
            phase = _kill_new(name, out, wait) if new else _kill_forked(name, out, wait)
            if phase:
                kinds["new" if new else "forked"] += 1
                hits[phase] += 1
        runs += 1
        if fault := _finish(name, out, chance.random() < NEW, unbroken[name]):
            faults.append(f"{name}: {fault}")
            say(faults[-1])
        shutil.rmtree(out.parent)
        if runs % 10 == 0:
            say(f"{kinds.total()} of {kills} kills, {runs} runs, {len(faults)} unequal")
    return {
        "kills": kinds.total(),
        "processes": dict(kinds),
        "hit": {phase: hits[phase] for phase in (*PHASES, LATER)},
        "runs": runs,
        "equal": runs - len(faults),
        "unequal": len(faults),
        "faults": faults,
    }


def _words(name: str, out: Path) -> list[str]:
    return ["run", name, *WORDS, *LONG, "--out", str(out)]


def _unbroken(name: str, out: Path, new: bool) -> tuple[dict[str, Any], float]:
    start = time.monotonic()
    assert not _run(name, out, new), out.with_suffix(".said").read_text()
    return left_by(out), time.monotonic() - start


def _finish(name: str, out: Path, new: bool, unbroken: dict[str, Any]) -> str:
    """What is wrong with the end of a run; nothing if it left the same files."""
    if code := _run(name, out, new):
        return f"ended with {code}: {out.with_suffix('.said').read_text()}"
    left = left_by(out)
    return ", ".join(part for part in unbroken if left.get(part) != unbroken[part])


def _run(name: str, out: Path, new: bool) -> int:
    """Let a run come to its end; the exit code."""
    if new:
        return _new(name, out).wait()
    return exit_code(fork(lambda: cli.main(_words(name, out)), out.with_suffix(".said")))


def _new(name: str, out: Path) -> "subprocess.Popen[bytes]":
    with open(out.with_suffix(".said"), "wb") as said:
        command = [sys.executable, "-m", "peerlearn", *_words(name, out)]
        return subprocess.Popen(command, stdout=said, stderr=said)


def _kill_new(name: str, out: Path, wait: float) -> str | None:
    """Kill a new process: in which phase, None if it had come to its end."""
    began = time.time_ns()
    process = _new(name, out)
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        return None
    # the last thing that is written before training
    trains = any(file.stat().st_mtime_ns > began for file in out.rglob("summary.json"))
    return LATER if trains else PHASES[STARTS]


def _kill_forked(name: str, out: Path, wait: float) -> str | None:
    """The same for a copy of this process, which says in shared memory what it is at."""
    phase = mmap.mmap(-1, 1)

    def work() -> int:
        for owner, function, number in (
            (OnlineLearner, "learn", TRAINS),
            (Scores, "add", EVALUATES),
            (OnlineLearner, "save", SAVES),
        ):
            setattr(owner, function, _telling(phase, number, getattr(owner, function)))
        return cli.main(_words(name, out))

    child = fork(work, out.with_suffix(".said"))
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    return PHASES[phase[0]] if exit_code(child) == -signal.SIGKILL else None


def _telling(phase: mmap.mmap, number: int, function: Any) -> Any:
    def told(*given: Any, **named: Any) -> Any:
        phase[0] = number
        result = function(*given, **named)
        phase[0] = TRAINS
        return result

    return told
