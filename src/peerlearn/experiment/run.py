"""One run: train over the stream, evaluate after each task, go on after a crash."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from peerlearn.errors import UserError
from peerlearn.experiment.curve import USUAL_WINDOW, Curve
from peerlearn.experiment.environment import environment
from peerlearn.experiment.evaluate import Scores
from peerlearn.experiment.identity import create_or_verify, folder_of, reconcile
from peerlearn.experiment.images import Loader
from peerlearn.experiment.machine import Threads, choose_threads, recorded
from peerlearn.experiment.pace import Pace
from peerlearn.experiment.probes import Probes
from peerlearn.experiment.progress import label
from peerlearn.experiment.resolve import Resolved
from peerlearn.experiment.settings import EvaluationSettings, ProbeSettings, RunSettings
from peerlearn.files import MOST_BYTES, Log
from peerlearn.learner.online import OnlineLearner
from peerlearn.leases import Lease
from peerlearn.nets.flops import forward_flops
from peerlearn.records.document import checked, damaged
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import points_in, read_probes
from peerlearn.records.schema import Config, Saved
from peerlearn.runtime import available_threads, keep_freed_memory, peak_memory, reset_peak_memory
from peerlearn.settings import Settings
from peerlearn.stream.base import Stream
from peerlearn.stream.dataset import DatasetStream

LOG_EVERY = 10  # batches between lines of steps.jsonl
CHECKPOINT_SECONDS = 60.0
HOLD_TRIES = 10  # to see whose a folder is, a second apart


class Stopped(Exception):  # noqa: N818
    """The run was asked to stop, and has saved where it stands."""


class Busy(Exception):  # noqa: N818
    """Another process is working on the run."""


class TakenOverError(UserError):
    """Another process has taken the run over, since this one gave no sign of life for too long."""


class Watcher(Protocol):
    """Who is told how runs go on."""

    def note(self, text: str) -> None:
        """Something to know about the data or the machine; the same may be said for every run."""

    def wait(self, run: Config) -> None:
        """Another process is working on the run; it is waited for."""

    def begin(self, run: Config, card: str, batches: int, done: int) -> None:
        """A run begins, or goes on after `done` of its batches."""

    def step(self, batch: int, task: int, losses: dict[str, float]) -> None:
        """A batch has been learnt."""

    def task(self, task: int, summary: dict[str, Any]) -> None:
        """A task has been evaluated."""

    def end(self, summary: dict[str, Any]) -> None:
        """The run is finished."""

    def reuse(self, run: Config, metrics: Mapping[str, float | None]) -> None:
        """The run was finished before."""

    def decoding(self, done: int, total: int) -> None:
        """Images of the data set are being decoded."""

    def close(self) -> None:
        """No more runs are to come."""


def run_all(
    runs: Sequence[Resolved], out: Path, watcher: Watcher, root: Path | None = None
) -> list[dict[str, Any]]:
    """Finish these runs; their summaries.

    Those that another process works on come last, so that several processes with the same command
    share the work.

    out: the folder of all runs. root: where data sets lie, if not in the usual places.
    """
    loader = Loader(root)
    found: dict[int, dict[str, Any]] = {}
    for patient in (False, True):
        for i, one in enumerate(runs):
            with suppress(Busy):
                found[i] = found.get(i) or run(one, out, watcher, loader, wait=patient)
    return [found[i] for i in range(len(runs))]


def run(
    resolved: Resolved,
    out: Path,
    watcher: Watcher,
    loader: Loader | None = None,
    *,
    wait: bool = True,
    dead: tuple[int, int] | None = None,
    share: int = 0,
) -> dict[str, Any]:
    """Finish the run of these settings, from wherever it stands; its summary.

    out: the folder of all runs. loader: reads the data; one serves several runs. wait: for another
    process that works on this run; else `Busy` is raised. dead: as in `leases.leased`. share: of
    the machine's threads, for a new run beside others; each of its peers then has one, so that its
    numbers do not depend on the share. 0: as many as are fastest.
    """
    folder = folder_of(resolved, out)
    images = (loader or Loader())(resolved, watcher.decoding)
    for text in images.data.notes:
        watcher.note(text)
    config = reconcile(folder, resolved, images)
    tasks = resolved.stream.tasks
    if (found := folder.finished(tasks)) is None:
        keep_freed_memory()
        stream = resolved.stream.stream(images.data, resolved.seed)
        peers = len(make_learner(resolved, stream, config).peers)  # else refused without a trace
        with folder.locked(_busy(config, watcher, wait), dead) as lease:
            choose = partial(_choose, config, peers, stream, resolved, watcher, share)
            config = create_or_verify(folder, resolved, images, choose)
            if (found := folder.finished(tasks)) is None:  # by another process, in the meantime
                threads = recorded(config.settings, peers)
                torch.set_num_threads(threads.each)
                reset_peak_memory()
                learner = make_learner(resolved, stream, config, threads.at_once)
                place = images.place
                return _Run(config, folder, stream, learner, watcher, place, lease).resume()
    watcher.reuse(config, found.metrics)
    return folder.summary_as_written()


def _busy(config: Config, watcher: Watcher, wait: bool) -> Callable[[], None]:
    def told() -> None:
        if not wait:
            raise Busy
        watcher.wait(config)

    return told


def _choose(
    config: Config, peers: int, stream: Stream, resolved: Resolved, watcher: Watcher, share: int
) -> Threads:
    """The threads of a new run."""
    given = resolved.machine.threads or resolved.machine.peer_threads
    if share and not given:
        return Threads(each=1, at_once=min(share, peers))
    trial = make_learner(resolved, stream, config, peers)
    x = next(stream.tasks[0].batches()).x
    rows = len(x) + min(trial.method.settings.replay_batch, resolved.memory)
    if not given and trial.device.type == "cpu" and available_threads() > 1:
        watcher.note("trying how many threads are fastest; --threads says it without a trial")
    choice = choose_threads(trial, x.shape[1:], rows, resolved.machine)
    if choice.seconds:
        watcher.note(f"{label(config)}: {choice}")
    return choice.threads


def make_learner(
    resolved: Resolved, stream: Stream, config: Config | None = None, peers_at_once: int = 1
) -> OnlineLearner:
    """The learner of a run, untrained; on the machine that its record names, if there is one."""
    machine = config.settings if config else resolved.values
    built_from = resolved.config.replace(
        stream=stream.info,
        memory=resolved.memory,
        seed=resolved.seed,
        updates=resolved.run.updates,
        predict_with=resolved.run.predict_with,
        ncm_distance=resolved.run.ncm_distance,
        precision=resolved.machine.precision,
        layout=machine["machine.layout"],
    )
    return OnlineLearner.from_config(
        built_from,
        device=machine["machine.device"],
        compile=machine["machine.compile"],
        peers_at_once=peers_at_once,
    )


def _part(config: Config, model: type[Settings], prefix: str = "") -> dict[str, Any]:
    """The settings of a run that are of one kind."""
    return {name: config.settings[f"{prefix}{name}"] for name in model.model_fields}


class _Run:
    """A run under way: what `run` needs beside the learner to go on and to write its files."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        stream: Stream,
        learner: OnlineLearner,
        watcher: Watcher,
        place: str,
        lease: Lease,
    ) -> None:
        self.config, self.folder, self.stream = config, folder, stream
        self.learner, self.watcher, self.place, self.lease = learner, watcher, place, lease
        self.scores = Scores(self.learner, ncm=config.memory > 0)
        own = RunSettings(**_part(config, RunSettings))
        self.pace = Pace(learner, own, lambda: self._flops, self._tell, config.memory)
        evaluation = EvaluationSettings(**_part(config, EvaluationSettings, "evaluation."))
        limited = own.realtime or own.budget is not None
        window = evaluation.prequential or (USUAL_WINDOW if limited else 0)
        self.curve = Curve(evaluation, learner, stream.test_sets, window)
        asked = ProbeSettings(**_part(config, ProbeSettings, "probes."))
        epochs = config.settings["stream.epochs"]
        self.probes = Probes(asked, self.curve, learner, stream, epochs, folder)
        self.memory_classes: list[list[int]] = []
        self.train_seconds = self.eval_seconds = 0.0
        self.saved_at = time.monotonic()
        self.peak = 0

    def resume(self) -> dict[str, Any]:
        """Train and evaluate from where the run stands to its end."""
        self._hold()
        self._restore()
        threads = Threads(torch.get_num_threads(), self.learner.pool.count)
        device = self.config.settings["machine.device"]
        self.folder.write_environment(environment(threads, device, self.place))
        self._write_results("running")
        if len(self.scores.ensemble):  # what is there may be damaged, or of after the checkpoint
            self._write_accuracy()
        total = sum(len(task) for task in self.stream.tasks)
        done = self.learner.progress.batches
        self.watcher.begin(self.config, self.stream.card(), total, done)
        try:
            with stop_signals() as signals:
                with Log(self.folder.steps) as log, self.probes:
                    for task in self.stream.tasks[len(self.scores.ensemble) :]:
                        self._learn_task(task.index, log, signals)
                        self._end_task(task.index, log)
                        if signals and task.index + 1 < len(self.stream.tasks):
                            raise Stopped
                summary = self._write_results("done")
                self.watcher.end(summary)
                if signals:  # what comes after this run was meant as well
                    raise Stopped
                return summary
        except (Stopped, TakenOverError):
            raise
        except Exception as error:
            with suppress(UserError):  # a full disk, or a loss, must not hide what went wrong
                self._write_results("failed")
            logs = {str(path): path.name for path in (self.folder.steps, self.folder.probes)}
            if isinstance(error, OSError) and error.filename in logs:
                raise self.folder.unwritable(logs[error.filename], error) from error
            raise

    def _learn_task(self, index: int, log: Log, signals: list[int]) -> None:
        task = self.stream.tasks[index]
        before = sum(len(t) for t in self.stream.tasks[:index])
        self._rehearse(index, index, log, signals)  # what was left when the run was stopped
        once = before + len(task) // self.config.settings["stream.epochs"]
        for batch in task.batches(start=self.learner.progress.batches - before):
            asked = time.perf_counter()
            self.curve.before(batch)
            start, last_step = time.perf_counter(), self.pace.step_at
            self.eval_seconds += start - asked
            losses = self.pace.learn(batch, remember=self.learner.progress.batches < once)
            seconds = time.perf_counter() - start
            self.train_seconds += seconds
            done = self.learner.progress.batches
            if losses and done // LOG_EVERY > last_step // LOG_EVERY:  # the first in ten batches
                self.folder.log(log, done, index, losses, seconds)
            self.watcher.step(done, index, losses)
            start = time.perf_counter()
            self.probes.ask(done, index)
            self.eval_seconds += time.perf_counter() - start
            self._save_or_stop(log, signals)
            self._rehearse(index, index, log, signals)
        self._rehearse(index, index + 1, log, signals)

    def _rehearse(self, index: int, ended: int, log: Log, signals: list[int]) -> None:
        """Take the steps on the memory alone that are due. ended: tasks whose images all passed."""
        done = self.learner.progress.batches
        due = self.pace.settings.rehearsals(self.pace.images, ended)
        for _ in range(self.learner.progress.rehearsed, due):
            start = time.perf_counter()
            losses = self.pace.rehearse()
            self.train_seconds += time.perf_counter() - start
            if not losses:
                break
            self.watcher.step(done, index, losses)
            self._save_or_stop(log, signals)

    def _save_or_stop(self, log: Log, signals: list[int]) -> None:
        """Between two steps: save now and then, and before a stop that was asked for."""
        if self.lease.doubtful:
            self._hold()
        if signals or time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self._save(log)
            self.saved_at = time.monotonic()
        if signals:
            raise Stopped

    def _end_task(self, index: int, log: Log) -> None:
        if self.stream.info.boundaries:
            self.learner.end_task()
        start = time.perf_counter()
        said = self.scores.add(self.learner, self.stream.test_sets[: index + 1])
        self.probes.ask_at_end(self.learner.progress.batches, index, said)
        self.eval_seconds += time.perf_counter() - start
        counts = torch.zeros(self.stream.info.num_classes, dtype=torch.int64)
        if len(self.learner.memory):
            labels = self.learner.memory["y"].cpu()
            counts = torch.bincount(labels, minlength=self.stream.info.num_classes)
        self.memory_classes.append(counts.tolist())
        self._write_accuracy()
        summary = self._write_results("running")
        self._save(log)
        self.watcher.task(index, summary)

    def _write_accuracy(self) -> None:
        self._hold()
        classes = self.stream.info.num_classes // len(self.stream.tasks)
        sizes = self.stream.task_sizes if isinstance(self.stream, DatasetStream) else ()
        differ = sizes if len({*sizes}) > 1 else ()
        matrices = self.scores.to_lists()
        self.folder.write_accuracy(self.stream.class_names, classes, matrices, differ)

    @cached_property
    def _flops(self) -> int:
        """Of a forward pass of one image."""
        shape = self.stream.test_sets[0].x.shape[1:]
        return forward_flops(self.learner.peers[0].model.net, shape)

    def _tell(self, text: str) -> None:
        self.watcher.note(f"{label(self.config)}: {text}")

    def _write_results(self, status: str) -> dict[str, Any]:
        self._hold()
        cost = self.learner.cost
        seen = max(self.pace.images, 1)
        scores = self.scores.summary()
        self.peak = max(self.peak, peak_memory())
        return self.folder.write_summary(
            self.config,
            status,
            **{**scores, "metrics": {**scores["metrics"], **self.curve.summary()}},
            along=self.curve.how,
            cost={
                "forward_per_image": cost["forward_images"] / seen,
                "backward_per_image": cost["backward_images"] / seen,
                "train_seconds": self.train_seconds,
                "eval_seconds": self.eval_seconds,
                "peak_bytes": self.peak or None,  # not known on every system
                "kept_bytes": self.learner.kept_bytes,
                "flops": self._flops * (cost["forward_images"] + 2 * cost["backward_images"]),
                "relative": self.pace.relative,
                "updates_per_image": self.pace.updates_per_image,
                "image_flops": self._flops,
            },
            memory_classes=self.memory_classes,
        )

    def _hold(self) -> None:
        """Leave the folder alone if it is another process's by now; asked before every write."""
        for left in reversed(range(HOLD_TRIES)):
            try:
                held = self.lease.held()
                break
            except OSError as error:  # a network that is away for a moment
                if not left:
                    raise self.folder.unwritable("", error) from error
                time.sleep(1.0)
        if not held:
            raise TakenOverError(
                f"{self.folder.path}: another process has taken this run over while this one gave "
                "no sign of life; nothing is lost, the same command waits for it"
            )

    def _save(self, log: Log) -> None:
        """Save the learner together with all that this run has found so far."""
        self._hold()
        extra = {
            "scores": self.scores.to_lists(),
            "memory_classes": self.memory_classes,
            "seconds": [self.train_seconds, self.eval_seconds],
            "peak": self.peak,
            "log_bytes": log.flush(),
            "probe_bytes": self.probes.flush(),
            "curve": self.curve.state(),
            "pace": self.pace.state(),
        }
        self.learner.save(self.folder.checkpoint, extra)

    def _restore(self) -> None:
        """Go back to the last checkpoint, if there is one, and forget what was logged after it."""
        saved = self._saved()
        if saved is not None:
            self.scores.restore(saved.scores)
            self.memory_classes = [list(row) for row in saved.memory_classes]
            self.train_seconds, self.eval_seconds = saved.seconds
            self.peak = saved.peak
            self.pace.restore(saved.pace)
        self.folder.truncate_log(saved.log_bytes if saved else 0)
        self.probes.restore(saved.probe_bytes if saved else 0)
        if saved is not None and saved.curve is not None:
            points = points_in(read_probes(self.folder.path, most=MOST_BYTES))
            if len(points) != saved.curve.points:
                what = f"{len(points)} of {saved.curve.points} points are there"
                raise damaged(self.folder.probes, what)
            self.curve.restore(saved.curve, points)

    def _saved(self) -> Saved | None:
        """What the checkpoint holds beside the learner, who is loaded; None if there is none."""
        if not self.folder.has_checkpoint:
            return None
        extra = self.learner.load(self.folder.checkpoint)
        saved = checked(self.folder.checkpoint / "state.json", Saved, extra)
        self._refuse_misfits(saved)
        return saved

    def _refuse_misfits(self, saved: Saved) -> None:
        """Refuse what may be in a checkpoint, but not of this run at this moment."""
        matrices, lengths = saved.scores, [len(task) for task in self.stream.tasks]
        rows, batches = len(matrices.ensemble), self.learner.progress.batches
        others = [*matrices.peers, *matrices.answers.values(), *filter(None, [matrices.ncm])]
        classes = self.stream.info.num_classes
        fits = {
            "scores": rows <= len(lengths)
            and len(matrices.peers) == len(self.scores.peers)
            and matrices.answers.keys() == self.scores.answers.keys()
            and all(len(matrix) in (0, rows) for matrix in others)
            and sum(lengths[:rows]) <= batches <= sum(lengths[: rows + 1]),
            "memory_classes": len(saved.memory_classes) == rows
            and all(len(row) == classes for row in saved.memory_classes),
            "curve": saved.curve is None or max(saved.curve.met, default=0) < classes,
        }
        for name in (name for name, fit in fits.items() if not fit):
            what = f"{name} do not fit a run that has learnt {batches} of {sum(lengths)} batches"
            raise damaged(self.folder.checkpoint / "state.json", what)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM wait for the step to end: the list holds those that came."""
    signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if signals and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait
        signals.append(number)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        yield signals
        return
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
