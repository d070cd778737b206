"""Where the runs of a folder stand, read from their files: for progress and for `status`."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from peerlearn.errors import UserError
from peerlearn.files import from_json, read_text, replace_file
from peerlearn.leases import latest, leased
from peerlearn.records.document import MissingError
from peerlearn.records.read import read_accuracy, read_summary

ERROR_LOG = "error.log"  # in the folder of a run that was given up: the last lines of its process
PLANS = ".sweeps"  # in the folder of all runs: which were asked for
MOST_PLAN_BYTES = 1 << 26
_AT_WORK = "at-work-"  # beside the plans: folders that sweeps lease as long as they are at work

Kind = Literal["done", "running", "failed", "left"]


class Planned(NamedTuple):
    """A run that a sweep is to make."""

    key: str  # its folder, below that of all runs
    label: str
    kind: str  # runs of one kind take about as long
    tasks: int


class State(NamedTuple):
    """Where a run stands.

    Args:
        run: which it is.
        kind: done; running, in a process that is alive; failed, and given up; left.
        task: how many tasks it has behind it.
        aa: accuracy on them, in [0, 1].
        seconds: of training and evaluation so far.
        note: the last line of one that failed; who works on one that is running.
    """

    run: Planned
    kind: Kind
    task: int = 0
    aa: float | None = None
    seconds: float = 0.0
    note: str = ""


def state(out: Path, run: Planned) -> State:
    """Where a run stands."""
    folder, task, aa, seconds, status = out / run.key, 0, None, 0.0, ""
    try:
        summary = read_summary(folder)
        aa, status, cost = summary.metrics.get("AA"), summary.status, summary.cost
        seconds = (cost.train_seconds or 0.0) + (cost.eval_seconds or 0.0)
        if status == "done":
            return State(run, "done", run.tasks, aa, seconds)
        task = len(read_accuracy(folder, optional=True).ensemble)
    except MissingError:
        pass
    except UserError as error:
        return State(run, "failed", note=str(error))
    claim = latest(folder)
    if claim is not None and claim.seems_alive:
        return State(run, "running", task, aa, seconds, str(claim))
    if (line := last_line(folder / ERROR_LOG)) or status == "failed":
        return State(run, "failed", task, aa, seconds, line)
    return State(run, "left", task, aa, seconds)


def last_line(path: Path) -> str:
    """Why a run was given up, from what its process said; "" if it was not."""
    try:
        return reason(path.read_text(errors="replace").splitlines()[:-1])  # then host and time
    except OSError:
        return ""


def reason(said: Sequence[str]) -> str:
    """Why a process ended: its last line, or the error of which it shows the way.

    >>> reason(["Traceback (most recent call last):", "  ...", "ValueError: two", "lines"])
    'ValueError: two'
    """
    lines = [line.rstrip() for line in said if line.strip()]
    begins = [i for i, line in enumerate(lines) if line.startswith("Traceback (")]
    shown = lines[begins[-1] + 1 :] if begins else lines[-1:]
    found = next((line for line in shown if not line.startswith(" ")), "".join(lines[-1:]))
    return found.strip().removeprefix("peerlearn: ")


@contextmanager
def at_work(out: Path, slots: int) -> Iterator[None]:
    """Let `status` see that a sweep is at work in a folder, also while no run has begun.

    slots: runs at once.
    """
    for path in (out / PLANS).glob(f"{_AT_WORK}*"):
        if (claim := latest(path)) and not claim.seems_alive:  # of a sweep that was killed
            shutil.rmtree(path, ignore_errors=True)
    own = Path(tempfile.mkdtemp(prefix=_AT_WORK, dir=out / PLANS))
    try:
        replace_file(own / "slots", str(slots))
        with leased(own):
            yield
    finally:
        shutil.rmtree(own, ignore_errors=True)


def slots_at_work(out: Path) -> int:
    """How many runs the sweeps make at once that are at work in a folder; 0 if there is none."""
    found = 0
    for path in (out / PLANS).glob(f"{_AT_WORK}*"):
        claim = latest(path)
        if claim is not None and claim.seems_alive:
            try:
                found += max(int((path / "slots").read_text()), 1)
            except (OSError, ValueError):  # it is ending
                found += 1
    return found


def write_plan(out: Path, name: str, runs: Iterable[Planned], command: str = "") -> Path:
    """Write down which runs a sweep is to make.

    name: the same for the same runs. command: that goes on with them.
    """
    path = out / PLANS / f"{name}.json"
    content = {"schema": 1, "command": command, "runs": [list(run) for run in runs]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(content), shared=True)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    return path


class Plan(NamedTuple):
    """What a sweep is to make, and the command that goes on with it; "" if that is not known."""

    runs: Sequence[Planned]
    command: str = ""


def plans(out: Path) -> list[Plan]:
    """What sweeps were to make in a folder; of one without a sweep, the runs that are there."""
    if not os.path.isdir(out):
        raise UserError(f"{out}: no such folder; give the --out of a sweep")
    found = [_read_plan(path) for path in sorted((out / PLANS).glob("*.json"))]
    found = found or [Plan(list(_there(out)))]
    if not any(plan.runs for plan in found):
        raise UserError(f"{out}: no sweep and no runs in this folder; make some: peerlearn sweep")
    return found


def _read_plan(path: Path) -> Plan:
    try:
        content = from_json(read_text(path, MOST_PLAN_BYTES))
        rows = content["runs"]
        runs = [Planned(str(k), str(name), str(kind), int(n)) for k, name, kind, n in rows]
        if any(Path(run.key).is_absolute() or ".." in Path(run.key).parts for run in runs):
            raise ValueError
        return Plan(runs, str(content.get("command", "")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f"{path}: is damaged; delete it and start the sweep again") from None


def states(
    out: Path, runs: Iterable[Planned], before: Iterable[State] = (), *, busy: bool = False
) -> list[State]:
    """Where runs stand.

    before: at the last look; what is done is not read again. busy: whether a sweep is at work,
    which begins those anew that it has not given up.
    """
    done = {one.run.key: one for one in before if one.kind == "done"}
    found = [done.get(run.key) or state(out, run) for run in runs]
    again = [busy and one.kind == "failed" and not one.note for one in found]
    return [one._replace(kind="left") if a else one for one, a in zip(found, again, strict=True)]


def _there(out: Path) -> Iterator[Planned]:
    for path in sorted(out.rglob("summary.json")):
        key = path.parent.relative_to(out).as_posix()
        yield Planned(key, key, "/".join(key.split("/")[:-1]), 0)
