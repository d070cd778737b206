"""A run's folder can be trusted, whatever happened on the way."""

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml
from command import VARIANT, command, folder, run_small, run_small_and_exit

from peerlearn.experiment import run as running
from peerlearn.learner import checkpoint
from peerlearn.memory import MEMORIES
from peerlearn.nets.flops import forward_flops
from peerlearn.nets.resnet import ResNet18

SHAPE = (3, 32, 32)

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["peerlearn.experiment.run", "peerlearn.learner.build"])


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    assert run_small(out) == 0
    return out


class TestTheFolder:
    def test_it_holds_what_the_design_says(self, unbroken: Path) -> None:
        names = {path.name for path in folder(unbroken).iterdir()}
        assert names - {".lease.1.free"} == {
            *("config.yaml", "environment.json", "accuracy.json", "summary.json"),
            *("steps.jsonl", "checkpoint"),
        }

    def test_the_settings_are_there_with_their_origins(self, unbroken: Path) -> None:
        config = yaml.safe_load((folder(unbroken) / "config.yaml").read_text())
        assert config["settings"]["collaboration"]["distill_weight"] == 1
        assert config["origins"]["net.width"] == "flag"
        assert config["origins"]["collaboration.distill_weight"] == "preset"
        assert config["variant"] == {"train_per_class": 10, "test_per_class": 5, "width": 1}

    def test_matrices_have_nothing_above_the_diagonal(self, unbroken: Path) -> None:
        found = json.loads((folder(unbroken) / "accuracy.json").read_text())
        assert len(found["peers"]) == 2
        for matrix in (found["ensemble"], found["ncm"], *found["peers"]):
            assert len(matrix) == 5
            for i, row in enumerate(matrix):
                assert all((value is None) == (j > i) for j, value in enumerate(row))

    def test_the_summary_agrees_with_the_matrix_and_states_the_cost(self, unbroken: Path) -> None:
        summary = json.loads((folder(unbroken) / "summary.json").read_text())
        last = json.loads((folder(unbroken) / "accuracy.json").read_text())["ensemble"][-1]
        assert summary["status"] == "done"
        assert summary["AA"] == pytest.approx(sum(last) / 5)
        assert {"LA", "FM", "RF", "BWT", "AIA", "peers", "ncm"} <= summary.keys()
        cost = summary["cost"]
        assert 10 < cost["forward_per_image"] < 40
        assert cost["train_seconds"] > 0
        assert cost["peak_bytes"] > 1e6
        assert cost["kept_bytes"]["images"] == 20 * 3 * 32 * 32
        passes = 100 * (cost["forward_per_image"] + 2 * cost["backward_per_image"])
        each = forward_flops(ResNet18(10, width=1), SHAPE)
        assert cost["flops"] == pytest.approx(passes * each)
        assert sum(summary["memory_classes"][-1]) == 20

    def test_steps_are_logged_with_their_losses(self, unbroken: Path) -> None:
        lines = (folder(unbroken) / "steps.jsonl").read_text().splitlines()
        step = json.loads(lines[-1])
        assert step["batch"] == 10
        assert step["losses"].keys() == {"base", "labels", "distill"}


