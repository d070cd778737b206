"""Real time and a budget: which batches are learnt."""

import json
from pathlib import Path

import pytest
import torch
from command import command, run_small
from conftest import Build

from peerlearn import ClassStream, OnlineLearner
from peerlearn.errors import UserError
from peerlearn.experiment.pace import Pace
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.settings import RunSettings
from peerlearn.records.read import read_run
from peerlearn.records.schema import SavedPace
from peerlearn.stream.base import Batch

COUNTED = ("steps", "step_at", "reference", "passed_by", "clock", "dearest", "spent")
FLOPS = 1000  # of a forward pass, as the tests count


def paced(learner: OnlineLearner, **settings: object) -> tuple[Pace, list[str]]:
    told: list[str] = []
    return Pace(learner, RunSettings(**settings), lambda: FLOPS, told.append), told  # type: ignore[arg-type]


class Costly:
    """Stands for a learner whose steps take what the test says."""

    def __init__(self, learner: OnlineLearner, k: float) -> None:
        self.k = k
        self.learnt: list[int] = []
        self.method, self.memory, self.progress = learner.method, learner.memory, learner.progress
        self.updates, self.forward = 1, 0

    @property
    def cost(self) -> dict[str, int]:
        return {"stream_images": 0, "forward_images": self.forward, "backward_images": 0}

    def learn(self, *batch: torch.Tensor, remember: bool) -> dict[str, float]:
        assert remember
        self.learnt.append(self.progress.batches)
        self.forward += round(self.k * 3 * len(batch[1]))  # nothing is in memory
        self.progress = self.progress.after_batch({})
        return {"base": 1.0}

    def skip(self, *_: torch.Tensor, remember: bool) -> None:
        assert not remember
        self.progress = self.progress.after_skip()


@pytest.mark.parametrize(
    ("k", "learnt"),
    [
        (0.5, [*range(12)]),
        (1, [*range(12)]),
        (2, [0, 2, 4, 6, 8, 10]),
        (2.3, [0, 3, 5, 7, 10]),  # free at 2.3, 4.6, 6.9, 9.2, 11.5
        (10, [0, 10]),
    ],
)
def test_who_takes_k_steps_for_one_learns_every_kth_batch(
    build: Build, stream: ClassStream, k: float, learnt: list[int]
) -> None:
    batch = next(iter(stream.tasks[0]))
    learner = Costly(build("er", memory=0), k)
    pace, told = paced(learner, realtime=True)  # type: ignore[arg-type]
    losses = [pace.learn(batch) for _ in range(12)]
    assert learner.learnt == learnt
    assert [bool(loss) for loss in losses] == [i in learnt for i in range(12)]
    assert len(told) == (k > 1)
    assert pace.relative == pytest.approx(k)
    assert pace.images == 10 * (12 - len(learnt))  # nothing else counts here


def test_fractions_add_up_over_a_long_stream(build: Build, stream: ClassStream) -> None:
    batch = next(iter(stream.tasks[0]))
    learner = Costly(build("er", memory=0), 2.3)
    pace, _ = paced(learner, realtime=True)  # type: ignore[arg-type]
    for _ in range(2300):
        pace.learn(batch)
    assert len(learner.learnt) == 1000


@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("er", 1.0),
        ("er+ema", 1.0),
        ("er+mkd", 7 / 3),
        ("er+sdc", 5.0),
        ("er+ema-chain", 14 / 3),
        ("er+ccldc", 10.0),
    ],
)
def test_k_is_what_the_learner_itself_has_counted(
    build: Build, stream: ClassStream, name: str, k: float
) -> None:
    pace, _ = paced(build(name, memory=50))
    for batch in stream.tasks[0]:
        pace.learn(batch)
    assert pace.relative == pytest.approx(k)
    assert pace.updates_per_image == pytest.approx(0.09)  # the first batch has nothing to replay
    assert pace.images == 100


