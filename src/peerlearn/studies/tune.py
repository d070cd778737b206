"""A search for settings with Optuna, on a stream without the test images of evaluations.

Optuna proposes and remembers; a trial is a few runs, made by a sweep like any others, so that
trials go on after a crash. Whoever works on a trial holds its lease.
"""

import math
import secrets
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerlearn.errors import UserError
from peerlearn.experiment.run import stop_signals
from peerlearn.files import replace_file
from peerlearn.leases import Watch, latest, leased
from peerlearn.metrics.matrix import AccuracyMatrix
from peerlearn.records.read import read_accuracy
from peerlearn.records.study import Study, Trial, write_study
from peerlearn.studies.executor import Executor
from peerlearn.studies.found import STATES, preset, record, trial_of
from peerlearn.studies.job import Job, Place
from peerlearn.studies.many import Means, planned
from peerlearn.studies.proposals import importance, open_study, suggested
from peerlearn.studies.search import Search, tuning_stream
from peerlearn.studies.state import Planned, at_work, write_plan
from peerlearn.studies.sweep import Result, Sweep, finished
from peerlearn.studies.view import Lines
from peerlearn.units import percent

WRITE = 10.0  # seconds between two records of a search under way
COMPARED = 5  # trials that must have ended before others are stopped early
WARMUP = 2  # tasks that a trial must have behind it before it is stopped early


