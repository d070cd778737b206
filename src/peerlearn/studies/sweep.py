"""Many runs: what is to be done, what is tried again, and what is given up.

An executor carries runs out; all that is decided is decided here.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from peerlearn.errors import UserError
from peerlearn.experiment.identity import reconcile
from peerlearn.experiment.images import Loader
from peerlearn.experiment.run import stop_signals
from peerlearn.files import replace_file
from peerlearn.leases import BEAT, Watch, latest
from peerlearn.records.schema import Summary
from peerlearn.studies.executor import Executor
from peerlearn.studies.job import Job
from peerlearn.studies.process import Ended
from peerlearn.studies.state import ERROR_LOG

TICK = 0.3  # seconds between two looks
RETRIES = 3  # after deaths, unless somebody says otherwise


class Result(NamedTuple):
    """How a run has ended, for this sweep.

    Args:
        job: the run.
        how: done; elsewhere, done by another sweep; stopped, because it was asked to; failed.
        ended: its process, if it had one.
    """

    job: Job
    how: str
    ended: Ended | None = None


class View(Protocol):
    """Who is told how a sweep goes on."""

    def started(self, job: Job) -> None:
        """A run begins, or goes on, in a process."""

    def again(self, job: Job, ended: Ended, attempt: int) -> None:
        """Its process died; it will be started again."""

    def result(self, result: Result) -> None:
        """A run has ended."""

    def show(self, sweep: "Sweep") -> None:
        """Some time has passed."""


class Sweep:
    """Runs to be finished, each by one process at a time, whoever else works on the same folder.

    Args:
        executor: that carries them out.
        view: that is told.
        retries: how often a run whose process dies is started again.
    """

    def __init__(self, executor: Executor, view: View, retries: int = RETRIES) -> None:
        self.executor, self.view, self.retries = executor, view, retries
        self.waiting: deque[Job] = deque()
        self.running: dict[str, Job] = {}
        self.elsewhere: dict[str, Job] = {}  # held by processes of others
        self.results: dict[str, Result] = {}
        self._open: set[str] = set()  # keys of all that have not ended
        self._ended: list[Result] = []  # in this turn
        self._deaths: Counter[str] = Counter()
        self._stopping: set[str] = set()
        self._watch = Watch()
        self._looked = 0.0  # when all that is running was looked at last

    def add(self, job: Job) -> None:
        """Put a run at the end of what is to be done; once, however often it is asked for."""
        self._stopping.discard(job.key)
        self.results.pop(job.key, None)
        if job.key not in self._open:
            self._open.add(job.key)
            self.waiting.append(job)

    def stop(self, key: str) -> None:
        """Let a run save and stop; or not begin."""
        self._stopping.add(key)
        if key in self.running:
            self.executor.stop(key)

    def stop_all(self) -> None:
        """Let all runs save and stop, and begin no other."""
        self.waiting.clear()
        self.elsewhere.clear()
        self._open = {*self.running}
        for key in self.running:
            self.stop(key)

    @property
    def left(self) -> int:
        """How many have not ended."""
        return len(self.waiting) + len(self.running) + len(self.elsewhere)

    def turn(self) -> list[Result]:
        """Start what can be started, wait a moment, and see what has ended."""
        self._ended = []
        self._start()
        if not self.running:
            time.sleep(TICK)
        for key, ended in self.executor.ended(TICK).items():
            self._judge(self.running.pop(key), ended)
        if time.monotonic() - self._looked > BEAT:
            self._looked = time.monotonic()
            self._end_the_stuck()
        for key, job in list(self.elsewhere.items()):
            if self._is_finished(job):
                del self.elsewhere[key]
            elif self._mark(job) is not None:
                del self.elsewhere[key]
                self.waiting.append(job)
        self.view.show(self)
        return self._ended

    def _start(self) -> None:
        while self.waiting and self.executor.room():
            job = self.waiting.popleft()
            mark = self._mark(job)
            if job.key in self._stopping:
                self._end(Result(job, "stopped"))
            elif mark is None:
                self.elsewhere[job.key] = job
            elif not self._is_finished(job):
                self._begin(job, mark)

    def _begin(self, job: Job, mark: tuple[int, ...]) -> None:
        with suppress(OSError):
            (job.folder.path / ERROR_LOG).unlink()
        try:
            self.executor.start(job.key, {**job.spec(), "dead": mark})
        except OSError as error:  # no more processes, or no room for files: perhaps in a moment
            self._judge(job, Ended("died", (f"could not be started: {error}",)))
            time.sleep(TICK)
            return
        self.running[job.key] = job
        self.view.started(job)

    def _mark(self, job: Job) -> tuple[int, int] | tuple[()] | None:
        """The mark of a lease that may be taken over, () if there is none; None if it is held."""
        try:
            claim = latest(job.folder.path)
        except OSError:  # a network that is away; who knows what is there
            return None
        if claim is None:
            return ()
        return claim.mark if self._watch.available(job.folder.path, claim) else None

    def _end_the_stuck(self) -> None:
        """End processes of ours that give no sign of life, or whose run others have finished."""
        for key, job in self.running.items():
            with suppress(OSError):
                claim = latest(job.folder.path)
                if claim and not claim.free and self._watch.stale(job.folder.path, claim):
                    self.executor.stop(key, now=True)

    def _is_finished(self, job: Job) -> bool:
        """Whether a run has ended without us: done, or its record is damaged."""
        try:
            if finished(job) is None:
                return False
            self._end(Result(job, "elsewhere"))
        except UserError as error:
            self._end(Result(job, "failed", Ended("failed", (str(error),))))
        return True

    def _judge(self, job: Job, ended: Ended) -> None:
        if ended.how in ("done", "stopped") and _says_so(job):
            self._end(Result(job, "done", ended))
        elif ended.how == "failed":
            self._end(Result(job, "failed", ended))
        elif job.key in self._stopping:
            self._end(Result(job, "stopped", ended))
        elif ended.how == "busy" and self._mark(job) is None:
            self.elsewhere[job.key] = job
        else:  # died, for lack of memory or else; stopped, or kept out, by nobody knows whom
            self._deaths[job.key] += 1
            if self._deaths[job.key] > self.retries:
                self._end(Result(job, "failed", ended))
            else:
                self.view.again(job, ended, self._deaths[job.key])
                self.waiting.append(job)

    def _end(self, result: Result) -> None:
        if result.how == "failed" and result.ended:
            with suppress(OSError, UserError):  # it is shown as well
                result.job.folder.path.mkdir(parents=True, exist_ok=True)
                lines = [*result.ended.said, f"on {result.ended.host}, {time.ctime()}"]
                replace_file(result.job.folder.path / ERROR_LOG, "\n".join(lines) + "\n")
        self._open.discard(result.job.key)
        self.results[result.job.key] = result
        self._ended.append(result)
        self.view.result(result)


def finished(job: Job) -> Summary | None:
    """What a run that came to its end says; None if it is to be done."""
    return job.folder.finished(job.run.stream.tasks)


def _says_so(job: Job) -> bool:
    """Whether the record of a run agrees that it is done."""
    with suppress(UserError):
        return finished(job) is not None
    return False


def missing(jobs: Iterable[Job], loader: Loader | None) -> tuple[list[Job], list[Job]]:
    """The jobs to be done, and those that were done before, on the same images.

    A folder that holds another run is refused. loader: reads the images; None: they are not here,
    and whoever works on a run will look.
    """
    left: list[Job] = []
    done: list[Job] = []
    for job in jobs:
        images = loader(job.run, lambda *_: None) if loader else None
        reconcile(job.folder, job.run, images)
        (done if finished(job) else left).append(job)
    return left, done


def sweep(jobs: Sequence[Job], executor: Executor, view: View, retries: int = RETRIES) -> Sweep:
    """Finish these runs; Ctrl-C lets those under way save and stop, a second one ends them."""
    whole = Sweep(executor, view, retries)
    for job in jobs:
        whole.add(job)
    drive(whole)
    return whole


def drive(whole: Sweep) -> None:
    """Take turns until nothing is left, or somebody wants it to stop."""
    with stop_signals() as signals:
        try:
            while whole.left:
                if signals:
                    whole.stop_all()
                    signals.clear()  # a second time ends them
                whole.turn()
        finally:
            whole.executor.close()