def test_without_time_images_are_kept_only_if_that_is_asked_for(
    build: Build, stream: ClassStream
) -> None:
    seen = {}
    for store in (False, True):
        pace, _ = paced(build("er+ccldc"), realtime=True, realtime_store=store)
        for batch in stream.tasks[0]:
            pace.learn(batch)
        seen[store] = pace.learner.memory.seen
        assert pace.images == 100
    assert seen == {False: 30, True: 100}


def test_a_budget_is_not_exceeded_and_predictions_go_on(build: Build, stream: ClassStream) -> None:
    free, _ = paced(build("er", memory=50))
    for batch in stream.tasks[0]:
        free.learn(batch)
    whole = free.learner.cost["forward_images"] * 3 * FLOPS
    pace, told = paced(build("er", memory=50), budget=whole / 2)
    for batch in stream.tasks[0]:
        pace.learn(batch)
    spent = pace.learner.cost["forward_images"] * 3 * FLOPS
    assert 0.3 * whole < spent <= whole / 2
    assert pace.spent
    assert told == ["the budget is spent; what still comes is predicted, not learnt"]
    assert pace.learner.memory.seen == 100  # what comes later is kept


def test_time_in_which_there_was_nothing_to_do_is_lost(build: Build, stream: ClassStream) -> None:
    batch = next(iter(stream.tasks[0]))
    learner = Costly(build("er", memory=0), 0)
    pace, _ = paced(learner, realtime=True)  # type: ignore[arg-type]
    for _ in range(5):
        pace.learn(batch)
    learner.k = 2
    for _ in range(6):
        pace.learn(batch)
    assert learner.learnt == [0, 1, 2, 3, 4, 5, 7, 9]


@pytest.mark.parametrize("settings", [{"realtime": True}, {"budget": 2.5e6}])
def test_its_state_is_all_of_it(
    build: Build, stream: ClassStream, tmp_path: Path, settings: dict[str, object]
) -> None:
    batches: list[Batch] = [*stream.tasks[0], *stream.tasks[0]]
    whole, _ = paced(build("er+mkd"), **settings)
    for batch in batches:
        whole.learn(batch)
    for stop in range(1, len(batches)):
        one, _ = paced(build("er+mkd"), **settings)
        for batch in batches[:stop]:
            one.learn(batch)
        one.learner.save(tmp_path)
        other, _ = paced(build("er+mkd"), **settings)
        other.learner.load(tmp_path)
        other.restore(SavedPace(**one.state()))  # type: ignore[arg-type]
        for batch in batches[stop:]:
            other.learn(batch)
        assert 0 < other.steps == whole.steps < len(batches) - 1
        assert all(getattr(other, name) == getattr(whole, name) for name in COUNTED)
    other.restore(None)  # of an earlier version
    assert (other.relative, other.updates_per_image, other.state()) == (None, None, None)


def test_a_run_in_real_time_says_what_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_small(tmp_path, "--net", "small", "--realtime", method="er+ccldc") == 0
    said = capsys.readouterr().err
    assert "the stream does not wait; batches that pass during a step are predicted" in said
    assert ", k 10.0\n" in said
    (place,) = tmp_path.rglob("seed0")
    assert "realtime=true" in str(place)
    run = read_run(place)
    assert run.cost.relative == pytest.approx(10.0)
    assert run.cost.updates_per_image == pytest.approx(0.02)  # batches 1 and 7 of ten
    assert [
        step.batch for step in run.steps
    ] == []  # a line for ten batches, of one that was learnt
    assert run.summary.along == {"window": 1000}
    assert run.metrics["prequential"] is not None
    state = json.loads((place / "checkpoint" / "state.json").read_text())
    assert state["state"]["progress.batches"] == 10


def test_what_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("run", "er", "--realtime-store") == 2
    assert "realtime_store needs realtime" in capsys.readouterr().err
    assert command("run", "er", "--budget", "0") == 2
    assert "budget must be" in capsys.readouterr().err
    given = [Given(name, True, "flag", f"--{name}") for name in ("realtime", "realtime_store")]
    with pytest.raises(UserError, match="derpp keeps logits with its images"):
        resolve("derpp", given).check()
    resolve("er", given).check()
