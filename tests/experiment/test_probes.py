"""Probes ask a run about itself, change nothing of it, and survive what it survives."""

import json
import math
import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from command import SMALL, command, folder, run_small
from conftest import Build, same, tensors
from crash.runs import Kill, Small, finish, kill_and_finish, kills_at, prepare_smallest

from peerlearn import ClassStream, toy_images
from peerlearn.errors import UserError
from peerlearn.experiment import run as running
from peerlearn.experiment.curve import Curve, sample
from peerlearn.experiment.probes import Probes, images_of
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.settings import EvaluationSettings, ProbeSettings
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import read_run, read_runs
from peerlearn.records.schema import PROBES
from peerlearn.results.compare import compare

ASKED = ("--net", "small", "--current-loss", "1", "--disagreement", "2")


def probed(out: Path, method: str = "er_ace+ccldc") -> Path:
    (found,) = (out / "mini" / method).rglob("seed0")
    return found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("asked")
    assert run_small(out, *ASKED) == 0
    return out


class TestARunThatIsAsked:
    def test_has_the_folder_the_accuracies_and_the_steps_of_one_that_is_not(
        self, asked: Path, tmp_path: Path
    ) -> None:
        assert run_small(tmp_path, "--net", "small") == 0
        one, two = probed(asked), probed(tmp_path)
        assert one.relative_to(asked) == two.relative_to(tmp_path)
        assert (one / "accuracy.json").read_bytes() == (two / "accuracy.json").read_bytes()
        logs = [(place / "steps.jsonl").read_text().splitlines() for place in (one, two)]
        steps = [[json.loads(line)["losses"] for line in log] for log in logs]
        assert steps[0] == steps[1]
        assert not (two / "probes.jsonl").exists()

    def test_is_in_the_same_row_of_a_table(self, asked: Path, tmp_path: Path) -> None:
        assert run_small(tmp_path, "--net", "small", "--seed", "1") == 0
        (group,) = compare(read_runs([asked, tmp_path]))
        (series,) = group.series
        assert series.seeds == (0, 1)

    def test_says_something_every_so_many_batches(self, asked: Path) -> None:
        lines = read_run(probed(asked)).probes
        assert [line.batch for line in lines] == [*range(1, 11)]
        assert [line.task for line in lines] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert [line.start for line in lines] == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
        assert all(line.current_loss and line.current_loss > 0 for line in lines)
        shares = [line.disagreement for line in lines]
        assert shares[::2] == [None] * 5
        assert all(0 <= share <= 1 for share in shares[1::2] if share is not None)

    def test_with_a_single_peer_has_nobody_to_differ(self, tmp_path: Path) -> None:
        assert run_small(tmp_path, *ASKED, method="er") == 0
        lines = read_run(probed(tmp_path, "er")).probes
        assert {line.disagreement for line in lines} == {None}

    def test_counts_the_time_as_evaluation(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Probes, "ask", lambda *_: time.sleep(0.3))
        assert run_small(tmp_path, *ASKED, method="er") == 0
        cost = read_run(probed(tmp_path, "er")).cost
        assert cost.eval_seconds is not None
        assert cost.train_seconds is not None
        assert cost.eval_seconds > 3.0 > cost.train_seconds

    def test_is_the_run_that_is_there_already_whatever_is_asked(
        self, asked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = (probed(asked) / "probes.jsonl").read_bytes()
        assert run_small(asked, "--net", "small", "--current-loss", "3") == 0
        assert "was done before" in capsys.readouterr().err
        assert (probed(asked) / "probes.jsonl").read_bytes() == before


class TestABrokenRun:
    def stopped(self, out: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
        """Killed after a line that no checkpoint knows of, and half of another."""
        save, calls = running.OnlineLearner.save, []

        def dies(learner, *given):  # type: ignore[no-untyped-def]
            calls.append(1)
            if len(calls) == 8:
                with (probed(out) / "probes.jsonl").open("a") as file:
                    file.write('{"batch": 99, "ta')
                raise SystemExit(9)
            save(learner, *given)

        monkeypatch.setattr(running.OnlineLearner, "save", dies)
        with pytest.raises(SystemExit):
            run_small(out, *words)
        monkeypatch.undo()

    def test_goes_on_to_the_same_bytes(
        self, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stopped(tmp_path, monkeypatch, *ASKED)
        assert run_small(tmp_path, *ASKED) == 0
        for name in ("probes.jsonl", "accuracy.json"):
            assert (probed(asked) / name).read_bytes() == (probed(tmp_path) / name).read_bytes()

    def test_keeps_its_probes_though_nobody_asks_again(
        self, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stopped(tmp_path, monkeypatch, *ASKED)
        assert run_small(tmp_path, "--net", "small") == 0
        files = [probed(out) / "probes.jsonl" for out in (asked, tmp_path)]
        assert files[0].read_bytes() == files[1].read_bytes()

    def test_that_is_asked_no_more_keeps_what_it_has_said(
        self, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stopped(tmp_path, monkeypatch, *ASKED)
        silent = ("--net", "small", "--current-loss", "0", "--disagreement", "0")
        learn, steps = running.OnlineLearner.learn, []

        def interrupted(*given, **named):  # type: ignore[no-untyped-def]
            steps.append(1)
            if len(steps) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return learn(*given, **named)

        monkeypatch.setattr(running.OnlineLearner, "learn", interrupted)
        assert run_small(tmp_path, *silent) == 130
        monkeypatch.undo()
        assert run_small(tmp_path, *silent) == 0
        kept = (probed(tmp_path) / "probes.jsonl").read_bytes()
        assert kept
        assert (probed(asked) / "probes.jsonl").read_bytes().startswith(kept)

    def test_whose_probes_lead_elsewhere_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.stopped(tmp_path, monkeypatch, *ASKED)
        (tmp_path / "precious").write_text("mine")
        (probed(tmp_path) / "probes.jsonl").unlink()
        (probed(tmp_path) / "probes.jsonl").symlink_to(tmp_path / "precious")
        assert run_small(tmp_path, *ASKED) == 2
        assert "probes.jsonl: is a link" in capsys.readouterr().err
        assert (tmp_path / "precious").read_text() == "mine"


class Probed(Small):
    """A small run that is asked after every batch."""

    @property
    def words(self) -> list[str]:
        along = ("--evaluate-every", "10", "--prequential", "15")
        return [*super().words, "--current-loss", "1", "--disagreement", "1", *along]


def test_a_run_killed_wherever_it_touches_its_probes_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    new = Kill(Probed("er+ccl", batches=2), stop=0, how="before")
    processes = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(2, processes, prepare_smallest, (["er+ccl"],)) as workers:
        unbroken = workers.submit(finish, new, tmp_path).result()
        (probes,) = unbroken.left["probes.jsonl"]
        assert probes.count(b"\n") == 6  # after each batch, and two ends of tasks
        kills = kills_at(unbroken.calls, new)
        kills = [kill for kill in kills if unbroken.calls[kill.stop - 1].endswith("probes.jsonl")]
        assert len(kills) > 20
        ends = workers.map(partial(kill_and_finish, scratch=tmp_path), kills)
        for kill, left in zip(kills, ends, strict=True):
            assert left == unbroken.left, f"{kill.how} of {unbroken.calls[kill.stop - 1]}"


class TestWhatIsAsked:
    def test_the_loss_is_that_of_a_plain_loop_over_the_current_task(
        self, build: Build, stream: ClassStream, tmp_path: Path
    ) -> None:
        learner = build("er+ccldc")
        learner.learn(*next(iter(stream.tasks[0])))
        settings = ProbeSettings(current_loss=1, disagreement=1)
        curve = Curve(EvaluationSettings(), learner, stream.test_sets, window=0)
        probes = Probes(settings, curve, learner, stream, 1, RunFolder(tmp_path))
        before, chance = tensors(learner), torch.get_rng_state()
        with probes:
            probes.ask(1, 1)
            assert probes.flush() == (tmp_path / "probes.jsonl").stat().st_size
        assert same(tensors(learner), before)
        assert torch.equal(torch.get_rng_state(), chance)
        line = json.loads((tmp_path / "probes.jsonl").read_text())
        losses = []
        for x, y in stream.tasks[1]:
            for logits, label in zip(learner.logits(x, peer=0).tolist(), y.tolist(), strict=True):
                total = math.fsum(map(math.exp, logits))
                losses.append(math.log(total) - logits[label])
        assert line["current_loss"] == pytest.approx(math.fsum(losses) / len(losses), rel=1e-6)
        said = [learner.logits(torch.cat(probes._sample), peer=k).argmax(dim=1) for k in (0, 1)]
        assert line["disagreement"] == float((said[0] != said[1]).double().mean())

    def test_images_that_pass_several_times_are_looked_at_once(self) -> None:
        stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=7, epochs=3)
        parts = [*images_of(stream.tasks[0], epochs=3)]
        assert sum(len(part.y) for part in parts) == stream.tasks[0].num_images

    def test_a_sample_has_so_many_of_each_class_and_is_the_same_again(
        self, stream: ClassStream
    ) -> None:
        test = stream.test_sets[1]
        few, again = (sample(test, 3, torch.Generator().manual_seed(0)) for _ in range(2))
        assert len(few) == 3 * len(test.y.unique())
        assert torch.equal(few.x, again.x)

    def test_a_method_without_logits_is_refused_before_it_begins(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = resolve("er", [Given("current_loss", 5, "flag", "--current-loss")])
        run.check()
        monkeypatch.setattr(run.config.method, "gives_logits", False)
        with pytest.raises(UserError, match="--current-loss: er has no logits"):
            run.check()

    def test_how_often_is_a_whole_number(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("run", "er", *SMALL, "--current-loss", "-1") == 2
        assert "--current-loss: current_loss must be at least 0" in capsys.readouterr().err


def test_probes_are_settings_that_decide_nothing() -> None:
    names = {f"probes.{name}" for name in ProbeSettings.model_fields}
    assert names == {*PROBES}
    given = [Given(name, 7, "flag", name) for name in PROBES]
    assert not resolve("er", given).variant


def test_an_unasked_run_has_no_file_of_probes(tmp_path: Path) -> None:
    assert run_small(tmp_path, method="er") == 0
    assert not (folder(tmp_path, "er") / "probes.jsonl").exists()
    assert read_run(folder(tmp_path, "er")).probes == ()
