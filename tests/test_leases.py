import json
import multiprocessing
import os
import signal
import time
from multiprocessing.process import BaseProcess as Process
from pathlib import Path

import pytest

from peerlearn import leases
from peerlearn.leases import Watch, latest, leased

PROCESSES = multiprocessing.get_context("fork")
ELSEWHERE = {"host": "elsewhere", "pid": 1, "system": "another boot", "started": "1"}


def hold(folder: Path, seconds: float) -> None:
    with leased(folder):
        (folder / "held").touch()
        time.sleep(seconds)


def holder(folder: Path, seconds: float = 60) -> Process:
    """A process that holds a folder."""
    process = PROCESSES.Process(target=hold, args=(folder, seconds), daemon=True)
    process.start()
    while not (folder / "held").exists():
        time.sleep(0.005)
    return process


def lease_of_another_machine(folder: Path, number: int = 1) -> Path:
    path = folder / f".lease.{number}"
    path.write_text(json.dumps(ELSEWHERE))
    return path


def free(watch: Watch, folder: Path) -> bool:
    claim = latest(folder)
    assert claim
    return watch.available(folder, claim)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".lease"))


def refuse() -> None:
    raise LookupError("it is held")


def test_one_at_a_time_and_who_waits_is_told_once(tmp_path: Path) -> None:
    told: list[int] = []
    process = holder(tmp_path, 0.3)
    with leased(tmp_path, lambda: told.append(1)):
        assert told == [1]
        assert names(tmp_path) == [".lease.2"]
        with pytest.raises(LookupError), leased(tmp_path, refuse):
            pass
    process.join()


def test_numbers_go_on_when_a_lease_is_given_back(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with leased(tmp_path, refuse):
            assert names(tmp_path) == [f".lease.{number}"]
        assert names(tmp_path) == [f".lease.{number}.free"]


def test_the_lease_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path)
    os.kill(process.pid or 0, signal.SIGKILL)
    while leases._started(process.pid or 0) not in ("", leases.ENDED):
        time.sleep(0.005)
    with leased(tmp_path, refuse):  # before anybody has waited for the dead process
        assert names(tmp_path) == [".lease.2"]
    process.join()


def test_a_pid_that_another_process_has_now_is_not_the_owner(tmp_path: Path) -> None:
    owner = {**leases._myself(), "started": "1"}
    (tmp_path / ".lease.4").write_text(json.dumps(owner))
    with leased(tmp_path, refuse):
        assert names(tmp_path) == [".lease.5"]


def test_the_owner_on_another_machine_is_dead_when_nobody_touches_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, watch = lease_of_another_machine(tmp_path), Watch()
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert str(latest(tmp_path)) == "process 1 on elsewhere"
    assert not free(watch, tmp_path)
    for beat in range(1, 40):
        now[0] += leases.BEAT
        os.utime(path, ns=(beat, beat))
        assert not free(watch, tmp_path)
    while now[0] <= 39 * leases.BEAT + leases.STALE:
        assert not free(watch, tmp_path)
        now[0] += leases.BEAT
    assert free(watch, tmp_path)


def test_a_clock_that_is_hours_off_changes_nothing(tmp_path: Path) -> None:
    path, watch = lease_of_another_machine(tmp_path), Watch()
    for hours in (-5, 5):
        os.utime(path, (time.time() + 3600 * hours,) * 2)
        assert not free(watch, tmp_path)


def test_who_died_before_it_could_say_who_it_was_is_waited_for_like_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE", 0.2)
    (tmp_path / ".lease.1").touch()
    told: list[int] = []
    with leased(tmp_path, lambda: told.append(1)):
        assert names(tmp_path) == [".lease.2"]
    assert told == [1]


def test_a_taker_that_died_before_it_tidied_up_leaves_a_lease_that_can_be_taken(
    tmp_path: Path,
) -> None:
    (tmp_path / ".lease.1.free").touch()
    (tmp_path / ".lease.2").write_text(json.dumps({**leases._myself(), "started": "1"}))
    with leased(tmp_path, refuse):
        assert names(tmp_path) == [".lease.3"]


