"""Long form: runs killed at every call of the system, and wherever they are at work."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

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
BATCHES = 3  # of each task

Say = Callable[[str], None]


class Part(NamedTuple):
    """A run, from its beginning or from where it was killed, and the calls that it makes."""

    name: str
    kill: Kill
    calls: list[str]


def kill_everywhere(jobs: int, scratch: Path, say: Say) -> dict[str, Any]:
    """Kill runs at every call in every way, new ones and ones that go on; what came of it."""
    found: dict[str, Any] = {"kills": 0, "equal": 0, "faults": [], "runs": []}
    processes = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, processes, prepare_smallest, (METHODS,)) as workers:
        for method in METHODS:
            new = Kill(Small(method, BATCHES), 0, "before", stations=True)
            whole = workers.submit(finish, new, scratch).result()
            for part in (Part("new", new, whole.calls), _goes_on(new, whole, workers, scratch)):
                kills = kills_at(part.calls, part.kill)
                faults = []
                ends = [workers.submit(kill_and_finish, kill, scratch) for kill in kills]
                for i, (kill, end) in enumerate(zip(kills, ends, strict=True)):
                    if fault := _fault(end, whole):
                        where = f"{kill.how} {part.calls[kill.stop - 1]}"
                        faults.append(f"{method}, {part.name}, {where}: {fault}")
                        say(faults[-1])
                    if i % 50 == 0:
                        say(f"{method}, {part.name}: {i} of {len(kills)} kills")
                found["kills"] += len(kills)
                found["equal"] += len(kills) - len(faults)
                found["faults"] += faults
                kinds = dict(Counter(call.split()[0] for call in part.calls))
                run = {"method": method, "run": part.name, "points": len(part.calls)}
                found["runs"].append({**run, "kills": len(kills), "calls": kinds})
    return found


def _goes_on(new: Kill, whole: Finished, workers: ProcessPoolExecutor, scratch: Path) -> Part:
    """The rest of a run that was killed half-way."""
    begun = scratch / f"{new.small.method}-begun" / "runs"
    begun.parent.mkdir()
    workers.submit(kill_only, new._replace(stop=_half_way(whole)), begun).result()
    rest = new._replace(begun=begun)
    return Part("goes on", rest, workers.submit(finish, rest, scratch).result().calls)


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
