"""The runs that an analysis looks at, with their streams and their learners as they ended."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from peerlearn.augment import ViewChain
from peerlearn.errors import UserError
from peerlearn.experiment.config_file import read_file
from peerlearn.experiment.images import Loader
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.run import make_learner
from peerlearn.learner.online import OnlineLearner
from peerlearn.records.analysis import AnyPanel
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import RunRecord
from peerlearn.stream.dataset import DatasetStream


class Found(NamedTuple):
    """What an analysis has found: single numbers and words by name, and pictures."""

    facts: dict[str, Any]
    panels: Sequence[AnyPanel]


class Row(NamedTuple):
    """Finished runs that differ in nothing but the seed, and how people call them."""

    name: str
    runs: Sequence[RunRecord]  # the lowest seed first


@dataclass(frozen=True)
class Trained:
    """A run whose settings and images are at hand again; its learner is built when asked for."""

    name: str
    record: RunRecord
    resolved: Resolved
    stream: DatasetStream

    @cached_property
    def learner(self) -> OnlineLearner:
        """As it was at the end of the run."""
        learner = make_learner(self.resolved, self.stream)
        learner.load(RunFolder(self.record.folder).checkpoint)
        return learner

    @property
    def epochs(self) -> int:
        """Passes over each task."""
        return self.resolved.stream.epochs

    @property
    def chain(self) -> ViewChain:
        """Its own chain; for one that has none, the one that CCL-DC has on its data."""
        own = self.resolved.config.distillation().chain
        if own.stages:
            return own
        data = Given("data", self.resolved.values["data"], "file", "config.yaml")
        usual = resolve("er+ccldc", [data])
        return usual.config.distillation().chain


@dataclass
class Runs:
    """Of each row one finished run: with the lowest seed, or with a given one.

    What is known once the runs have been asked for:
    seen: runs that were looked at, in words. left_out: what is missing of some rows.
    """

    rows: Sequence[Row]
    seed: int | None = None
    root: Path | None = None  # where data sets lie, if not in the usual places
    seen: dict[Path, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _load(self) -> Loader:
        return Loader(self.root)

    def chosen(
        self, fits: Callable[[RunRecord], bool], lacks: str, remedy: Callable[[RunRecord], str]
    ) -> list[tuple[str, RunRecord]]:
        """Of each row the first run that fits, with the name of the row; at least one in all.

        lacks: what a row without such a run has not. remedy: how to get it for a run.
        """
        found = []
        for row in self.rows:
            runs = [run for run in row.runs if self.seed in (None, run.seed)]
            fit = next((run for run in runs if fits(run)), None)
            if fit is not None:
                found.append((row.name, fit))
                self.saw(fit)
            elif runs:
                self.left_out[row.name] = f"{lacks}; {remedy(runs[0])}"
            else:
                self.left_out[row.name] = f"no finished run has seed {self.seed}"
        if not found:
            name, why = next(iter(self.left_out.items()))
            raise UserError(f"{name}: {why}")
        return found

    def saw(self, run: RunRecord) -> None:
        """Note that a run has been looked at."""
        words = f"{run.method:.100}, {run.data:.60}, memory {run.memory}, seed {run.seed}"
        self.seen[run.folder] = words

    def finished(self) -> Iterator[Trained]:
        """One run of each row, whether its checkpoint is still there or not."""
        for name, record in self.chosen(lambda _: True, "", lambda _: ""):
            yield self._trained(name, record)

    def trained(self) -> Iterator[Trained]:
        """One run of each row that still has its checkpoint; one at a time is held in memory."""

        def has_checkpoint(run: RunRecord) -> bool:
            return RunFolder(run.folder).has_checkpoint

        lacks = "no run has its checkpoint any more"
        for name, record in self.chosen(has_checkpoint, lacks, again):
            yield self._trained(name, record)

    def _trained(self, name: str, record: RunRecord) -> Trained:
        given = read_file(record.folder / "config.yaml")
        given.append(Given("machine.compile", False, "flag", "analyse"))
        if not torch.cuda.is_available():
            given.append(Given("machine.device", "cpu", "flag", "analyse"))
        resolved = resolve(record.method, given)
        images = self._load(resolved, lambda *_: None)
        if not images.are_those_of(record.config.fingerprint):
            raise UserError(
                f"{record.folder}: was made on other images of {record.data} than are found now; "
                "name their folder as --root"
            )
        stream = resolved.stream.stream(images.data, resolved.seed)
        assert isinstance(stream, DatasetStream)
        return Trained(name, record, resolved, stream)


def again(run: RunRecord, flags: str = "") -> str:
    """The command that makes a run anew, beside what is there."""
    config = shlex.quote(str(run.folder / "config.yaml"))
    return f"make it with: peerlearn run --config {config}{flags} --out ANOTHER_FOLDER"


def need_logits(run: Trained) -> None:
    """Refuse what has none."""
    if not run.resolved.config.method.gives_logits:
        raise UserError(f"{run.name}: {run.record.method} has no logits to look at; leave it out")