class TestASecondCall:
    def test_reuses_a_finished_run(
        self, unbroken: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = (folder(unbroken) / "summary.json").stat().st_mtime_ns
        assert run_small(unbroken) == 0
        assert "was done before" in capsys.readouterr().err
        assert (folder(unbroken) / "summary.json").stat().st_mtime_ns == before

    def test_with_other_settings_is_another_run_beside_it(self, unbroken: Path) -> None:
        before = (folder(unbroken) / "accuracy.json").read_bytes()
        assert run_small(unbroken, "--lr", "0.01") == 0
        other = folder(unbroken, variant=f"{VARIANT},lr=0.01") / "summary.json"
        assert json.loads(other.read_text())["variant"]["lr"] == 0.01
        assert (folder(unbroken) / "accuracy.json").read_bytes() == before

    def test_with_the_presets_own_value_is_the_same_run(
        self, unbroken: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_small(unbroken, "--lr", "0.0005", "--optim.beta2", "0.999") == 0
        assert "was done before" in capsys.readouterr().err

    def test_prints_the_same_json_as_the_first(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        printed = []
        for _ in range(2):
            assert run_small(tmp_path, "--json", method="er") == 0
            printed.append(json.loads(capsys.readouterr().out))
        assert printed[0] == printed[1]

    def test_finds_the_run_of_a_version_that_had_fewer_settings(
        self, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(unbroken, tmp_path / "copy")
        config = folder(tmp_path / "copy") / "config.yaml"
        config.write_text(re.sub(" +(unseen|beta1): .*\n", "", config.read_text()))
        assert run_small(tmp_path / "copy") == 0
        assert "was done before" in capsys.readouterr().err
        assert run_small(tmp_path / "copy", "--beta1", "0.8") == 0
        assert "was done before" not in capsys.readouterr().err

    def test_by_the_record_of_the_first_is_the_same_run(
        self, unbroken: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = str(folder(unbroken) / "config.yaml")
        assert command("run", "--config", config, "--out", str(unbroken)) == 0
        assert "was done before" in capsys.readouterr().err

    def test_after_a_preset_has_changed_is_refused_and_nobody_is_told_to_delete(
        self, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(unbroken, tmp_path / "copy")
        config = folder(tmp_path / "copy") / "config.yaml"
        config.write_text(config.read_text().replace("lr: 0.0005", "lr: 0.002"))
        assert run_small(tmp_path / "copy") == 2
        said = capsys.readouterr().err
        assert "optim.lr 0.002 there, 0.0005 here" in said
        assert "remove" not in said
        assert "delete" not in said

    def test_on_other_images_is_refused(
        self, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(unbroken, tmp_path / "copy")
        config = folder(tmp_path / "copy") / "config.yaml"
        config.write_text(re.sub("fingerprint: .*", "fingerprint: other", config.read_text()))
        (config.parent / "summary.json").unlink()
        assert run_small(tmp_path / "copy") == 2
        assert "a run on other images of mini" in capsys.readouterr().err


class TestABrokenRun:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_stops_after_the_step_says_how_to_go_on_and_goes_on(
        self,
        number: int,
        unbroken: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        learn, steps = running.OnlineLearner.learn, []

        def interrupted(learner, x, y, **how):  # type: ignore[no-untyped-def]
            steps.append(1)
            if len(steps) == 4:
                os.kill(os.getpid(), number)
            return learn(learner, x, y, **how)

        monkeypatch.setattr(running.OnlineLearner, "learn", interrupted)
        assert run_small(tmp_path) == 130
        assert "the same command goes on" in capsys.readouterr().err
        assert len(steps) == 4
        monkeypatch.undo()
        assert run_small(tmp_path) == 0
        assert "goes on after batch 4 of 10" in capsys.readouterr().err
        self.check_equal(unbroken, tmp_path)

    def test_asked_to_stop_while_evaluating_does_not_begin_the_next_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add = running.Scores.add

        def interrupted(scores, learner, tests):  # type: ignore[no-untyped-def]
            if len(tests) == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            add(scores, learner, tests)

        monkeypatch.setattr(running.Scores, "add", interrupted)
        assert run_small(tmp_path, method="er er_ace") == 130
        assert json.loads((folder(tmp_path, "er") / "summary.json").read_text())["status"] == "done"
        assert not folder(tmp_path, "er_ace").exists()

    @pytest.mark.slow
    def test_killed_at_random_moments_ends_with_the_same_bytes(
        self, unbroken: Path, tmp_path: Path
    ) -> None:
        start = time.monotonic()
        self.in_process(tmp_path / "timed", None)
        whole = time.monotonic() - start
        moments = random.Random(0)
        killed = 0
        for number in range(5):
            out = tmp_path / str(number)
            killed += self.in_process(out, moments.uniform(0, whole)) != 0
            assert self.in_process(out, None) == 0
            self.check_equal(unbroken, out)
        assert killed >= 2

    def in_process(self, out: Path, kill_after: float | None) -> int | None:
        process = PROCESSES.Process(target=run_small_and_exit, args=(out, "er_ace+ccldc"))
        process.start()
        process.join(kill_after)
        if kill_after is not None:
            process.kill()
        process.join()
        return process.exitcode

    def test_out_of_space_at_a_checkpoint_loses_nothing(
        self,
        unbroken: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        write, calls = checkpoint.write_file, []

        def full(path, content):  # type: ignore[no-untyped-def]
            calls.append(1)
            if len(calls) == 6:
                Path(path).write_bytes(b"half a checkpoint")
                raise OSError(28, "No space left on device")
            write(path, content)

        monkeypatch.setattr(checkpoint, "write_file", full)
        assert run_small(tmp_path) == 2
        assert "No space left on device" in capsys.readouterr().err
        summary = json.loads((folder(tmp_path) / "summary.json").read_text())
        assert summary["status"] == "failed"
        monkeypatch.undo()
        assert run_small(tmp_path) == 0
        assert "goes on after batch" in capsys.readouterr().err
        self.check_equal(unbroken, tmp_path)

    def check_equal(self, one: Path, two: Path) -> None:
        for name in ("accuracy.json", "config.yaml"):
            assert (folder(one) / name).read_bytes() == (folder(two) / name).read_bytes()
        logs = [(folder(out) / "steps.jsonl").read_text().splitlines() for out in (one, two)]
        steps = [[json.loads(line) | {"seconds": 0} for line in log] for log in logs]
        assert steps[0] == steps[1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["er", "derpp", "ocm+ccldc", "gsa+sdc", "onpro+ccl"])
def test_every_kind_of_method_can_be_run(method: str, tmp_path: Path) -> None:
    assert run_small(tmp_path, "--test-per-class", "2", "--net", "small", method=method) == 0


def test_a_blurry_stream_runs_without_boundaries(tmp_path: Path) -> None:
    assert run_small(tmp_path, "--blur", "0.2", method="er+ccldc") == 0


def test_a_method_that_needs_boundaries_refuses_a_blurry_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_small(tmp_path / "new", "--blur", "0.2", method="gsa") == 2
    assert "hides where tasks end" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_what_cannot_work_is_refused_before_the_other_runs_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_small(tmp_path / "new", "--blur", "0.2", method="er gsa") == 2
    assert "--blur: hides where tasks end, and gsa must be told" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_memory_that_stays_empty_has_no_nearest_means(tmp_path: Path) -> None:
    (tmp_path / "never.py").write_text(
        "from peerlearn.memory import Memory\n"
        'class Never(Memory):\n    name = "never"\n'
        "    def slots(self, rows, rng):\n"
        '        return [self.capacity] * len(rows["y"])\n'
    )
    plugin = ("--plugin", str(tmp_path / "never.py"), "--memory-policy", "never")
    with MEMORIES.unchanged():
        assert run_small(tmp_path, *plugin, method="er_ace") == 0
    (found,) = tmp_path.rglob("accuracy.json")
    assert json.loads(found.read_text())["ncm"] is None


def test_several_methods_and_seeds_make_a_table_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "runs")
    assert run_small(tmp_path / "runs", "--seeds", "0-1", method="er er+ccldc") == 0
    capsys.readouterr()
    assert command("table", out, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["n"]) for row in rows] == [("er", 2), ("er+ccldc", 2)]
    assert rows[1]["gain"]["n"] == 2
    assert {"AA", "LA", "FM", "RF", "cost"} <= rows[0].keys()
    assert command("report", out, "--out", str(tmp_path / "page.html")) == 0
    assert "er+ccldc" in (tmp_path / "page.html").read_text()
