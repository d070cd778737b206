"""`--precision auto`: what is chosen, why, and that the same command chooses it again."""

from pathlib import Path

import pytest
import yaml
from command import VARIANT, folder, run_small
from test_settings import run_of

from peerlearn.experiment import precision
from peerlearn.experiment.precision import settle_precision
from peerlearn.nets import processor
from peerlearn.nets.processor import Trial

METHOD = "er"
FAST, SLOW, DIES = Trial("", 1.6), Trial("", 1.14), Trial("was ended by SIGILL")


def found(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let this be what every trial finds; the widths that were asked for."""
    widths: list[int] = []

    def bf16_trial(width: int) -> Trial:
        widths.append(width)
        return trial

    monkeypatch.setattr(precision, "bf16_trial", bf16_trial)
    monkeypatch.setattr(processor, "_trials", {1: trial})
    return widths


@pytest.mark.parametrize(
    ("trial", "chosen", "why"),
    [
        (FAST, "bf16", "1.60 times as fast as fp32 on this processor"),
        (SLOW, "fp32", "bf16 is only 1.14 times as fast on this processor"),
        (DIES, "fp32", "a trial of bf16 in a process of its own was ended by SIGILL"),
    ],
)
def test_it_is_bf16_only_where_that_is_safe_and_clearly_faster(
    trial: Trial, chosen: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = found(trial, monkeypatch)
    [run], lines = settle_precision([run_of(METHOD, precision="auto")], tmp_path)
    assert run.values["machine.precision"] == run.machine.precision == chosen
    assert run.variant == ({"precision": "bf16"} if chosen == "bf16" else {})
    assert run.origins["machine.precision"] == "auto"
    assert lines == [f"precision auto: {chosen}, {why}"]
    assert widths == [16]  # of the network of `mini`


def test_it_asks_once_for_runs_of_one_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = found(FAST, monkeypatch)
    runs = [run_of(m, precision="auto", width=w) for w in (8, 32) for m in ("er", "er+ccldc")]
    settled, lines = settle_precision([*runs, run_of(METHOD)], tmp_path)
    assert [run.machine.precision for run in settled] == ["bf16"] * 4 + ["fp32"]
    assert settled[2].variant == {"width": 32, "precision": "bf16"}
    assert widths == [8, 32]
    assert len(lines) == 2


def test_another_device_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widths = found(FAST, monkeypatch)
    [run], lines = settle_precision([run_of(METHOD, precision="auto", device="cuda")], tmp_path)
    assert run.machine.precision == "fp32"
    assert "was not timed on cuda" in lines[0]
    assert not widths


def test_the_same_command_goes_on_with_what_was_chosen_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--precision", "auto", "--net", "small")
    place = folder(tmp_path, METHOD, f"net=small,{VARIANT}")
    found(SLOW, monkeypatch)
    assert run_small(tmp_path, *words, method=METHOD) == 0
    assert "precision auto: fp32, bf16 is only 1.14" in capsys.readouterr().err
    config = yaml.safe_load((place / "config.yaml").read_text())
    assert config["settings"]["machine"]["precision"] == "fp32"
    assert config["origins"]["machine.precision"] == "auto"
    found(FAST, monkeypatch)
    assert run_small(tmp_path, *words, "--seeds", "0-1", method=METHOD) == 0
    said = capsys.readouterr().err
    assert said.count("precision auto") == 1
    assert "precision auto: fp32, as when these runs were begun\n" in said
    assert "seed 0: was done before" in said
    assert (place.parent / "seed1").exists()  # beside the first, not of another precision


def test_what_it_chose_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if fault := processor.bf16_trial().fault:
        pytest.skip(f"bf16 on this machine: a trial {fault}")
    found(FAST, monkeypatch)
    words = ("--net", "small", "--precision")
    assert run_small(tmp_path, *words, "auto", method=METHOD) == 0
    place = folder(tmp_path, METHOD, f"net=small,{VARIANT},precision=bf16")
    assert (place / "summary.json").exists()
    assert run_small(tmp_path, *words, "bf16", method=METHOD) == 0  # the same run
    assert "was done before" in capsys.readouterr().err


def test_a_run_in_bf16_that_cannot_be_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found(DIES, monkeypatch)
    assert run_small(tmp_path, "--precision", "bf16", method=METHOD) == 2
    said = capsys.readouterr().err
    assert said.startswith("peerlearn: precision bf16 cannot be used on this processor: a trial")
    assert said.endswith("was ended by SIGILL; take precision='fp32'\n")
    assert list(tmp_path.iterdir()) == []
