"""Long form: runs killed at every call of the system, and wherever they are at work."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from crash.runs import (
    Finished,
    Kill,
    Small,
    finish,
    kill_and_finish,
    kill_only,
    kills_at,
    prepare_smallest,
)

METHODS = ("er+ccldc", "onpro")
PER_CLASS = 3  # three batches in each of two tasks

Say = Callable[[str], None]


def kill_everywhere(jobs: int, scratch: Path, say: Say) -> dict[str, Any]:
    """Kill runs at every call in every way, new ones and ones that go on; what came of it."""
    found: dict[str, Any] = {"kills": 0, "equal": 0, "faults": [], "runs": []}
    processes = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, processes, prepare_smallest, (METHODS,)) as workers:
        for method in METHODS:
            new = Kill(Small(method, PER_CLASS), 0, "before", stations=True)
            whole = workers.submit(finish, new, scratch).result()
            half_way = new._replace(stop=_half_way(whole), begun=None)
            begun = scratch / f"{method}-begun" / "runs"
            begun.parent.mkdir()
            workers.submit(kill_only, half_way, begun).result()
            goes_on = new._replace(begun=begun)
            rest = workers.submit(finish, goes_on, scratch).result()
            for name, kill, run in (("new", new, whole), ("goes on", goes_on, rest)):
                kills = kills_at(run.calls, kill)
                ends = [workers.submit(kill_and_finish, one, scratch) for one in kills]
                for i, (one, end) in enumerate(zip(kills, ends, strict=True)):
                    fault = _fault(end, whole)
                    found["kills"] += 1
                    found["equal"] += not fault
                    if fault:
                        where = f"{method}, {name}, {one.how} {run.calls[one.stop - 1]}: {fault}"
                        found["faults"].append(where)
                        say(where)
                    if i % 50 == 0:
                        say(f"{method}, {name}: {i} of {len(kills)} kills")
                points = dict(Counter(call.split()[0] for call in run.calls))
                total = {"points": len(run.calls), "kills": len(kills)}
                found["runs"].append({"method": method, "run": name, **total, "calls": points})
    return found


def _half_way(run: Finished) -> int:
    """The call by which a checkpoint half-way becomes the valid one."""
    numbers = [i for i, call in enumerate(run.calls, start=1) if call.endswith(".state.json.new")]
    renames = [i for i in numbers if run.calls[i - 1].startswith("replace ")]
    return renames[len(renames) // 2]


def _fault(end: "Future[dict[str, Any]]", whole: Finished) -> str:
    """What is wrong with the end of a run that was killed; nothing if it left the same files."""
    try:
        left = end.result()
    except (AssertionError, OSError, ValueError) as error:
        return f"{type(error).__name__} {error}"
    return ", ".join(name for name in whole.left if left.get(name) != whole.left[name])
