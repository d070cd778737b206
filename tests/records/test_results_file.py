"""Finished runs in one file: what goes in comes out, is added to, and hides no harm."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fabricate import fabricate

from peerlearn.cli import main
from peerlearn.errors import UserError
from peerlearn.records import results_file
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import RunRecord, read_config, read_runs
from peerlearn.records.results_file import Added, add_runs, read_results
from peerlearn.report import render as page

HUGE = 10**400


@pytest.fixture
def file(runs_root: Path, tmp_path: Path) -> Path:
    """A file of the four runs below `runs_root`."""
    add_runs(tmp_path / "all.json", read_runs(runs_root))
    return tmp_path / "all.json"


def change(path: Path, edit: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def facts(run: RunRecord) -> tuple[object, ...]:
    """All that a file keeps of a run."""
    return run.config, run.summary, run.accuracy, run.memory_classes, run.environment


def test_what_is_exported_is_read_again_but_for_steps(runs_root: Path, file: Path) -> None:
    folders, lines = read_runs(runs_root), read_runs(file)
    assert [facts(run) for run in lines] == [facts(run) for run in folders]
    assert all(run.steps == () and run.probes == () for run in lines)
    place = lines[0].folder.relative_to(file)
    assert place == folders[0].folder.relative_to(runs_root)  # named as it is in its folder


def test_what_a_page_shows_of_memory_and_matrices_comes_from_a_file_too(file: Path) -> None:
    assert "after task 5, on task 1" in page(read_runs(file))


def test_a_run_is_a_line_and_one_more_run_is_one_more(file: Path, tmp_path: Path) -> None:
    before = [line.rstrip(",") for line in file.read_text().splitlines()]
    assert len(before) == 1 + 4 + 1
    add_runs(file, read_runs(fabricate(tmp_path / "more", "er", seed=10)))
    after = [line.rstrip(",") for line in file.read_text().splitlines()]
    assert [line for line in after if line in before] == before
    seeds = [json.loads(line)["config"]["seed"] for line in after[1:-1]]
    assert seeds == [0, 1, 10, 0, 1]


def test_a_file_depends_on_its_runs_and_not_on_how_they_came(
    runs_root: Path, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    for run in reversed(read_runs(runs_root)):
        add_runs(other, [run])
    assert other.read_bytes() == file.read_bytes()
    copy = tmp_path / "copy.json"
    add_runs(copy, read_runs(file))
    assert copy.read_bytes() == file.read_bytes()


def test_any_layout_of_the_same_json_is_read(file: Path) -> None:
    runs = read_results(file)
    file.write_text(json.dumps(json.loads(file.read_text()), indent=2))
    assert read_results(file) == runs


def test_runs_that_are_there_are_skipped_and_the_file_is_not_touched(
    runs_root: Path, file: Path
) -> None:
    before = file.stat()
    assert add_runs(file, read_runs(runs_root)) == Added(0, 0, 4, 0)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def other_numbers(root: Path) -> Path:
    """The run er, seed 1, as if it had been made by other code."""
    folder = fabricate(root, "er", seed=1, matrix=[[0.5] * (i + 1) for i in range(5)])
    assert json.loads((folder / "summary.json").read_text())["AA"] == 0.5
    return folder


def test_other_numbers_of_a_run_are_refused_by_its_name_and_change_nothing(
    file: Path, tmp_path: Path
) -> None:
    other_numbers(tmp_path / "other")
    fabricate(tmp_path / "other", "gsa")
    before = file.read_bytes()
    says = r"all\.json: has other numbers of mini/er/m200/seed1 \(AA .* and 0\.5\); nothing was"
    with pytest.raises(UserError, match=says):
        add_runs(file, read_runs(tmp_path / "other"))
    assert file.read_bytes() == before
    assert add_runs(file, read_runs(tmp_path / "other"), replace=True) == Added(1, 1, 0, 0)
    found = {(run.method, run.seed): run.metrics["AA"] for run in read_runs(file)}
    assert (len(found), found["er", 1]) == (5, 0.5)


def test_one_accuracy_that_differs_is_enough(runs_root: Path, file: Path) -> None:
    path = runs_root / "mini/er/m200/seed0/accuracy.json"
    change(path, lambda a: a["ncm"][0].__setitem__(0, 0.123))
    with pytest.raises(UserError, match=r"mini/er/m200/seed0 \(in single accuracies\)"):
        add_runs(file, read_runs(runs_root))


def test_another_cost_of_the_same_accuracies_stays_out_unless_it_is_asked_for(
    runs_root: Path, file: Path
) -> None:
    before = file.read_bytes()
    path = runs_root / "mini/er/m200/seed0/summary.json"
    change(path, lambda s: s["cost"].update(train_seconds=1.5))
    assert add_runs(file, read_runs(runs_root)) == Added(0, 0, 4, 1)
    assert file.read_bytes() == before
    assert add_runs(file, read_runs(runs_root), replace=True) == Added(0, 1, 3, 0)
    assert read_runs(file)[0].cost.train_seconds == 1.5


def test_two_sources_of_one_run_must_agree(runs_root: Path, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert add_runs(out, read_runs([runs_root, file])) == Added(4, 0, 0, 0)
    other = other_numbers(tmp_path / "other")
    with pytest.raises(UserError, match="are the same run with different numbers") as raised:
        add_runs(out, read_runs([file, tmp_path / "other"]))
    assert all(str(place) in str(raised.value) for place in (other, file))


# ---- nothing of the machine ----


def test_nothing_tells_where_files_were_on_a_machine(tmp_path: Path) -> None:
    secret = "/home/jane doe/secret"
    folder = fabricate(tmp_path / "runs", "er", settings={"net.weights": f"{secret}/net.pt"})
    config = read_config(folder)
    settings = {**config.settings, "data": f"{secret}/pictures"}
    RunFolder(folder).write_config(config.model_copy(update={"settings": settings}))
    words = ["peerlearn", "run", "er", "--data", f"{secret}/pictures", f"--root={secret}/data/",
             "--config", f"{secret}/lr=0.1,stages=2/config.yaml", "--plugin", r"C:\jane\mine.py",
             "--net", f"{secret}/net.py:build", "--out", "~jane/runs"]  # fmt: skip
    RunFolder(folder).write_environment(
        {"torch": "2.6.0", "threads": 2, "command": words, "data": f"{secret}/pictures", "user": 1}
    )
    out = tmp_path / "out.json"
    add_runs(out, read_runs(folder))
    text = out.read_text()
    assert "jane" not in text
    assert "secret" not in text
    (run,) = read_runs(out)
    assert run.config.settings["data"] == "pictures"
    assert run.config.variant == {"weights": "net.pt"}
    assert run.environment == {
        "torch": "2.6.0", "threads": 2,
        "command": ["peerlearn", "run", "er", "--data", "pictures", "--root=data/", "--config",
                    "lr=0.1,stages=2/config.yaml", "--plugin", "mine.py", "--net", "net.py:build",
                    "--out", "runs"],
    }  # fmt: skip
    assert add_runs(out, read_runs(folder)) == Added(0, 0, 1, 0)  # still the same run


def test_a_command_in_one_text_loses_its_folders_too(tmp_path: Path) -> None:
    folder = fabricate(tmp_path / "runs", "er")
    text = "peerlearn run er --root /home/jane/data --out runs/new"
    RunFolder(folder).write_environment({"command": text})
    add_runs(tmp_path / "out.json", read_runs(folder))
    (run,) = read_runs(tmp_path / "out.json")
    assert run.environment["command"] == "peerlearn run er --root data --out runs/new"


# ---- the command ----


def test_the_command_exports_adds_and_says_what_it_left_out(
    runs_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabricate(tmp_path / "begun", "er", seed=7, status="running", reached=2)
    fabricate(tmp_path / "begun", "er", seed=8, status="failed", reached=2)
    out = tmp_path / "out.json"
    export = ["results", "export", str(runs_root), str(tmp_path / "begun"), "--out", str(out)]
    assert main(export) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}: 4 added\n"
    begun = tmp_path / "begun/mini/er/m200"
    assert said.err == (
        f"left out, for they are not done: {begun}/seed7 (unfinished), {begun}/seed8 (failed)\n"
    )
    assert main(export) == 0
    assert capsys.readouterr().out == f"{out}: 0 added, 4 there before\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("export begun --out out.json", "none of 1 runs is done"),
        ("export runs --out out.txt", "--out: out.txt must end in .json"),
        ("export runs --out no/where/out.json", "cannot be written (No such file or directory)"),
        ("export runs --out folder.json", "folder.json"),
        ("export nowhere.json --out out.json", "nowhere.json: no such folder and no results file"),
        ("export runs", "--out"),
        ("import runs --out out.json", "there is no action 'import'; known: export"),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_line_and_leaves_nothing(
    words: str,
    says: str,
    runs_root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(runs_root.parent)
    fabricate(Path("begun"), "er", status="running", reached=1)
    Path("folder.json").mkdir()
    before = sorted(Path().iterdir())
    assert main(["results", *words.split()]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert sorted(Path().iterdir()) == before


# ---- nothing is lost ----


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_whole(
    call: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabricate(tmp_path / "more", "gsa")
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(UserError, match=r"all\.json: cannot be written \(No space left"):
        add_runs(file, read_runs(tmp_path / "more"))
    assert file.read_bytes() == before


def test_a_file_that_somebody_else_writes_meanwhile_is_not_overwritten(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs.json"
    add_runs(theirs, read_runs(fabricate(tmp_path / "theirs", "ocm")))
    exported = results_file._exported

    def while_they_write(run: RunRecord, path: Path) -> RunRecord:
        file.write_bytes(theirs.read_bytes())
        return exported(run, path)

    monkeypatch.setattr(results_file, "_exported", while_they_write)
    with pytest.raises(UserError, match="somebody has just written to it; repeat"):
        add_runs(file, read_runs(fabricate(tmp_path / "more", "gsa")))
    assert file.read_bytes() == theirs.read_bytes()


# ---- files of others ----


def test_a_run_that_is_in_a_file_twice_is_refused(file: Path) -> None:
    change(file, lambda f: f["runs"].append(f["runs"][1]))
    with pytest.raises(UserError, match=r"all\.json: runs 2 and 5 are both mini/er/m200/seed1; "):
        read_runs(file)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda r: r.clear(), "run 2: config is None, not a mapping"),
        (lambda r: r.update(config=[]), "run 2: config is [], not a mapping"),
        (lambda r: r.pop("accuracy"), "run 2: accuracy is None, not a mapping"),
        (lambda r: r["config"].update(memory=-1), "run 2, config: memory is -1, not at least 0"),
        (lambda r: r["config"].update(settings=3), "run 2, config: settings is 3, not a mapping"),
        (lambda r: r["config"].update(variant={f"x{i}": 0 for i in range(2000)}),
         "run 2, config: there are over 1000 names"),
        (lambda r: r["config"].update(schema=9), "run 2, config: schema 9 is newer than 2"),
        (lambda r: r["summary"].update(AA="high"),
         "run 2 (mini/er/m200/seed1), summary: AA is 'high', not a number"),
        (lambda r: r["summary"].update(AA=1e300), "run 2 (mini/er/m200/seed1), summary: AA is"),
        (lambda r: r["summary"].update(status="running"), "summary: status is running, not done"),
        (lambda r: r["summary"].update(peers=[{}] * 5000), "summary: peers is"),
        (lambda r: r["summary"].update(memory_classes=[[1], [1, 2]]),
         "summary: memory_classes has rows of different lengths"),
        (lambda r: r["accuracy"].update(ensemble=[[0.5], [0.5]]),
         "run 2 (mini/er/m200/seed1), accuracy: row 1 of an accuracy matrix needs 2"),
        (lambda r: r["accuracy"].update(ensemble=[[7]]), "accuracy: row 0 of an accuracy matrix"),
        (lambda r: r["accuracy"].update(class_names=["x"] * 30_000), "accuracy: class_names is"),
        (lambda r: r["environment"].update(torch={"a": 1}),
         "run 2 (mini/er/m200/seed1), environment: torch is {'a': 1}, not a text"),
        (lambda r: r["environment"].update(command=["x"] * 5000), "environment: command"),
    ],
)  # fmt: skip
def test_what_no_run_has_is_refused_with_the_file_and_the_run(
    edit: Callable[[Any], object], says: str, file: Path
) -> None:
    change(file, lambda f: edit(f["runs"][1]))
    with pytest.raises(UserError) as raised:
        read_runs(file)
    assert f"{file}: " in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is not JSON"),
        ("[]", "the file holds no mapping"),
        ("{}", "the file holds no list of runs"),
        ('{"schema": 2, "status": "done"}', "the file holds no list of runs"),
        ('{"runs": []}', "schema is None, not 1"),
        ('{"schema": 2, "runs": []}', "schema 2 is newer than 1; update peerlearn"),
        ('{"schema": 1, "runs": [1]}', "run 1: config is None, not a mapping"),
        ('{"schema": 1, "runs": [' + "[" * 5000, "the file is"),
        (f'{{"schema": 1, "runs": [{HUGE}]}}', "the file holds a number of over 300 digits"),
        (f'{{"schema": 1, "runs": [{"0," * 100_000}0]}}', "the file holds over 100000 runs"),
        ("\x00\x01", "the file is not JSON"),
    ],
)
def test_what_is_no_results_file_is_refused_in_one_line_and_kept(
    text: str,
    says: str,
    runs_root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    for words in (["table", path], ["results", "export", runs_root, "--out", path]):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert f"{path}: {says}" in said
        assert said.count("\n") == 1
    assert path.read_text() == text


def test_a_file_without_runs_is_one_to_begin_with(runs_root: Path, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"schema": 1, "runs": []}')
    assert add_runs(path, read_runs(runs_root)) == Added(4, 0, 0, 0)


def test_a_link_to_a_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(file)
    add_runs(tmp_path / "link.json", read_runs(fabricate(tmp_path / "more", "gsa")))
    assert (tmp_path / "link.json").is_symlink()
    assert len(read_runs(file)) == 5


def test_a_thousand_runs_are_read_soon(file: Path) -> None:
    def grow(content: Any) -> None:
        first = content["runs"][0]
        content["runs"] = [
            {**first, "config": {**first["config"], "seed": seed}} for seed in range(1000)
        ]

    change(file, grow)
    start = time.process_time()
    assert len(read_runs(file)) == 1000
    assert time.process_time() - start < 3  # some 0.4
