"""What a person sees of many runs: on a terminal, in a file, and from another terminal."""

import io
import json
import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fabricate import fabricate

from peerlearn import cli
from peerlearn.leases import leased
from peerlearn.studies import state as states_of_runs
from peerlearn.studies.executor import Processes
from peerlearn.studies.job import Job
from peerlearn.studies.many import planned, wall_seconds
from peerlearn.studies.picture import Tally, listed, picture, short_names
from peerlearn.studies.process import Ended
from peerlearn.studies.state import (
    ERROR_LOG,
    Planned,
    State,
    at_work,
    reason,
    slots_at_work,
    state,
    states,
    write_plan,
)
from peerlearn.studies.sweep import Result, Sweep
from peerlearn.studies.view import Lines
from studies.jobs import jobs_of

LABEL = "er mini m20 train_per_class=5,width=1 seed {}"


def run(seed: int, label: str = LABEL, tasks: int = 5) -> Planned:
    return Planned(f"mini/er/seed{seed}", label.format(seed), "er", tasks)


class Terminal(io.StringIO):
    """A terminal of some size, and what stands on it in the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        rows: list[str] = []
        for text in re.split(r"(\x1b\[\d+A\r\x1b\[J)", self.getvalue()):
            if text.startswith("\x1b"):
                rows = rows[: len(rows) - int(text[2:].partition("A")[0])]
            else:
                rows += text.split("\n")[:-1]
        return rows


# ---- words ----


def test_runs_are_named_by_what_differs_and_the_rest_is_said_once() -> None:
    labels = ["er mini m20 lr=0.1,width=1 seed 0", "er+ccldc mini m20 width=1 seed 0"]
    names, shared = short_names([Planned(str(i), text, "", 5) for i, text in enumerate(labels)])
    assert (list(names.values()), shared) == (["er lr=0.1", "er+ccldc"], "mini m20 width=1 seed 0")


def test_a_single_run_keeps_its_name() -> None:
    assert short_names([run(0)]) == ({run(0).key: run(0).label}, "")


def test_a_narrow_terminal_cuts_the_name_and_not_what_changes() -> None:
    one = State(run(0), "running", task=2, aa=0.5)
    (line,) = listed([one], {}, width=40)
    assert line == "  er mini m20 tr..: task 3 of 5, AA 50.0"


def test_of_many_runs_under_way_the_first_are_listed() -> None:
    lines = listed([State(run(seed), "running") for seed in range(30)], {}, more=5)
    assert len(lines) == 13
    assert lines[-1] == "  and 23 more"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], ""),
        (["task 1", "peerlearn: the disk is full", ""], "the disk is full"),
        (["Traceback (most recent call last):", "  File", "ValueError: x", "y"], "ValueError: x"),
        (["Traceback (most recent call last):", "  File", "MyError"], "MyError"),
        (["batch 3", "ended by SIGKILL"], "ended by SIGKILL"),
    ],
)
def test_a_failure_is_told_by_its_error_also_where_that_has_two_lines(
    said: list[str], why: str
) -> None:
    assert reason(said) == why


# ---- time that is left ----


def test_time_left_counts_runs_that_wait_and_what_is_left_of_those_under_way() -> None:
    tally = Tally(2)
    assert tally.left(["er"]) == ""
    tally.finished("er", 100.0)
    half = State(run(0), "running")
    assert tally.left(["er", "er"], [(half, 50.0), (half, 50.0)]) == "about 2 min 30 s left"
    assert tally.left([], [(half, 500.0)]) == "about 1 s left"
    assert tally.left(["gsa"]) == "about 1 min 40 s left"  # one run has no use for two slots
    assert tally.left([]) == ""


def test_before_the_first_run_has_ended_its_tasks_tell_how_long_it_takes() -> None:
    one = State(run(0), "running", task=1, seconds=20.0)
    assert Tally(1).left([], [(one, 20.0)]) == "about 1 min 20 s left"


def test_a_resumed_run_is_judged_by_its_tasks_not_by_its_clock() -> None:
    tally = Tally(1)
    tally.finished("er", 100.0)
    assert tally.left([], [(State(run(0), "running", task=4), 0.0)]) == "about 20 s left"


def test_runs_of_unequal_length_end_with_the_last_one() -> None:
    assert wall_seconds([10.0, 1.0, 1.0], 2) == 10.0
    assert wall_seconds([10.0], 8) == 10.0
    assert wall_seconds([], 2) == 0.0


# ---- from files ----


def test_status_sees_done_running_failed_and_left(tmp_path: Path) -> None:
    keys = [
        fabricate(tmp_path, seed=0),
        fabricate(tmp_path, seed=1, status="running", reached=2),
        fabricate(tmp_path, seed=2, status="running", reached=1),
    ]
    (keys[2] / ERROR_LOG).write_text("Traceback (most recent call last):\n  x\nValueError: no\non")
    runs = [
        Planned(path.relative_to(tmp_path).as_posix(), f"er seed {i}", "er", 5)
        for i, path in enumerate(keys)
    ]
    runs.append(Planned("mini/er/m200/seed3", "er seed 3", "er", 5))
    with leased(keys[1]):
        found = states(tmp_path, runs)
        assert [one.kind for one in found] == ["done", "running", "failed", "left"]
        assert [one.task for one in found] == [5, 2, 1, 0]
        lines = picture(found)
    assert re.match("er: 1 of 4 done, 1 running, 1 left, 1 failed, about .* left$", lines[0])
    assert lines[1].startswith("  seed 1: task 3 of 5, AA ")
    assert lines[2:] == ["failed:", "  seed 2: ValueError: no"]


def test_what_is_done_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fabricate(tmp_path)
    one = Planned(path.relative_to(tmp_path).as_posix(), "er", "er", 5)
    first = states(tmp_path, [one])
    monkeypatch.setattr(states_of_runs, "state", None)
    assert states(tmp_path, [one], first) == first


def test_a_failed_run_that_a_sweep_begins_anew_is_not_shown_as_failed(tmp_path: Path) -> None:
    path = fabricate(tmp_path, status="failed", reached=1)
    one = Planned(path.relative_to(tmp_path).as_posix(), "er", "er", 5)
    assert [s.kind for s in states(tmp_path, [one])] == ["failed"]
    assert [s.kind for s in states(tmp_path, [one], busy=True)] == ["left"]


def test_a_sweep_at_work_is_seen_until_it_ends_or_dies(tmp_path: Path) -> None:
    write_plan(tmp_path, "plan", [run(0)])
    assert slots_at_work(tmp_path) == 0
    with at_work(tmp_path, 3), at_work(tmp_path, 2):
        assert slots_at_work(tmp_path) == 5
    assert slots_at_work(tmp_path) == 0
    dead = tmp_path / ".sweeps" / "at-work-dead"
    dead.mkdir()
    (dead / ".lease.1").write_text("{}")
    os.utime(dead / ".lease.1", (0, 0))
    assert slots_at_work(tmp_path) == 0
    with at_work(tmp_path, 3):
        assert not dead.exists()


def test_status_says_who_goes_on_with_what_nobody_works_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plan(tmp_path, "plan", [run(0), run(1)], "peerlearn sweep 'my grid.yaml'")
    assert cli.main(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "er mini m20 train_per_class=5,width=1: 0 of 2 done, 0 running, 2 left, 0 failed",
        "  nobody is working on what is left; to go on:",
        "  peerlearn sweep 'my grid.yaml'",
    ]
    with at_work(tmp_path, 2):
        cli.main(["status", str(tmp_path)])
        assert "nobody" not in capsys.readouterr().out


def test_a_narrow_terminal_cuts_nothing_from_the_command_that_goes_on() -> None:
    command = "peerlearn sweep er er+ccldc --memory 20 --out somewhere/far/away"
    lines = picture([State(run(0), "left")], commands=[command], width=30)
    assert max(map(len, lines)) <= 30
    assert command in "".join(lines)


def test_status_gives_programs_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plan(tmp_path, "plan", [run(seed) for seed in range(40)])
    assert cli.main(["status", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 40
    assert found[0] == {
        "folder": "mini/er/seed0", "run": LABEL.format(0), "state": "left", "tasks": 5,
        "done_tasks": 0, "AA": None, "seconds": 0.0, "note": None,
    }  # fmt: skip


def test_following_ends_when_no_run_is_left_and_repeats_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [fabricate(tmp_path, seed=seed, status="running", reached=4) for seed in (0, 1)]
    held = ExitStack()
    for path in paths:
        held.enter_context(leased(path))
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:  # two looks that show nothing new, then the end
            held.close()
            for path in paths:
                summary = json.loads((path / "summary.json").read_text())
                (path / "summary.json").write_text(json.dumps({**summary, "status": "done"}))

    monkeypatch.setattr("peerlearn.cli.status.time.sleep", sleep)
    assert cli.main(["status", str(tmp_path), "--follow"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(looks) == 3
    assert [line for line in shown if "of 2 done" in line] == [
        shown[0], "2 of 2 done, 0 running, 0 left, 0 failed",
    ]  # fmt: skip


def test_a_damaged_plan_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".sweeps").mkdir()
    for text in ("", "[]", '{"runs": 3}', '{"runs": [["../x", "", "", 1]]}', '{"runs": [[1]]}'):
        (tmp_path / ".sweeps" / "plan.json").write_text(text)
        assert cli.main(["status", str(tmp_path)]) == 2
        assert "plan.json: is damaged; delete it" in capsys.readouterr().err


# ---- while it goes on ----


class Watched:
    """A sweep of which a view is told by hand."""

    def __init__(self, out: Path, stream: Any, runs: int = 4, done: int = 0) -> None:
        self.jobs: list[Job] = jobs_of(out, runs)
        known = {job.key: planned(job) for job in self.jobs}
        self.view = Lines(known, done, 2, stream)
        self.sweep = Sweep(Processes(2), self.view)
        for job in self.jobs[done:]:
            self.sweep.add(job)
        self.view.begin(runs - done, "2 at once")

    def start(self) -> Job:
        job = self.sweep.waiting.popleft()
        self.sweep.running[job.key] = job
        self.view.started(job)
        return job

    def end(self, job: Job, how: str = "done", *said: str, seconds: float = 60.0) -> None:
        del self.sweep.running[job.key]
        done = how in ("done", "failed")
        self.view.result(Result(job, how, Ended(how if done else "died", said, seconds)))

    def look(self) -> None:
        self.view._shown = -1e9
        self.view.show(self.sweep)


def test_a_file_gets_a_line_for_each_end_with_the_time_that_is_left(tmp_path: Path) -> None:
    stream = io.StringIO()
    seen = Watched(tmp_path, stream, done=1)
    first, second = seen.start(), seen.start()
    seen.view.show(seen.sweep)
    seen.end(first)
    seen.end(second, "failed", "Traceback (most recent call last):", "  x", "ValueError: two", "2")
    assert stream.getvalue().splitlines() == [
        "3 runs to do, 1 done before, all er mini m200; 2 at once",
        "[2/4] seed 1: done, AA -, 1 min 0 s; about 1 min 0 s left",
        "[3/4] seed 2: failed, ValueError: two",
    ]


def test_a_file_is_told_now_and_then_that_it_goes_on(tmp_path: Path) -> None:
    stream = io.StringIO()
    seen = Watched(tmp_path, stream)
    seen.start()
    seen.look()
    seen.view.show(seen.sweep)
    assert stream.getvalue().splitlines()[1:] == ["0 of 4 done, 1 running, 3 left, 0 failed"]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_has_a_block_that_stays_below_the_lines(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(monkeypatch, columns)
    seen = Watched(tmp_path, terminal)
    first, _ = seen.start(), seen.start()
    seen.look()
    seen.end(first)
    seen.start()
    seen.look()
    screen = terminal.screen()
    assert screen[1] == "[1/4] seed 0: done, AA -, 1 min 0 s"
    head = "1 of 4 done, 2 running, 1 left, 0 failed, about 1 min 30 s left"
    assert " ".join(screen[2:-2]) == head
    assert screen[-2:] == ["  seed 1: task 1 of 5, 0.0 s", "  seed 2: task 1 of 5, 0.0 s"]
    assert max(map(len, screen[2:])) < columns
    seen.view.close()
    assert terminal.screen()[2:] == []


def test_a_low_terminal_is_not_overrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, 80, 6)
    seen = Watched(tmp_path, terminal, runs=20)
    for _ in range(18):
        seen.start()
    seen.look()
    seen.look()
    assert len(terminal.screen()) == 1 + 5


def test_who_stops_a_sweep_is_told_at_once_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(monkeypatch, 120)
    seen = Watched(tmp_path, terminal)
    job = seen.start()
    seen.sweep.waiting.clear()
    seen.look()
    head = "0 of 4 done, 1 running, 3 left, 0 failed, stopping: runs save; Ctrl-C again ends them"
    assert terminal.screen()[1] == head
    seen.end(job, "stopped")
    seen.view.end((), 4)
    assert terminal.screen()[1:] == [
        "[0/4] seed 0: stopped and saved",
        "stopped and saved, 4 runs left; the same command goes on",
    ]


def test_a_death_is_told_with_the_try_that_follows(tmp_path: Path) -> None:
    stream = io.StringIO()
    seen = Watched(tmp_path, stream)
    job = seen.start()
    seen.view.again(job, Ended("died", ("ended by SIGKILL",)), 1)
    assert stream.getvalue().splitlines()[1:] == [
        "seed 0: ended by SIGKILL; goes on from its checkpoint (try 2)"
    ]


def test_failures_are_listed_at_the_end_with_folder_and_reason_and_many_are_cut(
    tmp_path: Path,
) -> None:
    stream = io.StringIO()
    seen = Watched(tmp_path, stream, runs=25)
    failed = [Result(job, "failed", Ended("failed", ("peerlearn: no",))) for job in seen.jobs]
    seen.view.end(failed, 0)
    lines = stream.getvalue().splitlines()[1:]
    assert lines[0] == f"failed: {seen.jobs[0].folder.path}: no"
    assert lines[20:] == [
        f"and 5 more; peerlearn status {tmp_path} --json has them all",
        "25 runs failed; error.log in their folders has what was said",
    ]


def test_work_goes_on_when_nobody_reads(tmp_path: Path) -> None:
    stream = io.StringIO()
    seen = Watched(tmp_path, stream)
    stream.close()
    seen.view._write("nobody")


def test_a_run_that_began_is_read_where_it_lies(tmp_path: Path) -> None:
    path = fabricate(tmp_path, reached=3, status="running")
    one = state(tmp_path, Planned(path.relative_to(tmp_path).as_posix(), "er", "er", 5))
    assert (one.kind, one.task) == ("left", 3)
