"""A run is gone on with, or reused, only where it is the same run on the same images, and whole."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import SMALL, command, run_small
from PIL import Image

from peerlearn.data import load
from peerlearn.experiment import images, run
from peerlearn.records.folder import RunFolder

QUICK = ("--memory", "4", "--net", "small", "--width", "1", "--tasks", "2", "--threads", "1")
METHOD, SMALL_NET = "er+ccl", ("--net", "small")  # two peers, and a run in half a second


def draw_pets(place: Path, shade: int = 0) -> Path:
    """Two classes of ten pictures each; labels and sizes are the same for every shade."""
    for number in range(20):
        pixels = np.random.default_rng(number).integers(0, 200, (8, 8, 3), dtype=np.uint8)
        path = place / ("cat", "dog")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels + np.uint8(shade)).save(path)
    return place


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLEARN_CACHE", str(tmp_path / "cache"))


def learn_pets(place: Path | str, out: Path, *words: str) -> int:
    return command("run", "er", "--data", str(place), *QUICK, "--out", str(out), *words)


class TestOtherImages:
    def test_in_a_folder_of_the_same_name_are_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        one, two = (draw_pets(tmp_path / name / "pets", 9 * k) for k, name in enumerate("ab"))
        assert learn_pets(one, tmp_path / "runs") == 0
        assert learn_pets(two, tmp_path / "runs") == 2
        said = capsys.readouterr().err
        assert "holds a run on other images of pets; choose another --out" in said
        assert "was done before" not in said

    def test_that_came_into_the_same_folder_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        draw_pets(tmp_path / "pets")
        assert learn_pets("pets", tmp_path / "runs") == 0
        draw_pets(tmp_path / "pets", 9)
        assert learn_pets("pets", tmp_path / "runs") == 2
        assert "other images of pets" in capsys.readouterr().err

    def test_that_are_gone_are_asked_for(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert learn_pets(draw_pets(tmp_path / "pets"), tmp_path / "runs") == 0
        shutil.rmtree(tmp_path / "pets")
        assert learn_pets(tmp_path / "pets", tmp_path / "runs") == 2
        assert "was done before" not in capsys.readouterr().err


class TestTheSameImages:
    def test_are_known_by_any_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        draw_pets(tmp_path / "pets")
        monkeypatch.chdir(tmp_path)
        assert learn_pets("pets", tmp_path / "runs") == 0
        shutil.copytree("pets", "elsewhere/pets")
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert learn_pets("./pets", tmp_path / "runs") == 0
        assert "was done before" in capsys.readouterr().err

    def test_have_their_place_among_the_facts_and_not_in_the_identity(self, tmp_path: Path) -> None:
        assert learn_pets(draw_pets(tmp_path / "pets"), tmp_path / "runs") == 0
        (environment,) = tmp_path.rglob("environment.json")
        assert json.loads(environment.read_text())["data"] == str(tmp_path / "pets")
        config = (environment.parent / "config.yaml").read_text()
        assert re.search(r"^fingerprint: pixels-[0-9a-f]{32}$", config, re.MULTILINE)

    def test_serve_a_run_that_was_made_before_pixels_counted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = draw_pets(tmp_path / "pets")
        assert learn_pets(place, tmp_path / "runs") == 0
        (config,) = tmp_path.rglob("config.yaml")
        old = images.fingerprint_without_pixels(load(place))
        assert re.fullmatch("[0-9a-f]{16}", old)
        before = re.sub("(?m)^old_fingerprint: .*\n", "", config.read_text())
        config.write_text(re.sub("(?m)^fingerprint: .*", f"fingerprint: '{old}'", before))
        assert learn_pets(place, tmp_path / "runs") == 0
        assert "was done before" in capsys.readouterr().err
        config.write_text(re.sub("(?m)^fingerprint: .*", "fingerprint: '0f0f'", before))
        assert learn_pets(place, tmp_path / "runs") == 2

    def test_are_read_and_digested_once_for_all_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []
        whole = images.content_digest
        monkeypatch.setattr(images, "content_digest", lambda data: seen.append(1) or whole(data))
        place = draw_pets(tmp_path / "pets")
        methods = ("run", "er", "er_ace", "--seeds", "0-1", "--data", str(place))
        assert command(*methods, *QUICK, "--out", str(tmp_path / "runs")) == 0
        assert len(list(tmp_path.rglob("summary.json"))) == 4
        assert len(seen) == 1


    def test_have_their_notes_told_once_before_the_first_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = replace(load(draw_pets(tmp_path / "pets")), notes=("every fifth is for testing",))
        monkeypatch.setattr(images, "load", lambda *_, **__: told)
        assert learn_pets(tmp_path / "pets", tmp_path / "runs", "--seeds", "0-1") == 0
        said = capsys.readouterr().err
        assert said.startswith("every fifth is for testing\nrun 1 of 2, er pets m4")
        assert said.count("every fifth") == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made")
    assert run_small(out, *SMALL_NET, method=METHOD) == 0
    return out


def again(out: Path) -> int:
    return run_small(out, *SMALL_NET, method=METHOD)


def folder(out: Path) -> Path:
    (found,) = out.rglob("seed0")
    return found


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A finished run that a test may damage."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def change(path: Path, edit: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def content_of(out: Path) -> dict[str, bytes]:
    files = [p for p in out.rglob("*") if p.is_file() and not p.name.startswith(".lease")]
    return {str(p.relative_to(out)): p.read_bytes() for p in files}


class TestARunThatSaysItIsDone:
    @pytest.mark.parametrize(
        ("name", "damage"),
        [
            ("accuracy.json", Path.unlink),
            ("accuracy.json", lambda path: path.write_text('{"schema": 1, "ense')),
            ("accuracy.json", lambda path: change(path, lambda a: a["ensemble"].pop())),
            ("accuracy.json", lambda path: change(path, lambda a: a.update(ncm=None))),
            ("summary.json", lambda path: change(path, lambda s: s.update(AA=0.99))),
            ("summary.json", lambda path: change(path, lambda s: s["peers"][1].update(LA=0.99))),
            ("summary.json", lambda path: path.write_text("")),
        ],
    )
    def test_and_is_damaged_is_finished_again_from_its_checkpoint(
        self, name: str, damage: Callable[[Path], object], made: Path, copy: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        damage(folder(copy) / name)
        assert again(copy) == 0
        assert "was done before" not in capsys.readouterr().err
        for same in ("accuracy.json", "steps.jsonl"):
            assert (folder(copy) / same).read_bytes() == (folder(made) / same).read_bytes()
        summaries = [json.loads((folder(o) / "summary.json").read_text()) for o in (made, copy)]
        assert summaries[0] | {"cost": 0} == summaries[1] | {"cost": 0}
        assert again(copy) == 0
        assert "was done before" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["accuracy.json", "summary.json"])
    def test_and_can_be_restored_from_nothing_names_the_file(
        self, name: str, copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.rmtree(folder(copy) / "checkpoint")
        (folder(copy) / name).write_text("{")
        before = content_of(copy)
        assert again(copy) == 2
        said = capsys.readouterr().err
        assert f"{folder(copy) / name}: the file is not JSON" in said
        assert "restore it, or delete" in said
        assert content_of(copy) == before


def in_extra(edit: Callable[[dict[str, Any]], object]) -> Callable[[Any], object]:
    return lambda state: edit(state["extra"])


class TestWhatIsKeptWithACheckpoint:
    @pytest.mark.parametrize(
        "edit",
        [
            lambda extra: extra.clear(),
            lambda extra: extra.update(scores=None),
            lambda extra: extra["scores"]["ensemble"].append([0.5] * 6),
            lambda extra: extra["scores"]["ensemble"][1].__setitem__(0, None),
            lambda extra: extra["scores"]["ensemble"][1].__setitem__(0, 1.5),
            lambda extra: extra["scores"]["ensemble"][1].__setitem__(0, True),
            lambda extra: extra["scores"]["ensemble"].pop(),
            lambda extra: extra["scores"]["peers"].pop(),
            lambda extra: extra["scores"]["peers"][0].pop(),
            lambda extra: extra["scores"].update(ncm=[[0.1]]),
            lambda extra: extra.update(memory_classes=[[1]]),
            lambda extra: extra["memory_classes"][0].__setitem__(0, -1),
            lambda extra: extra.update(seconds=[1.0]),
            lambda extra: extra.update(seconds=[float("nan"), 1.0]),
            lambda extra: extra.update(seconds=[-1.0, 1.0]),
            lambda extra: extra.update(peak="1"),
            lambda extra: extra.update(peak=10**200),
            lambda extra: extra.update(log_bytes=-1),
            lambda extra: extra.update(log_bytes=1.5),
        ],
    )
    def test_is_looked_at_before_anything_is_changed(
        self, edit: Callable[[dict[str, Any]], object], copy: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        (folder(copy) / "summary.json").unlink()
        change(folder(copy) / "checkpoint" / "state.json", in_extra(edit))
        before = content_of(copy)
        assert again(copy) == 2
        said = capsys.readouterr().err
        assert f"{folder(copy) / 'checkpoint' / 'state.json'}: " in said
        assert said.count("\n") == 1
        assert content_of(copy) == before

    def test_may_remember_more_of_the_log_than_is_left(self, copy: Path) -> None:
        (folder(copy) / "summary.json").unlink()
        steps = folder(copy) / "steps.jsonl"
        steps.write_bytes(steps.read_bytes()[:-5])
        assert again(copy) == 0
        assert all(json.loads(line) for line in steps.read_text().splitlines())


def test_a_log_that_leads_elsewhere_is_not_followed(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("mine")
    (folder(copy) / "summary.json").unlink()
    (folder(copy) / "steps.jsonl").unlink()
    (folder(copy) / "steps.jsonl").symlink_to(tmp_path / "precious")
    assert again(copy) == 2
    assert "steps.jsonl: is a link" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "mine"


def test_the_machine_in_a_record_is_looked_at(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = folder(copy) / "config.yaml"
    config.write_text(re.sub(r"    threads: \d", "    threads: many", config.read_text()))
    assert command("run", METHOD, *SMALL, *SMALL_NET, "--out", str(copy)) == 2
    said = capsys.readouterr().err
    assert f"{config}: MachineSettings: threads must be a whole number, got 'many'" in said


class TestAFolderThatWasMoved:
    def test_is_reused(self, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        moved = copy.rename(copy.with_name("moved"))
        assert again(moved) == 0
        assert "was done before" in capsys.readouterr().err

    def test_goes_on_where_it_was(
        self, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        learn, steps = run.OnlineLearner.learn, []

        def interrupted(learner, x, y, **how):  # type: ignore[no-untyped-def]
            steps.append(1)
            if len(steps) == 5:
                raise KeyboardInterrupt
            return learn(learner, x, y, **how)

        monkeypatch.setattr(run.OnlineLearner, "learn", interrupted)
        assert again(tmp_path / "here") == 130
        monkeypatch.undo()
        moved = (tmp_path / "here").rename(tmp_path / "there")
        assert again(moved) == 0
        assert "goes on after batch 4 of 10" in capsys.readouterr().err
        for name in ("accuracy.json", "config.yaml"):
            assert (folder(moved) / name).read_bytes() == (folder(made) / name).read_bytes()


def test_results_without_their_settings_are_not_reused(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder(copy) / "config.yaml").unlink()
    before = content_of(copy)
    assert again(copy) == 2
    assert "has results, and no config.yaml" in capsys.readouterr().err
    assert content_of(copy) == before


def test_a_run_that_another_process_begins_just_now_is_not_one_without_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunFolder.config

    def just_before_it_is_written(run: RunFolder) -> Any:
        found = config(run)
        if found is None and not run.path.exists():
            shutil.copytree(folder(tmp_path / "other"), run.path)
        return found

    assert again(tmp_path / "other") == 0
    monkeypatch.setattr(RunFolder, "config", just_before_it_is_written)
    assert again(tmp_path / "here") == 0
