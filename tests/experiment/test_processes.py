"""Several processes, one folder."""

import json
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess as Process
from pathlib import Path

import pytest
from command import command, run_beside_others, run_small

from peerlearn import leases
from peerlearn.experiment import run as running
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import read_runs
from peerlearn.report import render as page
from peerlearn.results.formats import render as table

PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process; what it has imported need not be imported again by the others."""
    out = tmp_path_factory.mktemp("alone")
    assert run_small(out, "--net", "small", method="er") == 0
    return out


def start_together(out: Path, method: str, count: int) -> list[Process]:
    """So many processes that run the same command at the same time."""
    together = PROCESSES.Barrier(count)
    return [start(out, method, f"said{i}", together=together) for i in range(count)]


def start(
    out: Path, method: str, said: str, seconds: float = 0.05, together: object = None
) -> Process:
    """A process that runs the command; it takes some seconds for each batch."""
    words = (out, out.with_name(said), method, seconds, together)
    process = PROCESSES.Process(target=run_beside_others, args=words, daemon=True)
    process.start()
    return process


def until(seen: Callable[[], object]) -> None:
    """Wait for something to happen."""
    end = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.005)


def files(out: Path) -> dict[str, bytes]:
    """What must not depend on who made it."""
    names = ("accuracy.json", "config.yaml")
    return {
        str(path.relative_to(out)): path.read_bytes() for name in names for path in out.rglob(name)
    }


def test_of_four_with_one_command_one_trains_and_the_others_wait_and_reuse(
    alone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    for process in (started := start_together(out, "er", 4)):
        process.join()
    assert [process.exitcode for process in started] == [0] * 4
    said = [path.read_text() for path in sorted(tmp_path.glob("said*"))]
    assert sorted("was done before" in text for text in said) == [False, True, True, True]
    waiting = "another process is working on this run; waiting for it\n"
    for text in said:
        assert (waiting in text) == ("was done before" in text)
        assert text.count(waiting) <= 1
    assert files(out) == files(alone)


def test_several_runs_are_shared_out_and_nothing_is_made_twice(tmp_path: Path) -> None:
    out, methods = tmp_path / "runs", "er er_ace derpp"
    for process in (started := start_together(out, methods, 3)):
        process.join()
    assert [process.exitcode for process in started] == [0] * 3
    said = [path.read_text() for path in sorted(tmp_path.glob("said*"))]
    ended = [text.count(": done, ") for text in said]
    assert sum(ended) == 3
    assert max(ended) < 3  # who found a run taken went on with the next
    assert all(text.count(": done, ") + text.count("was done before") == 3 for text in said)
    assert command("table", str(out)) == 0


def test_who_waited_for_a_process_that_was_killed_goes_on_with_its_run(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    slow = start(out, "er", "slow", seconds=1.0)
    until(lambda: [*out.rglob("state.json")])
    patient, said = start(out, "er", "patient", seconds=0), tmp_path / "patient"
    until(lambda: said.exists() and "waiting for it" in said.read_text())
    slow.kill()
    patient.join()
    assert patient.exitcode == 0
    assert "goes on after batch" in said.read_text()
    (run,) = read_runs(out)
    assert run.done


def test_a_lock_that_the_system_refuses_is_not_another_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_small(tmp_path, "--net", "small", method="er") == 0
    (lease,) = tmp_path.rglob(".lease.*")
    (lease.parent / "summary.json").unlink()
    lease.unlink()
    lease.mkdir()
    capsys.readouterr()
    assert run_small(tmp_path, "--net", "small", method="er") == 2
    said = capsys.readouterr().err
    assert "cannot be locked (Is a directory)" in said
    assert "another process" not in said


def test_tables_and_pages_can_be_made_while_a_run_writes(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    process = start(out, "er", "said", seconds=0.1)
    until(lambda: [*out.rglob("summary.json")])
    seen = set()
    while process.is_alive():
        runs = read_runs(out)
        seen.add((runs[0].summary.status, len(runs[0].matrix)))
        assert json.loads(table(runs, "json"))
        assert "</html>" in page(runs)
    assert process.exitcode == 0
    assert len(seen) > 1


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    assert run_small(tmp_path, "--net", "small", method="er") == 0
    (path,) = (p.parent for p in tmp_path.rglob("summary.json"))
    writer = multiprocessing.get_context("fork").Process(target=write_on, args=(path,))
    writer.start()
    try:
        lengths = {len(read_runs(tmp_path)[0].matrix) for _ in range(50)}
    finally:
        writer.kill()
        writer.join()
    assert lengths <= {1, 5}


def write_on(path: Path) -> None:
    """Write until it is stopped."""
    folder = RunFolder(path)
    while True:
        folder.write_accuracy(["a"], 1, {"ensemble": [[0.5]], "peers": [], "ncm": None})


def test_a_process_that_was_robbed_of_its_run_leaves_its_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that was suspended for long, and wakes when another has taken its run over."""
    held, calls = leases.Lease.held, iter(range(1000))
    found: list[dict[str, bytes]] = []

    def lost(lease: leases.Lease) -> bool:
        if next(calls) < 12:
            return held(lease)
        found.append({str(path): path.read_bytes() for path in tmp_path.rglob("*.*json*")})
        return False

    monkeypatch.setattr(leases.Lease, "held", lost)
    assert run_small(tmp_path, "--net", "small", method="er") == 2
    assert "another process has taken this run over" in capsys.readouterr().err
    assert len(found) >= 1
    assert found[0]
    assert {str(path): path.read_bytes() for path in tmp_path.rglob("*.*json*")} == found[0]


def test_an_error_of_a_process_that_was_robbed_is_not_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.setattr(leases.Lease, "held", lambda _: False)
        raise ZeroDivisionError

    monkeypatch.setattr(running.Scores, "add", fail)
    with pytest.raises(ZeroDivisionError):
        run_small(tmp_path, "--net", "small", method="er")
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["status"] == "running"
