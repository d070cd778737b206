"""A sweep from beginning to end: what is missing, who does it, what came of it."""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from peerlearn.errors import UserError
from peerlearn.experiment.images import Loader
from peerlearn.nets.processor import usable_devices
from peerlearn.runtime import available_threads, free_memory
from peerlearn.studies.calibrate import Estimate, cost_key
from peerlearn.studies.executor import LEAST_MEMORY, Executor, Processes
from peerlearn.studies.job import Job
from peerlearn.studies.picture import about, count, short_names
from peerlearn.studies.process import Child
from peerlearn.studies.share import Share
from peerlearn.studies.state import Planned, at_work, reason, write_plan
from peerlearn.studies.sweep import RETRIES, Result, missing, sweep
from peerlearn.studies.view import Lines, why


class Means(NamedTuple):
    """With what runs are made.

    Args:
        jobs: at once; 0: as many as the machine bears.
        share: of each.
        retries: after deaths.
        ray: the address of a cluster, "auto" for the one here; none: processes of this machine.
        fetch: whether the nodes of the cluster do not see the folder of all runs.
    """

    jobs: int = 0
    share: Share = Share()
    retries: int = RETRIES
    ray: str | None = None
    fetch: bool = False

    def check(self, jobs: Sequence[Job]) -> None:
        """Refuse what contradicts itself."""
        on_gpu = any(str(job.run.values["machine.device"]) != "cpu" for job in jobs)
        if self.share.gpu and not on_gpu:
            raise UserError("--per-run: gpu is given, and all runs are on the cpu; --device cuda")
        if on_gpu and self.ray is not None and not self.share.gpu:
            raise UserError("--per-run: runs on cuda need gpu=1, or a part; Ray shows none else")
        if self.fetch and self.ray is None:
            raise UserError("--fetch: is for --ray; processes of this machine see --out")

    def executor(self, jobs: Sequence[Job]) -> Executor:
        """What carries these jobs out."""
        self.check(jobs)
        if self.ray is None:
            devices = torch.cuda.device_count() if self.share.gpu else 0
            return Processes(self.jobs, self.share, devices=devices)
        from peerlearn.studies.cluster import Cluster

        return Cluster(self.ray, self.share, self.jobs, fetch=self.fetch)


@dataclass(frozen=True)
class Outcome:
    """What came of a sweep.

    Args:
        done: runs that it finished, or waited for.
        before: those that were finished before.
        failed: those that were given up.
        stopped: how many were left when somebody stopped it.
    """

    done: int
    before: int
    failed: tuple[Result, ...]
    stopped: int

    @property
    def code(self) -> int:
        """The exit code."""
        return 130 if self.stopped else 1 if self.failed else 0

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        failed = [{"folder": str(one.job.folder.path), "why": why(one)} for one in self.failed]
        return {
            "done": self.done, "before": self.before, "stopped": self.stopped, "failed": failed,
        }  # fmt: skip


def planned(job: Job) -> Planned:
    """A job as it stands in the plan of a sweep."""
    kind = hashlib.sha256(cost_key(job.run).encode()).hexdigest()[:12]
    return Planned(job.key, job.label, kind, job.run.stream.tasks)


def carry_out(jobs: Sequence[Job], means: Means, command: str = "") -> Outcome:
    """Finish these runs, and say how it goes on. command: that asked for it."""
    left, before = _missing(jobs, means)
    out, runs = jobs[0].place.out, {job.key: planned(job) for job in jobs}
    name = hashlib.sha256("\n".join(runs).encode()).hexdigest()[:12]
    if not left:
        write_plan(out, name, runs.values(), command)
        were = "the run was" if len(jobs) == 1 else f"all {len(jobs)} runs were"
        print(f"{were} done before", file=sys.stderr)
        return Outcome(0, len(before), (), 0)
    executor = means.executor(left)
    write_plan(out, name, runs.values(), command)
    view = Lines(runs, len(before), executor.jobs)
    view.begin(len(left), executor)
    try:
        with at_work(out, executor.jobs):
            whole = sweep(left, executor, view, means.retries)
    finally:
        view.close()
    results = list(whole.results.values())
    failed = tuple(one for one in results if one.how == "failed")
    done = sum(one.how in ("done", "elsewhere") for one in results)
    view.end(failed, len(left) - done - len(failed))
    return Outcome(done, len(before), failed, len(left) - done - len(failed))


def _missing(jobs: Sequence[Job], means: Means) -> tuple[list[Job], list[Job]]:
    """The jobs to be done, and those done before; refused if one of them can never be done."""
    means.check(jobs)
    _refuse_a_file(jobs[0].place.out)
    loader = _loader(jobs, means)
    left, before = missing(jobs, loader)
    streams, machines = set(), set()
    for job in left:
        values = job.run.values
        stream = (values["data"], job.run.stream)
        if loader and stream not in streams:
            streams.add(stream)
            images = loader(job.run, lambda *_: None)
            try:
                job.run.stream.stream(images.data, job.run.seed)
            except UserError as error:
                raise UserError(f"{job.label}: {error}") from None
        machine = (str(values["machine.device"]), job.run.machine.precision)
        if means.ray is None and machine not in machines and not torch.cuda.is_available():
            machines.add(machine)
            usable_devices(*machine)
    return left, before


