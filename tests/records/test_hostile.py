"""Run folders of others: a table, a page and a run take them or refuse them, in one line, soon."""

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
from peerlearn.experiment.identity import reconcile
from peerlearn.experiment.resolve import resolve
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import read_runs
from peerlearn.report import render as page
from peerlearn.results.compare import compare
from peerlearn.results.formats import STYLES
from peerlearn.results.formats import render as table

FILES = ("config.yaml", "summary.json", "accuracy.json", "environment.json", "steps.jsonl")
HUGE = 10**400
SOON = 2.0  # seconds of computing


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(target: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        path.symlink_to(target.format(path.name))

    return damage


def bytes_of(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "damage",
    [
        a_pipe, a_folder, a_link("{}"), a_link("/dev/zero"), a_link("/dev/null"),
        bytes_of(b"\xff\xfe\x00junk"), bytes_of(b"\xef\xbb\xbf"), bytes_of(b"\0" * 100),
        bytes_of(b"[" * 100_000), bytes_of(b'{"a":' * 50_000), bytes_of(b"9" * 5000),
    ],
    ids=["pipe", "folder", "loop", "zero", "null", "binary", "mark", "NUL", "deep", "deeper",
         "digits"],
)  # fmt: skip
def test_what_is_no_such_file_is_refused_in_one_line(
    name: str, damage: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fabricate(tmp_path, "er") / name
    damage(path)
    start = time.process_time()
    code = main(["report", str(tmp_path), "--out", os.devnull])
    assert time.process_time() - start < SOON
    said = capsys.readouterr().err
    assert (code, said.count("\n")) in ((2, 1), (0, 0))
    assert code == 0 or str(path) in said or "no runs in this folder" in said


def change(path: Path, edit: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("summary.json", lambda s: s["cost"].update(kept_bytes={"images": HUGE})),
        ("summary.json", lambda s: s["cost"].update(kept_bytes={"a": 1e308, "b": 1e308})),
        ("summary.json", lambda s: s["cost"].update(kept_bytes={"a": 10**299})),
        ("summary.json", lambda s: s["cost"].update(train_seconds=1e308)),
        ("summary.json", lambda s: s.update(AA=HUGE)),
        ("summary.json", lambda s: s.update(AA=1e308)),
        ("summary.json", lambda s: s.update(AA=float("inf"))),
        ("summary.json", lambda s: s.update(seed=HUGE)),
        ("summary.json", lambda s: s.update({f"metric{i}": 0.5 for i in range(100_000)})),
        ("summary.json", lambda s: s.update(peers=[{}] * 100_000)),
        ("summary.json", lambda s: s.update(peers=[["x"]] * 100_000)),
        ("summary.json", lambda s: s.update(memory_classes=[[1], [1, 2]])),
        ("summary.json", lambda s: s.update(memory_classes=[[HUGE]])),
        ("summary.json", lambda s: s.update(memory_classes=[[1] * 4000] * 300)),
        ("accuracy.json", lambda a: a.update(ensemble=[0.5] * 1_000_000)),
        ("accuracy.json", lambda a: a.update(ensemble=[[0.5]] * 100_000)),
        ("accuracy.json", lambda a: a.update(ensemble=[])),
        ("accuracy.json", lambda a: a.update(ensemble=[[0.5], [0.5, [0.5]]])),
        ("accuracy.json", lambda a: a.update(ensemble=[[HUGE]])),
        ("accuracy.json", lambda a: a.update(ensemble=[[float("nan")]])),
        ("accuracy.json", lambda a: a.update(classes_per_task=10**18)),
        ("accuracy.json", lambda a: a.update(class_names=["x"] * 1_000_000)),
        ("accuracy.json", lambda a: a.update(
            ensemble=[[0.5] * (i + 1) for i in range(300)], class_names=["x"] * 600)),
        ("environment.json", lambda e: e.update(torch=HUGE)),
        ("environment.json", lambda e: e.update(command={"a": [None]})),
    ],
)  # fmt: skip
def test_values_that_no_run_has_are_refused_or_shown_soon(
    name: str, edit: Callable[[Any], object], tmp_path: Path
) -> None:
    folder = fabricate(tmp_path, "er")
    change(folder / name, edit)
    start = time.process_time()
    try:
        runs = read_runs(tmp_path)
        said = max([*(table(runs, style) for style in STYLES), page(runs)], key=len)
    except UserError as error:
        said = str(error)
    assert len(said) < 10e6
    assert time.process_time() - start < SOON


@pytest.mark.parametrize(
    "line",
    [
        '{"batch": ' + "9" * 400 + ', "losses": {}}', '{"batch": 1e999, "losses": {}}', "[]", "",
        '{"batch": 1, "losses": {"base": 1e308}}', '{"batch": -1, "losses": {}}', "[" * 10_000,
        '{"batch": 1, "losses": ' + json.dumps({f"x{i}": 1 for i in range(200)}) + "}", "\0",
    ],
)  # fmt: skip
def test_a_junk_line_of_the_log_is_named(line: str, tmp_path: Path) -> None:
    path = fabricate(tmp_path, "er") / "steps.jsonl"
    path.write_text(f"{path.read_text()}{line}\n{path.read_text()}")
    number = path.read_text().split("\n").index(line) + 1
    with pytest.raises(UserError, match=rf"steps\.jsonl: line {number} is damaged"):
        page(read_runs(tmp_path))


def test_a_log_without_end_is_thinned_out(tmp_path: Path) -> None:
    path = fabricate(tmp_path, "er") / "steps.jsonl"
    path.write_text("".join(f'{{"batch": {i}, "losses": {{}}}}\n' for i in range(50_000)))
    steps = read_runs(tmp_path)[0].steps
    assert 5_000 < len(steps) <= 10_000
    assert (steps[0].batch, steps[-1].batch > 49_000) == (0, True)


@pytest.mark.parametrize("value", ["2001-01-01", "!!binary aGk=", "!!set {a, b}", "[{1: 2}]"])
def test_a_setting_of_a_kind_that_no_flag_has_is_refused(value: str, tmp_path: Path) -> None:
    path = fabricate(tmp_path, "er") / "config.yaml"
    path.write_text(path.read_text().replace("profile: paper", f"profile: {value}"))
    with pytest.raises(UserError, match=r"a setting is a .*, not a text, a number"):
        read_runs(tmp_path)


def test_settings_that_are_not_defined_do_not_break_a_table(tmp_path: Path) -> None:
    path = fabricate(tmp_path, "er", settings={"optim.lr": 0.5}) / "config.yaml"
    path.write_text(path.read_text().replace("lr: 0.5", "lr: .nan"))
    assert json.loads(table(read_runs(tmp_path), "json"))[0]["variant"] == {"lr": None}


NAMES = ["two\nlines", "\x1b[2J\x1b[31mred", "tab\there", "\r\n", "\u2028", "\ud800", "a|b & c\\"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", STYLES)
def test_a_row_stays_a_row_whatever_is_in_a_name(
    name: str, style: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fabricate(tmp_path, "er", names=[name] * 10)
    plain = len(table(read_runs(tmp_path), style).splitlines())
    for file in ("config.yaml", "summary.json"):
        text = json.dumps(name)
        content = (folder / file).read_text().replace('"data": "mini"', f'"data": {text}')
        content = content.replace("\ndata: mini\nmethod: er\n", f"\ndata: {text}\nmethod: {text}\n")
        (folder / file).write_text(content)
    assert main(["table", str(tmp_path), "--format", style]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == plain
    assert "\x1b" not in said
    drawn = page(read_runs(tmp_path))
    assert "\x1b" not in drawn
    drawn.encode()


def test_runs_of_before_pixels_counted_stand_beside_those_of_today(tmp_path: Path) -> None:
    today = {"fingerprint": "pixels-1", "old_fingerprint": "old"}
    fabricate(tmp_path, "er", seed=0, fingerprint="old")
    fabricate(tmp_path, "er", seed=1, **today)
    fabricate(tmp_path, "er+ccldc", seed=0, **today)
    (group,) = compare(read_runs(tmp_path))
    assert [(one.label, one.seeds) for one in group.series] == [("er", (0, 1)), ("er+ccldc", (0,))]
    assert group.series[1].gain is not None


def test_an_old_state_that_two_new_ones_may_be_stays_apart(tmp_path: Path) -> None:
    fabricate(tmp_path, "er", seed=0, fingerprint="old")
    for seed in (1, 2):
        today = {"fingerprint": f"pixels-{seed}", "old_fingerprint": "old"}
        fabricate(tmp_path, "er", seed=seed, **today)
    (group,) = compare(read_runs(tmp_path))
    assert len(group.series) == 3


@pytest.mark.parametrize("threads", ["many", -1, 10**30, None, [1]])
def test_a_machine_that_cannot_be_is_refused_before_it_is_used(
    threads: object, tmp_path: Path
) -> None:
    resolved = resolve("er")
    folder = fabricate(tmp_path, "er")
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("threads: 2", f"threads: {json.dumps(threads)}"))
    with pytest.raises(UserError, match=r"config\.yaml: MachineSettings: threads must be"):
        reconcile(RunFolder(folder), resolved)