def test_what_one_has_watched_another_may_take_unless_it_was_touched_since(tmp_path: Path) -> None:
    path = lease_of_another_machine(tmp_path, 7)
    claim = latest(tmp_path)
    assert claim
    later = claim.touched + int(leases.BEAT * 1e9)
    os.utime(path, ns=(later, later))
    with pytest.raises(LookupError), leased(tmp_path, refuse, dead=claim.mark):
        pass
    claim = latest(tmp_path)
    assert claim
    rounded = (claim.number, claim.touched // 10**9 * 10**9)  # as another file system would
    with leased(tmp_path, refuse, dead=rounded):
        assert names(tmp_path) == [".lease.8"]


def test_an_owner_that_was_suspended_finds_that_it_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BEAT", 0.02)
    with leased(tmp_path, refuse) as lease:
        assert lease.held()
        assert not lease.doubtful
        lease_of_another_machine(tmp_path, 2)
        assert not lease.held()
        assert lease.doubtful
    assert names(tmp_path) == [".lease.1.free", ".lease.2"]  # the new owner keeps what it has


def test_an_owner_hears_of_its_loss_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BEAT", 0.02)
    with leased(tmp_path) as lease:
        (tmp_path / ".lease.1").unlink()  # as the owner after the next one does
        end = time.monotonic() + 10
        while not lease.doubtful:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_an_owner_that_slept_doubts_until_it_has_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leased(tmp_path, refuse) as lease:
        assert not lease.doubtful
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 100)
        assert lease.doubtful
        assert lease.held()
        assert not lease.doubtful


def test_who_slept_as_long_as_the_owner_does_not_take_it_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_of_another_machine(tmp_path)
    watch, now = Watch(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert not free(watch, tmp_path)
    now[0] += 10 * leases.STALE  # both were suspended
    assert not free(watch, tmp_path)
    while now[0] < 11.1 * leases.STALE:
        now[0] += 1
        dead = free(watch, tmp_path)
    assert dead


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, OSError])
def test_an_owner_that_the_system_hides_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def hidden(path: Path) -> bytes:
        raise error(1, "hidden", str(path))

    process = holder(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", hidden)
    with pytest.raises(LookupError), leased(tmp_path, refuse):
        pass
    process.kill()
    process.join()
    with leased(tmp_path, refuse):  # reaped: there is no such process
        pass


@pytest.mark.parametrize("meanwhile", [".lease.2.free", ".lease.3"])
def test_who_comes_late_with_its_number_does_not_get_the_folder(
    tmp_path: Path, meanwhile: str
) -> None:
    (tmp_path / ".lease.1.free").touch()
    claim = latest(tmp_path)
    assert claim
    (tmp_path / ".lease.1.free").rename(tmp_path / meanwhile)  # others were here
    assert leases._take(tmp_path, claim.number + 1) is None
    assert names(tmp_path) == [meanwhile]


def test_a_full_disk_leaves_no_lease_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"), leased(tmp_path):
            pass
    assert names(tmp_path) == []


def test_a_name_that_leads_nowhere_is_waited_for_not_spun_on(tmp_path: Path) -> None:
    (tmp_path / ".lease.1").symlink_to(tmp_path / "nowhere")
    assert latest(tmp_path) == leases.Claim(1)


def test_an_owner_touches_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT", 0.02)
    with leased(tmp_path):
        seen = set()
        end = time.monotonic() + 10
        while len(seen) < 3:
            assert time.monotonic() < end
            claim = latest(tmp_path)
            assert claim
            seen.add(claim.touched)
            time.sleep(0.01)


def contend(folder: Path, journal: Path, rounds: int) -> None:
    """Take a folder again and again; in it, write a line that must not be torn by another's."""
    leases.LOOK = 0.002
    for _ in range(rounds):
        with leased(folder), journal.open("a") as file:
            for word in ("in", "out"):
                file.write(f"{os.getpid()} {word}\n")
                file.flush()
                time.sleep(0.001)


def test_of_many_that_want_it_at_once_never_two_have_it(tmp_path: Path) -> None:
    lease_of_another_machine(tmp_path)
    os.replace(tmp_path / ".lease.1", tmp_path / ".lease.1.free")
    journal, rounds = tmp_path / "journal", 20
    many = [
        PROCESSES.Process(target=contend, args=(tmp_path, journal, rounds)) for _ in range(6)
    ]
    for process in many:
        process.start()
    for process in many:
        process.join()
    lines = journal.read_text().splitlines()
    assert len(lines) == 2 * rounds * len(many)
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert entered.split()[0] == left.split()[0]
        assert (entered.split()[1], left.split()[1]) == ("in", "out")