def _refuse_a_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file, and runs need a folder; choose another --out")


def _loader(jobs: Sequence[Job], means: Means) -> Loader | None:
    """Reads the images, to see that runs that are done were done on them."""
    loader = Loader(jobs[0].place.root)
    if means.ray is None:
        return loader
    try:
        for job in jobs:
            loader(job.run, lambda *_: None)
    except UserError as error:
        print(f"{error}; nodes look for it themselves", file=sys.stderr)
        return None
    return loader


def dry_run(jobs: Sequence[Job], means: Means) -> dict[str, Any]:
    """What a sweep would do, how long it would take and how much memory, measured here."""
    left, _ = _missing(jobs, means)
    keys = {job.key: cost_key(job.run) for job in left}
    estimates: dict[str, Estimate | str] = {}
    for job in left:
        if keys[job.key] not in estimates:
            of = f"{len(estimates) + 1} of {len({*keys.values()})}"
            print(f"measuring {of}: {job.label}", file=sys.stderr)
            estimates[keys[job.key]] = _calibrated(job, means)
    rows = []
    for job in jobs:
        row: dict[str, Any] = {"run": job.label, "folder": str(job.folder.path)}
        found = estimates[keys[job.key]] if job.key in keys else None
        if isinstance(found, Estimate):
            row |= found._asdict()
        else:
            row |= {"fault": found} if found else {"done": True}
        rows.append(row)
    return {"runs": rows, "total": _total(rows, len(left), means)}


def _total(rows: Sequence[dict[str, Any]], left: int, means: Means) -> dict[str, Any]:
    measured = [row for row in rows if "seconds" in row]
    seconds = [float(row["seconds"]) for row in measured]
    peak = max((int(row["peak_bytes"]) for row in measured), default=0)
    slots, limit = _at_once(means, left, peak)
    return {
        "runs": len(rows), "left": left, "faults": sum("fault" in row for row in rows),
        "seconds": sum(seconds), "at_once": slots, "limit": limit,
        "wall_seconds": wall_seconds(seconds, slots) if slots else None,
        "peak_bytes": sum(sorted(int(row["peak_bytes"]) for row in measured)[-(slots or 1) :]),
    }  # fmt: skip


def _at_once(means: Means, left: int, peak: int) -> tuple[int, str]:
    """How many runs there would be at once here, and what limits them; 0 if a cluster decides."""
    if means.ray is not None:
        return 0, "the cluster decides how many at once"
    slots = Processes(
        means.jobs, means.share, devices=torch.cuda.device_count() if means.share.gpu else 0
    ).jobs
    each = f"{count(means.share.cpu, 'core')} each"
    limit = "--jobs" if means.jobs else f"{count(available_threads(), 'core')}, {each}"
    if means.share.gpu and slots != means.jobs:
        limit = f"{count(torch.cuda.device_count(), 'device')}, {means.share.gpu:g} each"
    need, free = max(peak, means.share.memory, LEAST_MEMORY), free_memory()
    if free is not None and free // need < slots:
        slots, limit = max(free // need, 1), f"{_bytes(free)} of memory free, {_bytes(need)} each"
    if left < slots:
        slots, limit = max(left, 1), f"{count(left)} left"
    return slots, limit


def wall_seconds(seconds: Sequence[float], slots: int) -> float:
    """How long runs take that begin in this order, each as soon as one of the slots is free.

    >>> wall_seconds([3, 1, 1, 4], 2)
    6.0
    """
    free = [0.0] * max(slots, 1)
    for one in seconds:
        free[free.index(min(free))] += one
    return max(free)


def dry_text(found: dict[str, Any]) -> str:
    """A dry run as a person reads it."""
    rows, total = found["runs"], found["total"]
    names, shared = short_names([Planned(row["folder"], row["run"], "", 0) for row in rows])
    width = max(map(len, names.values()))
    lines = [f"{len(rows)} runs, all {shared}"] if shared else []
    lines += [f"{names[row['folder']]:{width}}  {_shown(row)}" for row in rows]
    before = total["runs"] - total["left"]
    lines.append(f"{count(total['runs'])}, {before} done before, {total['left']} left")
    if total["faults"]:
        lines[-1] += f", {total['faults']} of them cannot begin"
    if total["seconds"]:
        lines[-1] += f": about {about(total['seconds'])} of computing"
    if total["seconds"] and total["at_once"]:
        lines[-1] += f", {about(total['wall_seconds'])} from start to end"
        lines.append(f"{total['at_once']} at once ({total['limit']}), with")
        lines[-1] += f" {_bytes(total['peak_bytes'])} of memory in all"
    elif not total["at_once"]:
        lines[-1] += f" on a machine like this; {total['limit']}"
    return "\n".join(lines)


def _shown(row: dict[str, Any]) -> str:
    if row.get("done"):
        return "done before"
    if "fault" in row:
        return f"cannot begin: {row['fault']}"
    return f"about {about(row['seconds'])}, {_bytes(row['peak_bytes'])}"


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _calibrated(job: Job, means: Means) -> Estimate | str:
    """What a process finds out that takes a few of its steps."""
    ended = Child({**job.spec(), "calibrate": True}, threads=means.share.cpu).wait()
    try:
        return Estimate(**json.loads(ended.last_line))
    except (ValueError, TypeError):
        return reason(ended.said) or ended.how
