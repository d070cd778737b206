"""Sweeps of stubs: what is done, tried again, given up, and never done twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from peerlearn import leases
from peerlearn.leases import leased
from peerlearn.studies import sweep as sweep_module
from peerlearn.studies.executor import Processes
from peerlearn.studies.process import Child
from peerlearn.studies.state import ERROR_LOG, Planned, state
from peerlearn.studies.sweep import Sweep, finished, sweep
from studies.jobs import Silent, jobs_of, stories
from studies.stub import STEPS, command


def processes(journal: Path, jobs: int = 6, **options: float) -> Processes:
    return Processes(jobs, command=command(journal, **options))


def test_every_run_is_made_once(tmp_path: Path) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 8), tmp_path / "journal"
    whole = sweep(jobs, processes(journal), Silent())
    assert [one.how for one in whole.results.values()] == ["done"] * 8
    assert all(finished(job) for job in jobs)
    assert {story[:2] for story in stories(journal).values()} == {(1, 1)}


def test_a_second_sweep_does_only_what_is_missing(tmp_path: Path) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 6), tmp_path / "journal"
    sweep(jobs[:4], processes(journal), Silent())
    whole = sweep(jobs, processes(journal), Silent())
    assert sorted(one.how for one in whole.results.values()) == ["done"] * 2 + ["elsewhere"] * 4
    assert {story[:2] for story in stories(journal).values()} == {(1, 1)}


def test_runs_whose_processes_die_go_on_from_what_they_saved(tmp_path: Path) -> None:
    jobs, journal, view = jobs_of(tmp_path / "runs", 12), tmp_path / "journal", Silent()
    whole = sweep(jobs, processes(journal, deaths=0.5), view, retries=50)
    assert {one.how for one in whole.results.values()} == {"done"}
    told = stories(journal)
    assert view.deaths == sum(story.begun for story in told.values()) - 12 > 0
    assert {story[1:] for story in told.values()} == {(1, 0, 0)}


def test_a_run_that_dies_again_and_again_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    jobs, journal, view = jobs_of(tmp_path / "runs", 4), tmp_path / "journal", Silent()
    whole = sweep(jobs, processes(journal, always=2), view, retries=2)
    bad = whole.results[jobs[2].key]
    assert [one.how for one in whole.results.values()].count("done") == 3
    assert (bad.how, view.deaths) == ("failed", 2)
    assert "ended by SIGKILL" in (jobs[2].folder.path / ERROR_LOG).read_text()
    found = state(tmp_path / "runs", Planned(jobs[2].key, "run", "kind", 5))
    assert found.kind == "failed"
    assert found.note == "ended by SIGKILL, perhaps for lack of memory"


def test_what_exceeds_memory_is_tried_again_and_what_is_a_bug_is_not(tmp_path: Path) -> None:
    jobs, journal, view = jobs_of(tmp_path / "runs", 4), tmp_path / "journal", Silent()
    whole = sweep(jobs, processes(journal, fails=1, memory=3), view, retries=2)
    assert [whole.results[job.key].how for job in jobs] == ["done", "failed", "done", "failed"]
    assert view.deaths == 2  # of the one that lacks memory
    ended = whole.results[jobs[1].key].ended
    assert ended
    assert ended.last_line == "ValueError: a bug"


def test_a_failure_is_forgotten_when_the_run_is_tried_again(tmp_path: Path) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 1), tmp_path / "journal"
    sweep(jobs, processes(journal, fails=0), Silent())
    assert (jobs[0].folder.path / ERROR_LOG).exists()
    sweep(jobs, processes(journal), Silent())
    assert not (jobs[0].folder.path / ERROR_LOG).exists()


def test_a_run_that_another_process_holds_is_waited_for_and_not_started(tmp_path: Path) -> None:
    (job,), journal = jobs_of(tmp_path / "runs", 1), tmp_path / "journal"
    job.folder.path.mkdir(parents=True)
    whole = Sweep(processes(journal), Silent())
    whole.add(job)
    with leased(job.folder.path):
        for _ in range(3):
            whole.turn()
        assert whole.elsewhere
        assert not journal.exists()
    while whole.left:
        whole.turn()
    assert whole.results[job.key].how == "done"


def test_the_run_of_a_machine_that_vanished_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE", 0.5)
    (job,), journal = jobs_of(tmp_path / "runs", 1), tmp_path / "journal"
    job.folder.path.mkdir(parents=True)
    owner = {"host": "elsewhere", "pid": 1, "system": "another boot", "started": "1"}
    (job.folder.path / ".lease.1").write_text(json.dumps(owner))
    whole = sweep([job], processes(journal), Silent())  # its process never watched the lease
    assert whole.results[job.key].how == "done"


def test_a_process_that_is_stuck_is_ended_and_its_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE", 1.0)
    monkeypatch.setattr(sweep_module, "BEAT", 0.1)
    (job,), journal, view = jobs_of(tmp_path / "runs", 1), tmp_path / "journal", Silent()
    whole = Sweep(processes(journal, seconds=1), view)
    whole.add(job)
    while not stories(journal):
        whole.turn()
    (pid,) = {json.loads(line)[1] for line in journal.read_text().splitlines()}
    os.kill(pid, signal.SIGSTOP)
    while whole.left:
        whole.turn()
    assert (whole.results[job.key].how, view.deaths) == ("done", 1)


def test_a_process_that_says_busy_where_nobody_is_is_not_started_for_ever(tmp_path: Path) -> None:
    (job,) = jobs_of(tmp_path / "runs", 1)
    never = Processes(2, command=(sys.executable, "-c", "raise SystemExit(84)"))
    view = Silent()
    whole = sweep([job], never, view, retries=2)
    assert (whole.results[job.key].how, view.deaths) == ("failed", 2)


def test_a_process_that_leaves_another_behind_has_ended_all_the_same(tmp_path: Path) -> None:
    (job,) = jobs_of(tmp_path / "runs", 1)
    code = "import subprocess; subprocess.Popen(['sleep', '30']); print('bye')"
    begin = time.monotonic()
    whole = sweep([job], Processes(1, command=(sys.executable, "-c", code)), Silent(), retries=0)
    ended = whole.results[job.key].ended
    assert ended
    assert ended.last_line == "bye"
    assert time.monotonic() - begin < 20


def test_a_system_that_fails_for_a_moment_ends_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 3), tmp_path / "journal"
    real, calls = sweep_module.latest, iter(range(100))

    def stale(folder: Path) -> object:
        if next(calls) % 3 == 1:
            raise OSError(116, "Stale file handle")
        return real(folder)

    monkeypatch.setattr(sweep_module, "latest", stale)
    executor, tries = processes(journal), iter(range(100))
    start = executor.start

    def refused(*words: Any) -> None:
        if next(tries) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        start(*words)

    monkeypatch.setattr(executor, "start", refused)
    whole = sweep(jobs, executor, Silent())
    assert {one.how for one in whole.results.values()} == {"done"}


def test_one_run_can_be_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 2), tmp_path / "journal"
    whole = Sweep(processes(journal, seconds=1), Silent())
    for job in jobs:
        whole.add(job)
    while not journal.exists() or jobs[0].key not in stories(journal):
        whole.turn()
    whole.stop(jobs[0].key)
    while whole.left:
        whole.turn()
    assert [whole.results[job.key].how for job in jobs] == ["stopped", "done"]
    assert stories(journal)[jobs[0].key].ended == 0


def test_a_process_stops_and_saves_when_its_parent_is_killed(tmp_path: Path) -> None:
    (job,), journal = jobs_of(tmp_path / "runs", 1), tmp_path / "journal"
    code = (
        "import json, sys, time\n"
        "from peerlearn.studies.process import Child\n"
        "child = Child(json.loads(sys.argv[1]), json.loads(sys.argv[2]))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)"
    )
    words = [json.dumps(job.spec()), json.dumps(command(journal, seconds=2))]
    parent = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
    assert parent.stdout
    child = int(parent.stdout.readline())
    while not journal.exists():
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    until_gone(child)
    assert stories(journal)[job.key].ended == 0
    assert 0 < int((job.folder.path / "progress").read_text()) < STEPS
    assert Child(job.spec(), command(journal)).wait().how == "done"


def until_gone(pid: int) -> None:
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").exists():
        with open(f"/proc/{pid}/stat", "rb") as file:
            if b") Z" in file.read():
                return
        assert time.monotonic() < end
        time.sleep(0.02)


MAIN = """
import sys
from pathlib import Path
from studies.jobs import Silent, jobs_of
from studies.stub import command
from peerlearn.studies import sweep as sweep_module
from peerlearn.studies.executor import Processes
from peerlearn.studies.sweep import sweep
out, runs, jobs, deaths, seconds = sys.argv[1:]
executor = Processes(
    int(jobs), command=command(Path(out, "journal"), deaths=deaths, seconds=seconds)
)
whole = sweep(jobs_of(Path(out, "runs"), int(runs)), executor, Silent(), retries=1000)
sys.exit(sum(one.how not in ("done", "elsewhere") for one in whole.results.values()))
"""


def start_sweep(
    out: Path, runs: int, *, deaths: float = 0.0, seconds: float = 0.2
) -> subprocess.Popen[bytes]:
    words = [str(out), str(runs), "6", str(deaths), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", MAIN, *words], env=environment)


@pytest.mark.slow
def test_two_sweeps_on_one_folder_with_deaths_make_every_run_once(tmp_path: Path) -> None:
    both = [start_sweep(tmp_path, 40, deaths=0.3) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    told = stories(tmp_path / "journal")
    assert len(told) == 40
    assert {story[1:] for story in told.values()} == {(1, 0, 0)}


@pytest.mark.slow
def test_a_sweep_that_is_killed_twice_and_started_again_loses_nothing(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(2):
        before = sum(story.begun for story in stories(tmp_path / "journal").values())
        one = start_sweep(tmp_path, 30, deaths=0.3)
        while sum(story.begun for story in stories(tmp_path / "journal").values()) == before:
            time.sleep(0.05)
        time.sleep(rng.uniform(0.5, 1.5))
        one.send_signal(signal.SIGKILL)
        one.wait()
    assert start_sweep(tmp_path, 30, deaths=0.3).wait() == 0
    told = stories(tmp_path / "journal")
    assert len(told) == 30
    assert {story[1:] for story in told.values()} == {(1, 0, 0)}


@pytest.mark.slow
def test_ctrl_c_lets_runs_save_and_the_same_command_goes_on(tmp_path: Path) -> None:
    one = start_sweep(tmp_path, 12, seconds=1.0)
    while not (tmp_path / "journal").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    one.send_signal(signal.SIGINT)
    assert one.wait() > 0
    before = stories(tmp_path / "journal")
    assert start_sweep(tmp_path, 12).wait() == 0
    told = stories(tmp_path / "journal")
    assert len(told) == 12
    assert all(story[1:] == (1, 0, 0) for story in told.values())
    assert all(told[key].begun == story.begun + (not story.ended) for key, story in before.items())
