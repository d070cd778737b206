"""The same runs on a Ray cluster of two nodes on loopback."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peerlearn.errors import UserError
from peerlearn.studies import cluster
from peerlearn.studies.cluster import Cluster, on_node
from peerlearn.studies.share import Share
from peerlearn.studies.sweep import Sweep, finished, sweep
from studies.jobs import Silent, jobs_of, stories
from studies.nodes import lose_a_node, lose_the_head, ray_workers, two_nodes
from studies.stub import command


def with_ray(test: Any) -> Any:
    """Mark a test that needs Ray, which must not be imported before its variables are set."""
    there = importlib.util.find_spec("ray")
    return pytest.mark.slow(pytest.mark.skipif(not there, reason="needs Ray")(test))


TINY = (
    *("--data", "mini", "--memory", "20", "--width", "1", "--net", "small"),
    *("--train-per-class", "2", "--test-per-class", "2"),
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with two_nodes(cpus=3) as found:
        yield found


def peerlearn(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    started = [sys.executable, "-m", "peerlearn", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        started, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_an_address_at_which_nobody_answers_fails_within_seconds_in_one_line() -> None:
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"--ray 127\.0\.0\.1:1: nobody answers"):
        Cluster("127.0.0.1:1", Share())
    assert time.monotonic() - begin < cluster.CONNECT + 1


@pytest.mark.parametrize("address", ["nonsense", "host:port", "host:99999999", ":"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(UserError, match="is no address"):
        Cluster(address, Share())


def test_without_the_extra_one_line_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(cluster, "_runs_here", lambda: False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(UserError, match=r"pip install 'peerlearn\[ray\]'"):
        Cluster("auto", Share())


@with_ray
def test_every_run_is_made_once_though_processes_die(address: str, tmp_path: Path) -> None:
    jobs, journal, view = jobs_of(tmp_path / "runs", 20), tmp_path / "journal", Silent()
    executor = Cluster(address, Share(), command=command(journal, deaths=0.4))
    assert str(executor) == "6 at once on 2 nodes of Ray"
    whole = sweep(jobs, executor, view, retries=100)
    assert {one.how for one in whole.results.values()} == {"done"}
    told = stories(journal)
    assert view.deaths == sum(story.begun for story in told.values()) - 20 > 0
    assert {story[1:] for story in told.values()} == {(1, 0, 0)}


@with_ray
def test_workers_of_ray_that_are_killed_cost_nothing_but_time(address: str, tmp_path: Path) -> None:
    jobs, journal, view = jobs_of(tmp_path / "runs", 12), tmp_path / "journal", Silent()
    executor = Cluster(address, Share(), command=command(journal, seconds=1))
    over = threading.Event()
    killed = []

    def kill() -> None:
        while not over.wait(1.0):
            for pid in ray_workers()[:2]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        whole = Sweep(executor, view, retries=100)
        for job in jobs:
            whole.add(job)
        while whole.left:
            whole.turn()
            if len(killed) > 6:
                over.set()
    finally:
        over.set()
        killer.join()
        executor.close()
    assert {one.how for one in whole.results.values()} <= {"done", "elsewhere"}
    assert killed
    told = stories(journal).values()  # one that was killed when all was done says no more of it
    assert all(story.ended <= 1 and story[2:] == (0, 0) for story in told)
    assert all(finished(job) for job in jobs)


@with_ray
def test_a_run_can_be_stopped_and_saves(address: str, tmp_path: Path) -> None:
    _stop_a_run(address, tmp_path)


@with_ray
def test_a_run_can_be_stopped_where_interrupts_were_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script does for what it puts aside
    try:
        with two_nodes(cpus=1) as found:
            _stop_a_run(found, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


def _stop_a_run(address: str, tmp_path: Path) -> None:
    (job,), journal = jobs_of(tmp_path / "runs", 1), tmp_path / "journal"
    executor = Cluster(address, Share(), command=command(journal, seconds=20))
    whole = Sweep(executor, Silent())
    whole.add(job)
    while not stories(journal):
        whole.turn()
    whole.stop(job.key)
    while whole.left:
        whole.turn()
    executor.close()
    assert whole.results[job.key].how == "stopped"
    assert (job.folder.path / "progress").exists()


@with_ray
def test_nodes_that_share_no_folder_send_their_files_back(address: str, tmp_path: Path) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 6), tmp_path / "journal"
    executor = Cluster(address, Share(), fetch=True, command=command(journal, deaths=0.3))
    whole = sweep(jobs, executor, Silent(), retries=100)
    assert {one.how for one in whole.results.values()} == {"done"}
    assert all(finished(job) for job in jobs)
    assert {story[1:3] for story in stories(journal).values()} == {(1, 0)}
    assert all([*job.folder.path.glob(".lease.*.free")] for job in jobs)


def test_a_node_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    (job,) = jobs_of(tmp_path / "runs", 1)
    ended = on_node({**job.spec(), "out": "/nowhere"}, command(tmp_path / "journal"), 1, None)
    assert ended.how == "failed"
    assert "does not see /nowhere; name a folder that all nodes see, or --fetch" in ended.last_line


@with_ray
def test_real_runs_have_the_same_bytes_one_after_another_in_processes_and_on_two_nodes(
    address: str, tmp_path: Path
) -> None:
    methods = ("er", "er_ace+ccldc")
    ways = {
        "run": ("run", *methods, "--seeds", "0-1", "--threads", "1"),
        "processes": ("sweep", *methods, "--seeds", "0-1"),
        "ray": ("sweep", *methods, "--seeds", "0-1", "--ray", address),
    }
    found = {}
    for way, words in ways.items():
        ended = peerlearn(*words, *TINY, "--out", str(tmp_path / way))
        assert ended.returncode == 0, ended.stderr
        found[way] = {
            str(path.relative_to(tmp_path / way)): path.read_bytes()
            for path in (tmp_path / way).rglob("accuracy.json")
        }
    assert len(found["run"]) == 4
    assert found["run"] == found["processes"] == found["ray"]


@with_ray
def test_a_cluster_of_our_own_listens_on_loopback_only(tmp_path: Path) -> None:
    before = listening()
    code = (
        "from peerlearn.studies.cluster import Cluster\n"
        "from peerlearn.studies.share import Share\n"
        "c = Cluster('auto', Share())\n"
        "print(c, flush=True)\n"
        "input()\n"
        "c.close()\n"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    short = tempfile.mkdtemp(prefix="r")  # sockets lie in it, whose names must be short
    clean |= {"HOME": str(tmp_path), "RAY_TMPDIR": short}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=-1, stdout=-1, env=clean, text=True
    ) as own:
        assert own.stdout
        assert "1 node of Ray" in own.stdout.readline()
        new = listening() - before
        own.communicate("\n")
    assert new
    assert {host for host, _ in new} <= {"127.0.0.1", "::1"}
    assert not (tmp_path / ".ray" / "auth_token").exists()  # others on the machine could read it


def listening() -> set[tuple[str, int]]:
    """Every address of this machine at which a program waits for connections over TCP."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A":
                host, port = local.split(":")
                found.add((_host(host), int(port, 16)))
    return found


