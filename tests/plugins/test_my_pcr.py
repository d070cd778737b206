"""The method of docs/add-a-method.md, as a single file, through the command line."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from outside import TINY, outside, run  # noqa: F401

from peerlearn.cli import main
from peerlearn.experiment import run as running

BOTH = ("my_pcr", "my_pcr+ccldc")
RUNS = Path("runs")
VARIANT = "net=small,train_per_class=10,test_per_class=5,width=1"


def folder(out: Path, method: str = "my_pcr", variant: str = VARIANT) -> Path:
    return out / "mini" / method / "m20" / variant / "seed0"


def edit(old: str, new: str) -> None:
    text = Path("my_pcr.py").read_text()
    assert text.count(old) == 1
    Path("my_pcr.py").write_text(text.replace(old, new))


class TestAsAPlugin:
    def test_it_runs_alone_and_with_ccldc_and_stands_in_the_table(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(*BOTH, "--plugin", "my_pcr.py", *TINY, "--out", "runs") == 0
        capsys.readouterr()
        assert main(["table", "runs", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(row["method"], row["n"]) for row in rows] == [(name, 1) for name in BOTH]
        assert rows[1]["gain"]["n"] == 1

    def test_it_is_recorded_with_its_file_and_its_settings(self) -> None:
        assert run("my_pcr", "--plugin", "my_pcr.py", *TINY, "--out", "runs") == 0
        config = yaml.safe_load((folder(RUNS) / "config.yaml").read_text())
        assert config["plugins"]["method my_pcr"].startswith("my_pcr.py ")
        assert config["settings"]["method"]["temperature"] == 0.09

    def test_its_cost_is_that_of_the_method_that_comes_with_peerlearn(self) -> None:
        words = ("--plugin", "my_pcr.py", *TINY, "--out", "runs")
        assert run("pcr", "my_pcr", *words) == 0
        costs = []
        for name in ("pcr", "my_pcr"):
            summary = json.loads((folder(RUNS, name) / "summary.json").read_text())
            costs.append([summary["cost"][f"{way}_per_image"] for way in ("forward", "backward")])
        assert costs[0] == costs[1]

    def test_it_is_listed_with_its_file_and_its_flags_are_in_the_help(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["list", "methods", "--plugin", "my_pcr.py"]) == 0
        line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("  my_pcr "))
        assert "Contrast of images with the weight vectors" in line
        assert "[my_pcr.py " in line
        assert run("my_pcr", "--help", "--plugin", "my_pcr.py") == 0
        assert "by which cosines are divided (above 0; default 0.09)" in capsys.readouterr().out


class TestByItsPlace:
    def test_it_runs_and_is_the_same_run_as_by_its_name(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("./my_pcr.py:MyPCR", "./my_pcr.py:MyPCR+ccldc", *TINY, "--out", "runs") == 0
        assert "was done before" not in capsys.readouterr().err
        assert run(*BOTH, "--plugin", "my_pcr.py", *TINY, "--out", "runs") == 0
        assert capsys.readouterr().err.count("was done before") == 2
        assert run("./my_pcr.py:MyPCR", *TINY, "--out", "runs") == 0
        assert "was done before" in capsys.readouterr().err

    def test_a_wrong_place_is_refused_with_the_nearest_right_one(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("./my_pcr.py:MyPRC", *TINY, "--out", "runs") == 2
        assert "my_pcr.py has no 'MyPRC'; did you mean MyPCR?" in capsys.readouterr().err
        assert run("./your_pcr.py:MyPCR", *TINY, "--out", "runs") == 2
        assert "your_pcr.py: cannot be read" in capsys.readouterr().err
        assert not RUNS.exists()


class TestItsSettings:
    def test_they_are_flags(self) -> None:
        words = ("--plugin", "my_pcr.py", *TINY, "--out", "runs", "--replay-batch", "8")
        assert run("my_pcr", *words, "--temperature", "0.2") == 0
        (found,) = RUNS.rglob("config.yaml")
        settings = yaml.safe_load(found.read_text())["settings"]
        assert (settings["method"]["temperature"], settings["method"]["replay_batch"]) == (0.2, 8)
        assert {"temperature=0.2", "replay_batch=8"} < {*found.parts[-3].split(",")}

    def test_one_that_the_wrapper_has_too_must_say_whose_it_is(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ("--plugin", "my_pcr.py", *TINY, "--out", "runs")
        assert run(*BOTH, *words, "--temperature", "0.2") == 2
        assert (
            "--temperature: ambiguous for my_pcr+ccldc; say --method.temperature or "
            "--collaboration.temperature" in capsys.readouterr().err
        )
        assert not RUNS.exists()
        assert run(*BOTH, *words, "--method.temperature", "0.2") == 0
        for file in RUNS.rglob("config.yaml"):
            settings = yaml.safe_load(file.read_text())["settings"]
            assert settings["method"]["temperature"] == 0.2
            assert settings.get("collaboration", {}).get("temperature", 4) == 4

    def test_a_value_out_of_range_is_refused_by_its_flag(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ("--plugin", "my_pcr.py", *TINY, "--out", "runs")
        assert run("my_pcr", *words, "--temperature", "0") == 2
        assert "--temperature: temperature must be above 0, got '0'" in capsys.readouterr().err


class TestASecondCall:
    words = ("my_pcr", "--plugin", "my_pcr.py", *TINY, "--out", "runs")

    def test_reuses_what_was_done(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(*self.words) == 0
        capsys.readouterr()
        assert run(*self.words) == 0
        assert "was done before" in capsys.readouterr().err

    def test_after_a_default_was_changed_is_refused_with_the_difference(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(*self.words) == 0
        before = (folder(RUNS) / "accuracy.json").read_bytes()
        edit("setting(0.09,", "setting(0.5,")
        capsys.readouterr()
        assert run(*self.words) == 2
        said = capsys.readouterr().err
        assert "method.temperature 0.09 there, 0.5 here" in said
        assert "was done before" not in said
        assert (folder(RUNS) / "accuracy.json").read_bytes() == before

    def test_after_the_code_was_changed_is_refused_with_both_digests(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(*self.words) == 0
        edit("return StepOutput(proxy_contrast(", "return StepOutput(2 * proxy_contrast(")
        for words in (self.words, ("./my_pcr.py:MyPCR", *TINY, "--out", "runs")):
            capsys.readouterr()
            assert run(*words) == 2
            said = capsys.readouterr().err
            assert "of other code: method my_pcr my_pcr.py " in said
            assert said.count("my_pcr.py ") == 2

    def test_in_another_folder_runs_the_changed_code(self) -> None:
        assert run(*self.words) == 0
        edit("setting(0.09,", "setting(0.5,")
        assert run(*self.words[:-1], "changed") == 0
        settings = yaml.safe_load((folder(Path("changed")) / "config.yaml").read_text())
        assert settings["settings"]["method"]["temperature"] == 0.5

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_goes_on_after_the_first_was_stopped_and_ends_the_same(
        self, number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run(*self.words) == 0
        learn, steps = running.OnlineLearner.learn, []

        def interrupted(learner, x, y, **how):  # type: ignore[no-untyped-def]
            steps.append(1)
            if len(steps) == 4:
                os.kill(os.getpid(), number)
            return learn(learner, x, y, **how)

        monkeypatch.setattr(running.OnlineLearner, "learn", interrupted)
        broken = (*self.words[:-1], "broken")
        assert run(*broken) == 130
        assert run(*broken) == 0
        one, two = (folder(Path(out)) / "accuracy.json" for out in ("runs", "broken"))
        assert one.read_bytes() == two.read_bytes()


class TestAFileThatCannotBe:
    def refused(self, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
        Path("wrong.py").write_text(text)
        assert run("er", "--plugin", "wrong.py", *TINY, "--out", "runs") == 2
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1
        assert not Path("runs").exists()

    def test_takes_no_name_of_peerlearns(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = 'from peerlearn.methods import ER\nclass Mine(ER):\n    name = "er"\n'
        self.refused(text, "there is a method 'er' already, of Peerlearn itself", capsys)

    def test_says_why_it_fails(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.refused("import nowhere\n", "No module named 'nowhere'", capsys)

    def test_holds_something_to_add(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.refused("x = 1\n", "holds nothing to add; give a class of yours a `name`", capsys)
