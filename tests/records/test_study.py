"""study.json: what is written can be read, and what cannot be taken is refused in one line."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from peerlearn.errors import UserError
from peerlearn.records.study import (
    LONGEST_REASON,
    MOST_TRIALS,
    Range,
    Study,
    Trial,
    read_study,
    write_study,
)

SOON = 2.0  # seconds of computing


def study(**values: Any) -> Study:
    """A small study; momentum is there only with SGD."""
    trials = [
        Trial(number=0, state="done", value=0.4, running=[0.8, 0.4], seconds=12.5,
              settings={"optim.name": "adamw", "optim.lr": 0.001}, runs=["runs/trial0/seed0"]),
        Trial(number=1, state="pruned", running=[0.5], why="below the median after task 1",
              settings={"optim.name": "sgd", "optim.lr": 0.1, "optim.momentum": 0.9}),
    ]  # fmt: skip
    about: dict[str, Any] = {
        "method": "er+ccldc", "data": "mini", "memory": 200, "search": "tpe",
        "space": {"optim.name": ["adamw", "sgd"], "optim.lr": Range(low=1e-4, high=1, log=True),
                  "optim.momentum": [0.0, 0.9]},
        "stream": {"seeds": [100, 101], "images per class": 50, "shares": "the training images"},
        "evaluation": "The test images and seeds 0 to 9 were not touched.",
        "trials": trials, "wanted": 20, "best": 0, "importance": {"optim.lr": 0.75},
        "importance_by": "fANOVA over 1 trial", "peerlearn": "0.1.0",
        "command": ["peerlearn", "tune", "er+ccldc"],
    }  # fmt: skip
    return Study(**about | values)


def test_a_study_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    write_study(path, study())
    assert read_study(path) == study()
    assert json.loads(path.read_text())["schema"] == 1
    assert os.listdir(tmp_path) == ["study.json"]


def test_a_file_may_have_any_name_and_an_empty_study_is_one(tmp_path: Path) -> None:
    path, empty = tmp_path / "mine", study(trials=[], best=None, space={}, importance={})
    write_study(path, empty)
    assert read_study(path) == empty
    assert empty.best_trial is None


def test_the_best_trial_is_found_by_its_number() -> None:
    found = study().best_trial
    assert found is not None
    assert found.value == 0.4


def test_what_is_not_a_number_is_none_and_no_file_holds_nan(tmp_path: Path) -> None:
    trial = Trial(number=3, state="done", value=math.nan, seconds=math.inf,
                  running=[0.5, math.nan, 0.4], settings={"optim.lr": math.nan})  # fmt: skip
    assert (trial.value, trial.seconds, trial.settings) == (None, None, {"optim.lr": None})
    assert trial.running == [0.5]  # what follows an undefined one has no place in a curve
    importance = {"optim.lr": math.nan, "optim.name": 1.0000000002}
    whole = study(trials=[trial], best=None, importance=importance)
    assert whole.importance == {"optim.name": 1.0}
    write_study(tmp_path / "study.json", whole)
    text = (tmp_path / "study.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_study(tmp_path / "study.json") == whole


def test_a_whole_number_stays_one_and_a_truth_a_truth(tmp_path: Path) -> None:
    trial = Trial(number=0, state="running", settings={"a": 2, "b": True, "c": [1, "x"], "d": None})
    write_study(tmp_path / "study.json", study(trials=[trial], best=None))
    settings = read_study(tmp_path / "study.json").trials[0].settings
    assert [type(value) for value in settings.values()] == [int, bool, list, type(None)]


def test_a_reason_is_one_line_of_bearable_length() -> None:
    trial = Trial(number=0, state="failed", why="out of memory\nTraceback\n" + "x" * 5000)
    assert trial.why.startswith("out of memory Traceback x")
    assert len(trial.why) == LONGEST_REASON


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        study().wanted = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: c.pop("schema"), "schema is None, not 1"),
        (lambda c: c.update(schema=99), "schema 99 is newer than 1; update peerlearn"),
        (lambda c: c.update(method=3), "method is 3, not a text"),
        (lambda c: c.update(memory=True), "memory is True, not a whole number"),
        (lambda c: c.update(search="luck"), "search is 'luck', not one of grid, tpe"),
        (lambda c: c.update(metric="loss"), "metric is 'loss', not one of AA"),
        (lambda c: c.update(space=[]), "space is [], not a mapping"),
        (lambda c: c["space"].update(x=3), "neither a list nor a range"),
        (lambda c: c.update(best=1), "best is 1, which is no trial with a result"),
        (lambda c: c.update(best=77), "best is 77, which is no trial with a result"),
        (lambda c: c["importance"].update(x=1.5), "importance.x is 1.5, not at most 1"),
        (lambda c: c["trials"].append(c["trials"][0]), "two trials have the same number"),
        (lambda c: c["trials"][0].update(value=45.6), "45.6 is not between 0 and 1"),
        (lambda c: c["trials"][0].update(state="lost"), "trials.0.state is 'lost', not one of"),
        (lambda c: c["trials"][0].update(seconds=-1), "-1 seconds are less than none"),
        (lambda c: c["trials"][0].update(number=-1), "trials.0.number is -1, not at least 0"),
        (lambda c: c["trials"][0].update(running=[2]), "trials.0.running.0 is 2, not at most 1"),
        (lambda c: c["trials"][0].update(runs="x"), "trials.0.runs is 'x', not a list"),
        (lambda c: c["trials"].extend([{}] * MOST_TRIALS), "trials.2.number is None"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line_with_the_place_and_the_next_action(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], said: str
) -> None:
    path = tmp_path / "study.json"
    write_study(path, study())
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as raised:
        read_study(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert said in message
    assert "peerlearn tune" in message or "update peerlearn" in message
    assert f"delete {tmp_path}" not in message  # the folder holds the trials' runs


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\0", b"[]", b"", b"[" * 100_000, b"9" * 5000, b'{"schema": 1', b"\0" * 99]
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "study.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"study\.json: .*; restore it, or delete the file"):
        read_study(path)


def test_what_is_missing_or_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the file is missing; restore it"):
        read_study(tmp_path / "study.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is not a plain file"):
        read_study(tmp_path / "pipe")


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    write_study(path, study())
    content = json.loads(path.read_text())
    content["new"] = content["trials"][0]["new"] = {"x": 1}
    path.write_text(json.dumps(content))
    assert read_study(path) == study()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none/study\.json: cannot be written \(No such file"):
        write_study(tmp_path / "none" / "study.json", study())


def test_the_most_trials_there_may_be_are_written_and_read_soon(tmp_path: Path) -> None:
    settings = {f"group{k}.setting": 1.2345678901234567 * k for k in range(8)}
    trials = [
        Trial(number=n, state="done", value=0.123456789012345, running=[0.123456789012345] * 10,
              settings=settings, runs=[f"runs/mini/er+ccldc/m200/trial{n}/seed{k}" for k in (0, 1)])
        for n in range(MOST_TRIALS)
    ]  # fmt: skip
    write_study(tmp_path / "study.json", study(trials=trials))
    start = time.process_time()
    assert len(read_study(tmp_path / "study.json").trials) == MOST_TRIALS
    assert time.process_time() - start < SOON


def test_the_record_of_a_search_needs_neither_torch_nor_optuna() -> None:
    code = (
        "import sys, peerlearn.records.study; "
        "sys.exit(bool({'torch', 'optuna'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