def _host(text: str) -> str:
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    whole = b"".join(words)
    if len(whole) == 4:
        return ".".join(map(str, whole))
    if whole[:12] == bytes(10) + b"\xff\xff":
        return ".".join(map(str, whole[12:]))
    return {bytes(15) + b"\x01": "::1"}.get(whole, whole.hex())


@with_ray
def test_runs_share_the_devices_of_a_node_by_quarters(tmp_path: Path) -> None:
    jobs, journal = jobs_of(tmp_path / "runs", 8), tmp_path / "journal"
    with two_nodes(cpus=8, gpus=1) as found:
        share = Share.parse("gpu=0.25,cpu=2")
        executor = Cluster(found, share, command=command(journal, seconds=4))
        assert executor.jobs == 8
        sweep(jobs, executor, Silent())
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {event[5] for event in events} == {"0"}  # the only one that each node has
    begun = sorted(event[4] for event in events if event[2] == "begin")
    ended = sorted(event[4] for event in events if event[2] == "end")
    assert begun[3] < ended[0]  # four at least were at work at once


OF_ITS_OWN = """
import sys
from pathlib import Path
from peerlearn.errors import UserError
from peerlearn.studies import cluster
from peerlearn.studies.share import Share
from peerlearn.studies.sweep import sweep
from studies.jobs import Silent, jobs_of
from studies.stub import command
place, cluster.HEAD = Path(sys.argv[2]), 1.0
executor = cluster.Cluster(sys.argv[1], Share(), command=command(place / "journal", seconds=60))
try:
    sweep(jobs_of(place / "runs", 1), executor, Silent())
except UserError as error:
    print(error, file=sys.stderr, flush=True)
    sys.exit(2)
"""


@with_ray
def test_a_head_that_is_lost_is_told(tmp_path: Path) -> None:
    with two_nodes(cpus=1) as found:
        path = os.pathsep.join(filter(None, sys.path))
        words = [sys.executable, "-c", OF_ITS_OWN, found, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": path}
        with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as own:
            while not stories(tmp_path / "journal"):
                time.sleep(0.1)
            lose_the_head()
            said = own.communicate(timeout=60)[1]
    assert "does not answer any more, and runs end with it" in said
    assert own.returncode == 2


@with_ray
def test_the_runs_of_a_node_that_is_lost_go_on_elsewhere(tmp_path: Path) -> None:
    jobs, journal, view = jobs_of(tmp_path / "runs", 8), tmp_path / "journal", Silent()
    with two_nodes(cpus=2) as found:
        executor = Cluster(found, Share(), command=command(journal, seconds=3))
        whole = Sweep(executor, view, retries=5)
        for job in jobs:
            whole.add(job)
        while len(stories(journal)) < 4:
            whole.turn()
        lose_a_node()
        while whole.left:
            whole.turn()
        executor.close()
    assert {one.how for one in whole.results.values()} == {"done"}
    assert view.deaths > 0
    assert all(story[1:] == (1, 0, 0) for story in stories(journal).values())
