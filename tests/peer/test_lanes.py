"""Lanes: what is computed side by side is what would be computed in turn."""

import gc
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from peerlearn.errors import UserError
from peerlearn.peer.lanes import Lanes


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(x: int) -> int:
        time.sleep(0.02 * (3 - x))
        return 10 * x

    assert Lanes(2).map(slow_first, [0, 1, 2]) == [0, 10, 20]


def test_one_lane_is_the_calling_thread() -> None:
    assert Lanes(1).map(lambda _: threading.get_ident(), "ab") == [threading.get_ident()] * 2


def test_several_lanes_are_under_way_at_once_and_keep_their_items() -> None:
    both = threading.Barrier(2, timeout=10)  # breaks unless two wait for each other
    lanes = Lanes(2)
    lanes.map(lambda _: both.wait(), [0, 1])
    first = lanes.map(lambda _: threading.get_ident(), range(4))
    assert first == lanes.map(lambda _: threading.get_ident(), range(4))
    assert first[:2] == first[2:]
    assert first[0] != first[1]


@pytest.mark.parametrize("grad", [True, False])
def test_a_lane_computes_as_its_caller_would(grad: bool) -> None:
    lanes, before = Lanes(2), torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            with torch.set_grad_enabled(grad):
                found = lanes.map(
                    lambda _: (torch.get_num_threads(), torch.is_grad_enabled()), [0, 1]
                )
            assert found == [(threads, grad)] * 2
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_the_first_error_is_raised_once_all_have_ended() -> None:
    ended = []

    def fail(x: int) -> None:
        time.sleep(0.05 * (x == 1))
        ended.append(x)
        raise ValueError(str(x))

    with pytest.raises(ValueError, match="0"):
        Lanes(2).map(fail, [0, 1, 2])
    assert sorted(ended) == [0, 1, 2]


def test_after_an_interrupt_nothing_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def slow(x: int) -> None:
        time.sleep(0.1)
        ended.append(x)

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("peerlearn.peer.lanes.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Lanes(2).map(slow, [0, 1])
    assert sorted(ended) == [0, 1]


def test_an_interrupt_between_two_items_waits_for_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, submit = [], ThreadPoolExecutor.submit
    lanes = Lanes(2)
    lanes.map(int, [0, 1])

    def slow(x: int) -> None:
        time.sleep(0.1)
        ended.append(x)

    def interrupted_after(self: ThreadPoolExecutor, *args: object) -> object:
        future = submit(self, *args)  # type: ignore[arg-type]
        if args[-1] == 0:  # item 0 is under way, and nobody holds its future
            raise KeyboardInterrupt
        return future

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted_after)
    with pytest.raises(KeyboardInterrupt):
        lanes.map(slow, [0, 1])
    assert ended == [0]


def test_its_threads_end_with_it() -> None:
    lanes = Lanes(3)
    threads = lanes.map(lambda _: threading.current_thread(), [0, 1, 2])
    assert all(thread.is_alive() for thread in threads)
    del lanes
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def _in_child(lanes: Lanes, answer: "multiprocessing.SimpleQueue[list[int]]") -> None:
    answer.put(lanes.map(int, [1, 2]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    lanes = Lanes(2)
    assert lanes.map(int, [1, 2]) == [1, 2]
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(lanes, answer))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert answer.get() == [1, 2]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_a_number_that_is_none_is_refused(count: object) -> None:
    with pytest.raises(UserError, match="peers_at_once"):
        Lanes(count)  # type: ignore[arg-type]
