"""`--predict-with` in runs: what is recorded, which name it has, and what is refused."""

import json
from pathlib import Path

import pytest
import yaml

from peerlearn import METHODS
from peerlearn.cli import main
from peerlearn.records.read import read_runs

TINY = ["--data", "mini", "--train-per-class", "4", "--test-per-class", "2", "--net", "small"]
TINY += ["--memory", "20", "--threads", "1"]
PLUGIN = '''
import torch
from peerlearn.methods import ER

class Neighbour(ER):
    """Predicts the class of the nearest image in memory."""
    name = "neighbour"

    def predict(self, answers, x):
        features, labels = answers.memory_features()
        return labels[torch.cdist(answers.features(x), features).argmin(dim=1)]
'''


def run(out: Path, *words: str) -> int:
    return main(["run", *words, *TINY, "--out", str(out)])


def test_nearest_means_predict_in_a_run_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "er") == 0
    assert run(tmp_path, "er", "--predict-with", "ncm") == 0
    plain, means = sorted(read_runs(tmp_path), key=lambda one: len(one.config.variant))
    assert means.config.variant == {**plain.config.variant, "predict_with": "ncm"}
    assert means.accuracy.ensemble == plain.accuracy.ncm == means.accuracy.ncm
    assert means.accuracy.answers == {"peers": plain.accuracy.ensemble}
    capsys.readouterr()
    assert main(["table", str(tmp_path), "--answers"]) == 0
    table = capsys.readouterr().out
    assert "AA ncm" in table
    assert "er, predict_with=ncm" in table
    assert main(["table", str(tmp_path), "--json"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)}
    assert {row["AA_ncm"] for row in rows.values()} == {means.metrics["AA"]}
    assert main(["table", str(tmp_path)]) == 0
    assert "AA ncm" not in capsys.readouterr().out


def test_the_old_flag_and_an_old_record_work_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "new", "er+ema-chain", "--predict-with", "ema") == 0
    capsys.readouterr()
    assert run(tmp_path / "old", "er+ema-chain", "--answer", "shadow") == 0
    assert "--answer shadow is now --predict-with ema\n" in capsys.readouterr().err
    new, old = (read_runs(tmp_path / name)[0] for name in ("new", "old"))
    assert new.config.settings == old.config.settings
    record = new.folder / "config.yaml"
    content = yaml.safe_load(record.read_text())
    assert content["settings"].pop("predict_with") == "ema"
    content["settings"]["collaboration"]["answer"] = "shadow"
    content["variant"]["answer"] = "shadow"
    del content["variant"]["predict_with"]
    record.write_text(yaml.safe_dump(content))
    (again,) = read_runs(tmp_path / "new")
    assert again.config.identity == new.config.identity
    assert again.config.variant == new.config.variant


def test_the_old_name_in_a_file_works_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mine.yaml", tmp_path / "runs"
    note = f"{file}, line 1: answer: shadow is now predict_with: ema\n"
    file.write_text("answer: shadow\n")
    assert run(out, "er+ema-chain", "--config", str(file)) == 0
    assert note in capsys.readouterr().err
    assert read_runs(out)[0].config.settings["predict_with"] == "ema"
    assert main(["sweep", str(file), "er+ema-chain", *TINY, "--out", str(out)]) == 0
    assert note in capsys.readouterr().err
    assert len(read_runs(out)) == 1
    file.write_text("answer: shadow\npredict_with: ema\n")
    assert run(out, "er+ema-chain", "--config", str(file)) == 2
    assert "line 1: answer is predict_with, which is there too" in capsys.readouterr().err


def test_the_old_value_under_the_present_name_works_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "er+ema-chain", "--predict-with", "shadow") == 0
    assert "--predict-with shadow is now --predict-with ema\n" in capsys.readouterr().err
    assert read_runs(tmp_path)[0].config.settings["predict_with"] == "ema"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["er", "--predict-with", "ema"], "--predict-with ema: er has no EMA copies; choose peers"),
        (["finetune", "--predict-with", "ncm"], "class means are of images in memory; finetune"),
        (["er", "--predict-with", "means"], "--predict-with: "),
        (["er", "--ncm-distance", "far"], "--ncm-distance: "),
    ],
)
def test_what_cannot_predict_is_refused_before_anything_is_done(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("more", [(), ("--prequential", "50"), ("--memory", "0")])
def test_a_rule_of_a_plug_in_reaches_the_memory(more: tuple[str, ...], tmp_path: Path) -> None:
    """Until there are images in memory, and without a memory, logits predict."""
    file, out = tmp_path / "neighbour.py", tmp_path / "runs"
    file.write_text(PLUGIN)
    with METHODS.unchanged():
        assert run(out, "neighbour", "neighbour+ccldc", "--plugin", str(file), *more) == 0
    assert [one.done for one in read_runs(out)] == [True, True]
