"""`peerlearn analyse`: from folders of runs to files that can be drawn."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import command, run_small

from peerlearn.analysis import ANALYSES
from peerlearn.records.analysis import Analysis, read_analysis

RUNS = ("--net", "small", "--width", "4", "--current-loss", "2", "--disagreement", "2")
LEARNT = ("entropy", "tsne", "gradcam", "confusion", "calibration")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ER with and without CCL-DC, two seeds."""
    out = tmp_path_factory.mktemp("made")
    assert run_small(out, *RUNS, "--seeds", "0-1", method="er er+ccldc") == 0
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def runs_in(out: Path, method: str = "*", seed: str = "*") -> list[Path]:
    return sorted(path.parent for path in out.glob(f"mini/{method}/m20/*/seed{seed}/config.yaml"))


def content_of(out: Path) -> dict[str, bytes]:
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def analysed(name: str, *words: Any, out: Path) -> Analysis:
    assert command("analyse", name, *map(str, words), "--out", str(out)) == 0
    return read_analysis(out)


@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_leaves_a_file_that_can_be_read_and_nothing_else(
    name: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content_of(copy)
    assert command("analyse", name, str(copy)) == 0
    after = content_of(copy)
    assert {*after} - {*before} == {f"analysis/{name}.json"}
    assert all(after[file] == content for file, content in before.items())
    found = read_analysis(copy / "analysis" / f"{name}.json")
    assert (found.name, len(found.panels) > 0) == (name, True)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == found.title
    assert len(said) == len(found.facts) + 2
    assert said[-1] == str(copy / "analysis" / f"{name}.json")


def test_one_run_of_each_row_is_looked_at_the_lowest_seed_unless_another_is_asked_for(
    made: Path, tmp_path: Path
) -> None:
    found = analysed("confusion", made, out=tmp_path / "a.json")
    assert found.runs == ["er, mini, memory 20, seed 0", "er+ccldc, mini, memory 20, seed 0"]
    other = analysed("confusion", made, "--seed", 1, out=tmp_path / "b.json")
    assert other.runs == ["er, mini, memory 20, seed 1", "er+ccldc, mini, memory 20, seed 1"]
    assert other.panels != found.panels


def test_single_run_folders_will_do(made: Path, tmp_path: Path) -> None:
    (one,) = runs_in(made, "er", "1")
    found = analysed("calibration", one, out=tmp_path / "a.json")
    assert found.runs == ["er, mini, memory 20, seed 1"]


def test_a_seed_that_no_row_has_is_named(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("analyse", "entropy", str(made), "--seed", "7") == 2
    assert "no finished run has seed 7" in capsys.readouterr().err


class TestWithoutACheckpoint:
    def test_the_next_seed_is_taken(self, copy: Path, tmp_path: Path) -> None:
        shutil.rmtree(runs_in(copy, "er", "0")[0] / "checkpoint")
        found = analysed("tsne", copy, out=tmp_path / "a.json")
        assert found.runs == ["er, mini, memory 20, seed 1", "er+ccldc, mini, memory 20, seed 0"]

    def test_a_row_is_left_out_and_that_is_said(
        self, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for run in runs_in(copy, "er"):
            shutil.rmtree(run / "checkpoint")
        found = analysed("confusion", copy, out=tmp_path / "a.json")
        assert found.runs == ["er+ccldc, mini, memory 20, seed 0"]
        assert "Left out: er" in found.about
        assert "left out er: no run has its checkpoint any more" in capsys.readouterr().err

    @pytest.mark.parametrize("name", LEARNT)
    def test_nothing_is_left_to_look_at(
        self, name: str, copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for run in runs_in(copy):
            shutil.rmtree(run / "checkpoint")
        assert command("analyse", name, str(copy)) == 2
        assert "no run has its checkpoint any more; make it with" in capsys.readouterr().err
        assert not (copy / "analysis").exists()

    @pytest.mark.parametrize("name", [name for name in ANALYSES if name not in LEARNT])
    def test_records_and_probes_and_chains_are_there_still(self, name: str, copy: Path) -> None:
        for run in runs_in(copy):
            shutil.rmtree(run / "checkpoint")
        assert command("analyse", name, str(copy)) == 0


class TestWithoutProbes:
    def test_the_command_that_makes_them_is_named_and_works(
        self, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (run,) = runs_in(copy, "er+ccldc", "0")
        (run / "probes.jsonl").unlink()
        assert command("analyse", "loss", str(run)) == 2
        said = capsys.readouterr().err
        words = said.partition("make it with: peerlearn ")[2].split()
        assert words[0] == "run"
        again = str(tmp_path / "again")
        assert command(*[again if word == "ANOTHER_FOLDER" else word for word in words]) == 0
        assert command("analyse", "loss", again) == 0

    def test_a_run_of_one_peer_is_told_why(
        self, made: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command("analyse", "disagreement", *map(str, runs_in(made, "er"))) == 2
        assert "one peer, which agrees with itself" in capsys.readouterr().err


class TestWhatIsFound:
    def test_losses_are_the_lines_of_the_probes_and_tasks_begin_at_the_marks(
        self, made: Path, tmp_path: Path
    ) -> None:
        (panel,) = analysed("loss", made, out=tmp_path / "a.json").panels
        assert panel.kind == "lines"
        assert panel.log
        assert panel.marks == [0, 2, 4, 6, 8]
        (run,) = runs_in(made, "er", "0")
        lines = [json.loads(line) for line in (run / "probes.jsonl").read_text().splitlines()]
        assert panel.lines[0].y == [line["current_loss"] for line in lines]
        assert panel.lines[0].x == [2, 4, 6, 8, 10]

    def test_every_run_is_shown_four_views(self, made: Path, tmp_path: Path) -> None:
        (panel,) = analysed("entropy", made, out=tmp_path / "a.json").panels
        assert panel.kind == "bars"
        names = [f"{name}, X{i}" for name in ("er", "er+ccldc") for i in range(4)]
        assert [bar.name for bar in panel.bars] == names

    def test_accuracies_of_the_confusion_and_the_calibration_are_those_of_the_run(
        self, made: Path, tmp_path: Path
    ) -> None:
        for name in ("confusion", "calibration"):
            facts = analysed(name, made, out=tmp_path / f"{name}.json").facts
            for method in ("er", "er+ccldc"):
                (run,) = runs_in(made, method, "0")
                aa = json.loads((run / "summary.json").read_text())["AA"]  # tasks of equal size
                assert facts[f"{method}: accuracy"] == pytest.approx(aa)

    def test_a_run_that_has_no_chain_shows_that_of_ccldc(self, made: Path, tmp_path: Path) -> None:
        (panel,) = analysed("chain", made, out=tmp_path / "a.json").panels  # both have the same
        assert panel.kind == "images"
        assert panel.column_names == ["X0", "X1", "X2", "X3"]
        assert all(len({*row.images}) == 4 for row in panel.rows)
        assert len({row.name for row in panel.rows}) == len(panel.rows) == 6

    def test_overlays_stand_beside_images_that_all_runs_get_right(
        self, made: Path, tmp_path: Path
    ) -> None:
        (panel,) = analysed("gradcam", made, out=tmp_path / "a.json").panels
        assert panel.kind == "images"
        assert panel.column_names == ["image", "er", "er+ccldc"]
        assert {len(row.images) for row in panel.rows} == {3}

    def test_time_is_the_mean_over_seeds_with_its_spread(self, made: Path, tmp_path: Path) -> None:
        found = analysed("time", made, out=tmp_path / "a.json")
        (panel,) = found.panels
        assert panel.kind == "bars"
        files = [run / "summary.json" for run in runs_in(made, "er")]
        times = [json.loads(file.read_text())["cost"]["train_seconds"] for file in files]
        assert panel.bars[0].value == pytest.approx(sum(times) / 2)
        assert panel.bars[0].spread == pytest.approx(abs(times[0] - times[1]) / 2**0.5)
        assert found.facts["er+ccldc: times er"] > 1
        assert len(found.runs) == 4

    def test_the_same_command_finds_the_same(self, made: Path, tmp_path: Path) -> None:
        for name in ("entropy", "gradcam", "tsne", "chain"):
            one, two = (analysed(name, made, out=tmp_path / f"{k}.json") for k in "ab")
            assert one == two


def test_json_is_the_whole(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("analyse", "time", str(made), "--json", "--out", str(tmp_path / "a.json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert Analysis.model_validate(printed) == read_analysis(tmp_path / "a.json")


def test_runs_on_different_images_cannot_be_looked_at_side_by_side(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_small(tmp_path, "--net", "small", "--train-per-class", "5", method="er") == 0
    capsys.readouterr()
    assert command("analyse", "gradcam", str(tmp_path), str(made)) == 2
    assert "has learnt from other images than the runs before it" in capsys.readouterr().err


def test_images_that_have_changed_are_refused(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in runs_in(copy):
        config = run / "config.yaml"
        config.write_text(config.read_text().replace(": pixels-", ": pixels-0"))
    assert command("analyse", "confusion", str(copy)) == 2
    assert "was made on other images of mini" in capsys.readouterr().err


def test_a_name_that_is_none_is_told_the_nearest(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("analyse", "entrop", str(made)) == 2
    assert "did you mean entropy" in capsys.readouterr().err
