from pathlib import Path
from types import SimpleNamespace

import pytest

from peerlearn.errors import UserError
from peerlearn.studies import executor
from peerlearn.studies.executor import Processes, _slots
from peerlearn.studies.grid import from_flags
from peerlearn.studies.job import Job, Place
from peerlearn.studies.many import Means
from peerlearn.studies.share import Share


def test_a_share_is_read_as_it_is_written() -> None:
    assert Share.parse("cpu=2, gpu=.25") == Share(2, 0.25)
    assert Share.parse("memory=1.5GiB").memory == 3 << 29


@pytest.mark.parametrize(
    "text",
    ["cpu", "cpu=", "cpu=0", "cpu=1.5", "cpu=-1", "gpu=0", "gpu=1.5", "memory=x", "tpu=1", "",
     "cpu=1,cpu=2", "gpu=1e3", "cpu=99999999999999999999"],
)  # fmt: skip
def test_a_share_that_cannot_be_is_told(text: str) -> None:
    with pytest.raises(UserError, match="--per-run: "):
        Share.parse(text)


def test_as_many_runs_at_once_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "available_threads", lambda: 8)
    assert Processes().jobs == 8
    assert Processes(share=Share(cpu=3)).jobs == 2
    assert Processes(share=Share(cpu=16)).jobs == 1
    assert Processes(5).jobs == 5


def test_devices_are_shared_out_evenly() -> None:
    assert _slots(0, 2) == []
    assert _slots(0.5, 2) == ["0", "1", "0", "1"]
    assert _slots(0.3, 1) == ["0", "0", "0"]
    assert _slots(1, 2) == ["0", "1"]
    assert _slots(2, 5) == ["0,1", "2,3"]
    with pytest.raises(UserError, match=r"gpu=2, and 1 are here"):
        _slots(2, 1)


def test_another_run_begins_only_if_there_is_memory_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = Processes(4, Share(memory=1 << 30))
    many._futures = {object(): "a run"}  # type: ignore[dict-item]
    for free, room in ((2 << 30, True), (1 << 29, False), (None, True)):
        monkeypatch.setattr(executor, "free_memory", lambda free=free: free)
        assert many.room() is room
    many._futures = {}
    monkeypatch.setattr(executor, "free_memory", lambda: 0)
    assert many.room()  # one is always tried: what is free is an estimate


def test_memory_that_runs_under_way_will_take_is_not_promised_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = Processes(4, Share(memory=4 << 30))
    many._children = {str(i): SimpleNamespace(pid=i) for i in range(2)}  # type: ignore[misc]
    many._futures = {i: str(i) for i in range(2)}  # type: ignore[misc]
    monkeypatch.setattr(executor, "_memory_of", lambda _: (1 << 30, 2 << 30))  # of the 4 each
    for free, room in ((11, True), (10, False)):
        monkeypatch.setattr(executor, "free_memory", lambda free=free: free << 30)
        assert many.room() is room


@pytest.mark.parametrize(
    ("means", "device", "says"),
    [
        (Means(share=Share(gpu=0.5)), "cpu", "all runs are on the cpu; --device cuda"),
        (Means(ray="auto"), "cuda", "need gpu=1, or a part"),
        (Means(fetch=True), "cpu", "--fetch: is for --ray"),
    ],
)
def test_means_that_contradict_the_runs_are_refused(means: Means, device: str, says: str) -> None:
    (wish,) = from_flags(["er"], [("device", device)], None).runs()
    with pytest.raises(UserError, match=says):
        means.check([Job(wish, Place(Path()))])
