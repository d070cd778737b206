"""How a run uses the processor: what is asked for, what is measured, what a resumed run keeps."""

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command import command, folder, run_small
from conftest import Build
from torch import nn

from peerlearn import OnlineLearner, WithHead
from peerlearn.experiment import machine, run
from peerlearn.experiment.machine import Choice, Threads, choose_threads, recorded, shared_out, ways
from peerlearn.experiment.settings import MachineSettings

SHAPE = (3, 8, 8)
ONE, SIDE_BY_SIDE, IN_TURN = Threads(1, 1), Threads(1, 2), Threads(2, 1)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_threads", lambda: 2)


class TestWhatIsAskedFor:
    @pytest.mark.parametrize(
        ("threads", "peer_threads", "peers", "found"),
        [
            (0, 0, 2, None),
            (1, 0, 2, ONE),
            (2, 0, 2, SIDE_BY_SIDE),
            (2, 0, 1, IN_TURN),
            (5, 0, 2, Threads(2, 2)),
            (0, 1, 2, SIDE_BY_SIDE),
            (0, 2, 2, IN_TURN),
            (0, 4, 2, Threads(4, 1)),  # more than there are cores: as asked for
            (4, 4, 2, Threads(4, 1)),
            (8, 2, 3, Threads(2, 3)),
            (8, 1, 4, Threads(1, 4)),
        ],
    )
    def test_is_done(
        self, threads: int, peer_threads: int, peers: int, found: Threads | None
    ) -> None:
        assert shared_out(threads, peer_threads, peers) == found

    def test_and_nothing_is_measured(
        self, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(machine, "_measured", pytest.fail)
        learner = build("er+ccldc", peers_at_once=2)
        choice = choose_threads(learner, SHAPE, 8, MachineSettings(threads=2))
        assert choice.threads == SIDE_BY_SIDE

    def test_must_fit_together(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        words = ("run", "er", "--threads", "2", "--peer-threads", "3", "--out", str(tmp_path / "r"))
        assert command(*words) == 2
        assert "more than threads" in capsys.readouterr().err
        assert not (tmp_path / "r").exists()


def measured(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Let passes seem to take as long as is said of a number of threads: t1=0.5, t2=1.0."""
    clock = [0.0]
    monkeypatch.setattr(machine.time, "perf_counter", lambda: clock[0])

    def take(*_: Any) -> None:
        clock[0] += seconds[f"t{torch.get_num_threads()}"]

    monkeypatch.setattr(machine, "_pass", take)


class TestWhatIsMeasured:
    def test_all_ways_are_tried(self) -> None:
        assert ways(2, peers=1) == [ONE, IN_TURN]
        assert ways(2, peers=2) == [SIDE_BY_SIDE, IN_TURN]
        assert ways(6, peers=2) == [Threads(1, 2), Threads(3, 2), Threads(6, 1)]
        assert ways(1, peers=2) == [ONE]

    @pytest.mark.parametrize(
        ("times", "chosen"),
        [
            ({"t1": 1.0, "t2": 0.6}, IN_TURN),
            ({"t1": 1.0, "t2": 1.3}, ONE),
            ({"t1": 1.04, "t2": 1.0}, ONE),  # about as fast, and less in the way of others
            ({"t1": 1.0, "t2": 50.0}, ONE),
        ],
    )
    def test_the_fastest_is_taken(
        self,
        times: dict[str, float],
        chosen: Threads,
        build: Build,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        measured(monkeypatch, **times)
        choice = choose_threads(build("er"), SHAPE, 8, MachineSettings())
        assert choice.threads == chosen
        assert choice.seconds == pytest.approx({ONE: times["t1"], IN_TURN: times["t2"]})

    def test_the_reason_is_told(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        measured(monkeypatch, t1=1.0, t2=1.35)
        choice = choose_threads(build("er"), SHAPE, 8, MachineSettings())
        assert str(choice) == (
            "1 thread (2 threads: 1.35 times as long); the same again with --threads 1 "
            "--peer-threads 1"
        )

    def test_what_is_hopeless_is_tried_once(
        self, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measured(monkeypatch, t1=1.0, t2=50.0)
        tried: list[int] = []
        take = machine._pass
        monkeypatch.setattr(
            machine, "_pass", lambda *_: (tried.append(torch.get_num_threads()), take(*_))
        )
        choose_threads(build("er"), SHAPE, 8, MachineSettings())
        assert tried.count(2) == 1
        assert tried.count(1) > 2

    def test_graphs_that_do_not_fit_into_memory_are_not_held_at_once(
        self, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        peaks = iter([10_000, 110_000])  # a graph of 100 kB, four views of it
        monkeypatch.setattr(machine, "peak_memory", lambda: next(peaks))
        monkeypatch.setattr(machine, "free_memory", lambda: 799_000)
        choice = choose_threads(build("er+ccldc", peers_at_once=2), SHAPE, 8, MachineSettings())
        assert choice.threads == IN_TURN
        assert "memory" in choice.why

    def test_a_method_says_how_much_more_its_graphs_hold(
        self, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, chosen in {"er+ccl": SIDE_BY_SIDE, "ocm+ccl": IN_TURN}.items():
            peaks = iter([10_000, 110_000])  # a graph of 100 kB
            monkeypatch.setattr(machine, "peak_memory", lambda peaks=peaks: next(peaks))
            monkeypatch.setattr(machine, "free_memory", lambda: 1_000_000)
            measured(monkeypatch, t1=1.0, t2=50.0)
            learner = build(name, peers_at_once=2)
            assert choose_threads(learner, SHAPE, 8, MachineSettings()).threads == chosen

    def test_peers_that_must_take_turns_are_not_measured_side_by_side(self, build: Build) -> None:
        def draws() -> nn.Module:
            encoder = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 64, 8))
            return WithHead(encoder, 8, 4)

        norm = nn.BatchNorm2d(3)

        def shares() -> nn.Module:
            encoder = nn.Sequential(norm, nn.Flatten(), nn.Linear(3 * 64, 8))
            return WithHead(encoder, 8, 4)

        for net in (draws, shares):
            learner = build("er+ccldc", net=net, peers_at_once=2)
            choice = choose_threads(learner, SHAPE, 8, MachineSettings())
            assert {way.at_once for way in choice.seconds} == {1}

    @pytest.mark.parametrize("name", ["er", "er+ccldc"])
    def test_for_real_and_all_is_left_as_it_was(self, name: str, build: Build) -> None:
        before = torch.get_num_threads(), torch.default_generator.get_state()
        choice = choose_threads(build(name, peers_at_once=2), SHAPE, 8, MachineSettings())
        assert choice.threads in choice.seconds
        assert torch.get_num_threads() == before[0]
        assert torch.default_generator.get_state().equal(before[1])


def settings_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder(out) / "config.yaml").read_text())
    return found["settings"]["machine"]  # type: ignore[no-any-return]


def run_freely(out: Path, *words: str) -> int:
    """A small run without `--threads`."""
    from command import SMALL

    return command("run", "er_ace+ccldc", *SMALL, "--out", str(out), *words)


def begun(out: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """A run that is stopped before its first batch."""

    def stops(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run._Run, "_learn_task", stops)
        assert run_freely(out, *words) == 130


def forget(out: Path, word: str) -> None:
    """Take all lines with a word out of a run's record."""
    record = folder(out) / "config.yaml"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if word not in line))


def resumed(out: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Threads:
    """How the run would compute when it goes on."""
    computed: list[Threads] = []

    def noted(self: Any, *_: Any) -> None:
        computed.append(Threads(torch.get_num_threads(), self.learner.pool.count))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run._Run, "_learn_task", noted)
        assert run_freely(out, *words) == 130
    return computed[0]


class TestARun:
    @pytest.fixture(autouse=True)
    def _threads_as_before(self) -> Any:
        before = torch.get_num_threads()
        yield
        torch.set_num_threads(before)

    @pytest.mark.parametrize("chosen", [SIDE_BY_SIDE, ONE])
    def test_records_what_was_chosen_and_says_why(
        self,
        chosen: Threads,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        choice = Choice(chosen, "the moon is full", {chosen: 1.0})
        monkeypatch.setattr(run, "choose_threads", lambda *_: choice)
        assert run_freely(tmp_path) == 0
        assert f"seed 0: {chosen} (the moon is full)" in capsys.readouterr().err
        found = settings_of(tmp_path)
        assert (found["threads"], found["peer_threads"]) == (chosen.total, chosen.each)
        environment = json.loads((folder(tmp_path) / "environment.json").read_text())
        assert (environment["threads"], environment["peer_threads"]) == (chosen.total, chosen.each)

    def test_ends_with_the_same_bytes_side_by_side(self, tmp_path: Path) -> None:
        assert run_small(tmp_path / "turns") == 0
        assert run_freely(tmp_path / "both", "--threads", "2") == 0
        turns, both = (
            {name: (folder(tmp_path / out) / name).read_bytes() for name in ("accuracy.json",)}
            for out in ("turns", "both")
        )
        assert turns == both
        assert settings_of(tmp_path / "both")["peer_threads"] == 1

    def test_that_is_resumed_keeps_its_choice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        choice = Choice(IN_TURN, "so", {IN_TURN: 1.0})
        monkeypatch.setattr(run, "choose_threads", lambda *_: choice)
        begun(tmp_path, monkeypatch)
        monkeypatch.setattr(run, "choose_threads", pytest.fail)
        assert resumed(tmp_path, monkeypatch) == IN_TURN

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            ((), IN_TURN),
            (("--threads", "1"), ONE),  # what is given now counts, though bits may differ
            (("--peer-threads", "1"), SIDE_BY_SIDE),
            (("--peer-threads", "3"), Threads(3, 1)),
        ],
    )
    def test_from_before_peers_had_threads_of_their_own(
        self,
        words: tuple[str, ...],
        found: Threads,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        begun(tmp_path, monkeypatch, "--threads", "2")
        forget(tmp_path, "peer_threads")
        assert resumed(tmp_path, monkeypatch, *words) == found

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (("--threads", "0"), ONE),  # nobody's choice: as it began
            (("--peer-threads", "0"), ONE),
            (("--threads", "2"), SIDE_BY_SIDE),
            (("--peer-threads", "2"), IN_TURN),
            (("--threads", "2", "--peer-threads", "2"), IN_TURN),
        ],
    )
    def test_that_is_resumed_takes_what_is_given_now(
        self,
        words: tuple[str, ...],
        found: Threads,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        begun(tmp_path, monkeypatch, "--threads", "1")
        assert resumed(tmp_path, monkeypatch, *words) == found

    def test_whose_record_says_nothing_of_threads_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun(tmp_path, monkeypatch, "--threads", "1")
        forget(tmp_path, "threads")
        assert resumed(tmp_path, monkeypatch) == IN_TURN

    def test_is_measured_with_as_many_images_as_its_steps_have(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows: list[int] = []

        def noted(_: Any, __: Any, count: int, ___: Any) -> Choice:
            rows.append(count)
            return Choice(ONE, "so")

        monkeypatch.setattr(run, "choose_threads", noted)
        assert run_freely(tmp_path, "--batch", "100000", "--replay-batch", "50000") == 0
        assert rows == [40]  # a task of two classes of ten images, and a memory of twenty

    def test_holds_one_learner_at_a_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[weakref.ref[OnlineLearner]] = []
        alive: list[int] = []
        make, learn = run.make_learner, run._Run._learn_task

        def noted(*words: Any) -> OnlineLearner:
            learner = make(*words)
            made.append(weakref.ref(learner))
            return learner

        def counted(self: Any, *words: Any) -> None:
            alive.append(sum(ref() is not None for ref in made))
            learn(self, *words)

        monkeypatch.setattr(run, "make_learner", noted)
        monkeypatch.setattr(run._Run, "_learn_task", counted)
        assert run_freely(tmp_path) == 0
        assert len(made) == 3  # one to see that it can be, one to try threads with, and the run's
        assert set(alive) == {1}

    def test_never_has_more_peers_at_once_than_cores(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = {"machine.threads": 8, "machine.peer_threads": 2}
        monkeypatch.setattr(machine, "available_threads", lambda: 8)
        assert recorded(settings, peers=4) == Threads(2, 4)
        monkeypatch.setattr(machine, "available_threads", lambda: 4)
        assert recorded(settings, peers=4) == Threads(2, 2)
        monkeypatch.setattr(machine, "available_threads", lambda: 1)
        assert recorded(settings, peers=4) == Threads(2, 1)
