"""Jobs for stubs, and what their journal says."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from peerlearn.studies.grid import from_flags
from peerlearn.studies.job import Job, Place
from peerlearn.studies.process import Ended
from peerlearn.studies.sweep import Result


def jobs_of(out: Path, runs: int, method: str = "er") -> list[Job]:
    """So many runs that differ in their seed."""
    out.mkdir(parents=True, exist_ok=True)
    (out / ".sweeps").mkdir(exist_ok=True)
    grid = from_flags([method], [("data", "mini")], f"0-{runs - 1}")
    return [Job(wish, Place(out)) for wish in grid.runs()]


class Silent:
    """A view that only counts."""

    def __init__(self) -> None:
        self.deaths = 0
        self.whys: Counter[str] = Counter()  # last words of those that died
        self.ended: list[Result] = []

    def started(self, *_: object) -> None:
        pass

    def again(self, _: object, ended: Ended, __: int) -> None:
        self.deaths += 1
        self.whys[f"{ended.how}: {ended.last_line}"] += 1

    def result(self, result: Result) -> None:
        self.ended.append(result)

    def show(self, *_: object) -> None:
        pass


class Story(NamedTuple):
    """What the journal says of a run."""

    begun: int  # how often a process began to work on it
    ended: int  # how often it came to its end
    overlaps: int  # how often a process worked on it while another had not died or ended
    lost: int  # steps that were saved, and done again all the same


def stories(journal: Path) -> dict[str, Story]:
    """The runs of a journal, by key."""
    events = defaultdict(list)
    lines = journal.read_text().splitlines() if journal.exists() else []
    for line in lines:
        key, pid, what, step, *_ = json.loads(line)
        events[key].append((pid, what, step))
    return {key: _story(seen) for key, seen in events.items()}


def _story(events: list[tuple[int, str, int]]) -> Story:
    begun = [pid for pid, what, _ in events if what == "begin"]
    last = {pid: i for i, (pid, *_) in enumerate(events)}
    first = {pid: i for i, (pid, what, _) in enumerate(events) if what == "begin"}
    order = sorted(first, key=first.__getitem__)
    overlaps = sum(last[a] > first[b] for a, b in pairwise(order))
    steps = [step for _, what, step in events if what == "step"]
    return Story(
        begun=len(begun),
        ended=sum(what == "end" for _, what, _ in events),
        overlaps=overlaps,
        lost=len(steps) - len(set(steps)),
    )
