"""Many runs in a few lines; no torch."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peerlearn.studies.state import Planned, State
from peerlearn.units import duration, percent, printable

MOST_LINES = 12  # of runs under way, or that failed
ENDLESS = 100_000  # columns of what is no terminal


class Tally:
    """How long runs take, and the rest of them may take.

    Args:
        slots: runs at once.
    """

    def __init__(self, slots: int) -> None:
        self.slots = max(slots, 1)
        self.seconds: dict[str, list[float]] = {}  # of finished runs, by kind

    def finished(self, kind: str, seconds: float) -> None:
        """A run of this kind took so long."""
        self.seconds.setdefault(kind, []).append(seconds)

    def left(self, waiting: Iterable[str], running: Iterable[tuple[State, float]] = ()) -> str:
        """How long it will take, in words; "" while nothing is known.

        A kind of which none has finished is judged by the tasks that one has behind it, else taken
        for the mean of the others. waiting: kinds. running: and the seconds spent on each.
        """
        running = list(running)
        known = dict(self.seconds)
        for one, _ in running:
            if one.task and one.run.tasks and one.run.kind not in self.seconds:
                known.setdefault(one.run.kind, []).append(one.seconds * one.run.tasks / one.task)
        means = {kind: sum(taken) / len(taken) for kind, taken in known.items()}
        if not means:
            return ""
        usual = sum(means.values()) / len(means)
        rest = [means.get(kind, usual) for kind in waiting]
        for one, spent in running:
            whole = means.get(one.run.kind, usual)
            share = one.task / one.run.tasks if one.run.tasks else 0.0
            rest.append(max(min(whole - spent, whole * (1 - share)), 0.0))
        seconds = max(sum(rest) / self.slots, max(rest, default=0.0))
        return f"about {about(seconds)} left" if rest else ""


def about(seconds: float) -> str:
    """An estimate, without digits that nobody knows.

    >>> about(0.2), about(11.8), about(191.8)
    ('1 s', '12 s', '3 min 12 s')
    """
    return f"{max(round(seconds), 1)} s" if seconds < 59.5 else duration(seconds)


def count(number: int, noun: str = "run") -> str:
    """A number of things.

    >>> count(1), count(2)
    ('1 run', '2 runs')
    """
    return f"{number} {noun}{'s' if number != 1 else ''}"


def short_names(runs: Sequence[Planned]) -> tuple[dict[str, str], str]:
    """What tells runs from each other, by key; and what they have in common.

    >>> runs = [Planned(m, f"{m} mini m20 lr=0.1,width=1 seed 0", "", 5) for m in ("er", "gsa")]
    >>> short_names(runs)
    ({'er': 'er', 'gsa': 'gsa'}, 'mini m20 lr=0.1,width=1 seed 0')
    """
    words = {run.key: _words(run.label) for run in runs}
    shared = set.intersection(*map(set, words.values())) if words else set()
    names = {key: _joined([w for w in own if w not in shared]) for key, own in words.items()}
    if not all(names.values()):  # a single one
        return {run.key: run.label for run in runs}, ""
    return names, _joined([word for word in next(iter(words.values()), []) if word in shared])


def _words(label: str) -> list[str]:
    """What a label says, a setting each; a seed is one."""
    head, seed, number = label.rpartition(" seed ")
    found: list[str] = []
    for word in (head or number).split(" "):
        found += word.split(",") if "=" in word else [word]
    return [*found, f"{seed.strip()} {number}"] if seed else found


def _joined(words: Sequence[str]) -> str:
    text = ""
    for before, word in zip(["", *words], words, strict=False):
        apart = "," if "=" in before and "=" in word else " "
        text += f"{apart}{word}" if text else word
    return text


def headline(
    done: int, running: int, left: int, failed: int, time_left: str = "", stopped: int = 0
) -> str:
    """The sum of it.

    >>> headline(3, 2, 5, 0, "about 2 s left")
    '3 of 10 done, 2 running, 5 left, 0 failed, about 2 s left'
    """
    total = done + running + left + failed + stopped
    text = f"{done} of {total} done, {running} running, {left} left, {failed} failed"
    text += f", {stopped} stopped" if stopped else ""
    return f"{text}, {time_left}" if time_left else text


def listed(
    states: Sequence[State],
    names: Mapping[str, str],
    spent: Mapping[str, float] | None = None,
    width: int = ENDLESS,
    more: int = 0,
) -> list[str]:
    """A line for each run under way, or that failed; of many the first. more: beside these."""
    lines = []
    for one in states[:MOST_LINES]:
        name = names.get(one.run.key, one.run.label)
        task = f"task {min(one.task + 1, one.run.tasks or one.task + 1)}"
        of = f" of {one.run.tasks}" if one.run.tasks else ""
        aa = f", AA {percent(one.aa)}" if one.aa is not None else ""
        took = f", {duration(spent[one.run.key])}" if spent else ""
        if one.kind == "failed":
            lines.append(f"  {name}: {one.note or 'failed'}"[:width])
        else:
            lines.append(_fitted(f"  {name}", f"{task}{of}{aa}{took}", width))
    more += max(len(states) - MOST_LINES, 0)
    return [*lines, f"  and {more} more"] if more else lines


def _fitted(name: str, says: str, width: int) -> str:
    """A line in which the name makes room for what changes."""
    room = width - len(says) - len(": ")
    if len(name) > room:
        name = f"{name[: max(room - 2, 0)]}.."
    return f"{name}: {says}"[:width]


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of a terminal."""
    return textwrap.wrap(text, max(width, 20))


def picture(
    states: Sequence[State], slots: int = 0, commands: Sequence[str] = (), width: int = ENDLESS
) -> list[str]:
    """Where all runs stand, from their files alone.

    slots: runs at once of the sweeps that are at work; 0: there is none. commands: that go on.
    """
    done, running, left, failed = (
        [one for one in states if one.kind == kind]
        for kind in ("done", "running", "left", "failed")
    )
    names, shared = short_names([one.run for one in states])
    tally = Tally(slots or len(running))
    for one in done:
        tally.finished(one.run.kind, one.seconds)
    active = [(one, one.seconds) for one in running]
    time_left = tally.left([one.run.kind for one in left], active) if slots or running else ""
    head = headline(len(done), len(running), len(left), len(failed), time_left)
    lines = wrapped(f"{shared}: {head}" if shared and len(shared) < width // 2 else head, width)
    lines += listed(running, names, width=width)
    if left and not running and not slots:
        lines += wrapped("  nobody is working on what is left; to go on:", width)
        for command in commands or ["the command of the sweep"]:
            whole = f"  {command}"
            lines += [whole[at : at + width] for at in range(0, len(whole), width)]
    if failed:
        lines += ["failed:", *listed(failed, names, width=width)]
    return [printable(line) for line in lines]


def rows(states: Sequence[State]) -> list[dict[str, Any]]:
    """The same for programs, every run."""
    return [
        {
            "folder": one.run.key, "run": one.run.label, "state": one.kind, "tasks": one.run.tasks,
            "done_tasks": one.task, "AA": one.aa, "seconds": one.seconds, "note": one.note or None,
        }
        for one in states
    ]  # fmt: skip