def hopeless(curve: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Whether a trial is to be stopped early: below the median of those that came to their end.

    curve: AA after each task so far. others: the same of trials that have ended, all tasks. AA
    falls as classes arrive, so that only values after the same task are compared.
    """
    if len(curve) < WARMUP or len(others) < COMPARED:
        return False
    return curve[-1] < statistics.median(other[len(curve) - 1] for other in others)


@dataclass
class Active:
    """A trial that this process works on."""

    number: int
    chosen: Mapping[str, Any]
    jobs: Sequence[Job]
    held: ExitStack
    began: float = field(default_factory=time.monotonic)
    stopping: str = ""  # why it is being stopped

    def curve(self) -> list[float]:
        """Mean AA over the seeds after each task that all of them have behind them."""
        curves = [_curve(job) for job in self.jobs]
        return [statistics.fmean(values) for values in zip(*curves, strict=False)]


def _curve(job: Job) -> list[float]:
    """AA after each task so far."""
    try:
        rows = read_accuracy(job.folder.path, optional=True).ensemble
    except UserError:  # damaged: who finishes the run will say so
        return []
    matrix = AccuracyMatrix(rows)
    return [matrix.at(k).average_accuracy for k in range(len(rows))]


class TrialLines(Lines):
    """Progress of a search, whose runs become known one after the other."""

    def trial(self, text: str) -> None:
        """A line about trials."""
        self._line(text)

    def _event(self, text: str) -> None:
        self._line(text)

    def _time_left(self, *_: object) -> str:
        return ""  # of runs that nobody knows yet


def tune(search: Search, out: Path, means: Means) -> tuple[Study, Path, bool]:
    """Search, and write down what was found; the record, its folder, whether it was stopped."""
    search.run.check()
    stream = tuning_stream(search)
    folder = search.folder(out)
    place = Place(folder / "runs", search.root, search.plugins)
    executor = means.executor([Job(wish, place) for wish in search.wishes(0, {})])
    runs: dict[str, Planned] = {}
    view = TrialLines(runs, 0, executor.jobs)
    try:
        place.out.mkdir(parents=True, exist_ok=True)
        study = open_study(search, folder, str(stream["fingerprint"]))
        tuner = Tuner(search, study, folder, Sweep(executor, view, means.retries), view, runs)
        tuner.stream = stream
        view.trial(f"{tuner.left()} of {search.trials} trials to begin; {executor}")
        tuner.plan()
        with at_work(place.out, executor.jobs):
            stopped = tuner.work(_trials_at_once(executor, search))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); another --out") from error
    finally:
        executor.close()
        view.close()
    return tuner.write(final=True), folder, stopped


def _trials_at_once(executor: Executor, search: Search) -> int:
    return max(executor.jobs // len(search.seeds), 1)


class Tuner:
    """A search under way.

    Args:
        search: what is searched.
        study: as Optuna keeps it.
        folder: of the search.
        whole: the sweep that makes the runs of its trials.
        view: that is told.
        runs: all of them, by key; more become known.
    """

    def __init__(
        self,
        search: Search,
        study: Any,
        folder: Path,
        whole: Sweep,
        view: TrialLines,
        runs: dict[str, Planned],
    ) -> None:
        self.search, self.study, self.folder = search, study, folder
        self.whole, self.view, self.runs = whole, view, runs
        self.stream: dict[str, Any] = {}
        self.active: dict[int, Active] = {}
        self._watch = Watch()
        self._written = 0.0
        self._plan = f"trials-{secrets.token_hex(4)}"  # of this process; others have their own
        self._known: dict[int, Trial] = {}  # records of trials that have ended

    def left(self) -> int:
        """How many trials are still to be begun."""
        trials = self._trials()
        waiting = sum(trial.state.name == "WAITING" for trial in trials)
        wanted: int = max(self.search.trials - (len(trials) - waiting), 0)
        return min(wanted, waiting) if self.search.by == "grid" else wanted

    def work(self, at_once: int) -> bool:
        """Take turns until all trials have ended, or somebody stops it; whether somebody did."""
        stopped = False
        with stop_signals() as signals:
            while True:
                if signals:
                    stopped = True
                    self.whole.stop_all()
                    signals.clear()  # a second time ends them
                if not stopped:
                    self._begin(at_once)
                if not self.active and (stopped or not self._others()):
                    return stopped
                self._judge(self.whole.turn(), stopped)
                if time.monotonic() - self._written > WRITE:
                    self.write()

    def _begin(self, at_once: int) -> None:
        """Go on with trials whose owner is dead, then begin others."""
        if len(self.active) >= at_once:
            return
        with leased(self._place("ask")):  # so that two processes never take the same one
            for trial in self._unfinished():
                mark = self._mark(trial.number)
                if len(self.active) < at_once and mark is not None:
                    self._start(trial.number, mark)
            while len(self.active) < at_once and self.left():
                self._start(self.study.ask().number, ())

    def _mark(self, number: int) -> tuple[int, ...] | None:
        """The mark of a trial's lease that may be taken over, () if none; None if it is held."""
        if number in self.active:
            return None
        claim = latest(self._place(str(number)))
        if claim is None:
            return ()
        return claim.mark if self._watch.available(self._place(str(number)), claim) else None

    def _start(self, number: int, mark: tuple[int, ...]) -> None:
        held = ExitStack()
        dead = (mark[0], mark[1]) if mark else None
        held.enter_context(leased(self._place(str(number)), dead=dead))
        chosen = suggested(self._trial(number), self.search)  # what it has been told, it keeps
        place = Place(self.folder / "runs", self.search.root, self.search.plugins)
        jobs = [Job(wish, place) for wish in self.search.wishes(number, chosen)]
        self.active[number] = Active(number, chosen, jobs, held)
        for job in jobs:
            self.runs[job.key] = planned(job)
            self.whole.add(job)
        self.plan()

    def plan(self) -> None:
        """Write down which runs there are so far, for `status` and for the nodes of a cluster."""
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        write_plan(self.folder / "runs", self._plan, self.runs.values(), command)

    def _judge(self, results: Sequence[Result], stopped: bool) -> None:
        """Tell Optuna how trials go on, and which have ended."""
        for active in list(self.active.values()):
            found = [self.whole.results.get(job.key) for job in active.jobs]
            ended = [one for one in found if one is not None]
            failed = [one for one in ended if one.how == "failed"]
            if stopped and not any(job.key in self.whole.running for job in active.jobs):
                self._release(active)  # it goes on when the search does
            elif len(ended) < len(found):
                self._go_on(active, failed=bool(failed), stopped=stopped)
            elif failed:
                why = failed[0].ended.last_line if failed[0].ended else ""
                self._tell(active, "FAIL", why=why)
            elif all(one.how in ("done", "elsewhere") for one in ended):
                self._report(active, active.curve())
                self._tell(active, "COMPLETE", value=_mean_aa(active.jobs))
            elif active.stopping:
                self._tell(active, "PRUNED", why=active.stopping)
            else:  # stopped with another trial of the same settings
                self._release(active)
        if results:
            self.write()

    def _go_on(self, active: Active, *, failed: bool, stopped: bool) -> None:
        """Report a trial under way, and stop it if it fails or has no hope."""
        if active.stopping or stopped:
            return
        curve = active.curve()
        new = self._report(active, curve) and self.search.by == "tpe"
        if new and hopeless(curve, self._curves()):
            where = f"AA {percent(curve[-1])} after task {len(curve)}"
            active.stopping = f"{where}, below the median of the others there"
        elif failed:
            active.stopping = "another of its runs failed"
        if active.stopping:
            for job in active.jobs:
                self.whole.stop(job.key)

    def _curves(self) -> list[list[float]]:
        """AA after each task of the trials that came to their end."""
        values = [trial.intermediate_values for trial in self._done()]
        tasks = self.search.run.stream.tasks
        return [[one[k] for k in range(tasks)] for one in values if len(one) == tasks]

    def _report(self, active: Active, curve: Sequence[float]) -> bool:
        """Report AA after each task; whether there was something new."""
        known = self._trials()[active.number].intermediate_values
        new = [step for step in range(len(curve)) if step not in known]
        for step in new:
            with self._told_by_others():
                self._trial(active.number).report(curve[step], step)
        return bool(new)

    def _tell(
        self, active: Active, state: str, *, value: float | None = None, why: str = ""
    ) -> None:
        import optuna.trial

        with self._told_by_others():
            trial = self._trial(active.number)
            before = trial.user_attrs.get("seconds", 0.0)
            trial.set_user_attr("seconds", before + time.monotonic() - active.began)
            trial.set_user_attr("why", why)
            self.study.tell(active.number, value, state=optuna.trial.TrialState[state])
        self._release(active)
        best = max((trial.value for trial in self._done()), default=None)
        shown = ", ".join(f"{k.rpartition('.')[2]}={v}" for k, v in active.chosen.items())
        says = {"PRUNED": "stopped early", "FAIL": "failed"}.get(state, f"AA {percent(value)}")
        self.view.trial(f"trial {active.number}: {says}, {shown}; best {percent(best)}")

    @staticmethod
    def _told_by_others() -> Any:
        """A process that was suspended may have lost its trial to another, which ended it."""
        from optuna.exceptions import UpdateFinishedTrialError

        return suppress(UpdateFinishedTrialError)

    def _release(self, active: Active) -> None:
        active.held.close()
        del self.active[active.number]

    def _others(self) -> bool:
        """Whether other processes still work on trials, or something is left to be begun."""
        return bool(self.left() or self._unfinished())

    def _unfinished(self) -> list[Any]:
        return [trial for trial in self._trials() if trial.state.name == "RUNNING"]

    def _done(self) -> list[Any]:
        return [trial for trial in self._trials() if trial.state.name == "COMPLETE"]

    def _trials(self) -> list[Any]:
        return list(self.study.get_trials(deepcopy=False))

    def _trial(self, number: int) -> Any:
        import optuna.trial

        return optuna.trial.Trial(self.study, self._trials()[number]._trial_id)

    def _place(self, name: str) -> Path:
        place = self.folder / "trials" / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, *, final: bool = False) -> Study:
        """Write study.json; at the end with what matters, and with a preset."""
        self._written = time.monotonic()
        shares = importance(self.study, len(self._done())) if final else {}
        trials = [self._record(one) for one in self._trials() if one.state.name in STATES]
        found = record(self.search, trials, self.stream, shares)
        write_study(self.folder / "study.json", found)
        if found.best is not None:
            replace_file(self.folder / "preset.yaml", preset(self.search, found), shared=True)
        return found

    def _record(self, trial: Any) -> Trial:
        if trial.number not in self._known:
            made = trial_of(self.search, trial)
            if made.state == "running":
                return made
            self._known[trial.number] = made
        return self._known[trial.number]


def _mean_aa(jobs: Sequence[Job]) -> float:
    """The mean of AA at the end over the runs of a trial, which are all done."""
    found = [summary.metrics["AA"] for job in jobs if (summary := finished(job))]
    return statistics.fmean(aa for aa in found if aa is not None and math.isfinite(aa))
