"""Peers side by side: what a pool computes is what would be computed in turn."""

import gc
import multiprocessing
import signal
import threading
import time
import weakref
from random import Random
from typing import Any

import pytest
import torch

from peerlearn.errors import UserError
from peerlearn.learner.parallel import PeerPool
from peerlearn.threads import ForcedInterrupt


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(x: int) -> int:
        time.sleep(0.02 * (3 - x))
        return 10 * x

    assert PeerPool(2).map(slow_first, [0, 1, 2]) == [0, 10, 20]


def test_one_thread_is_the_calling_thread() -> None:
    assert PeerPool(1).map(lambda _: threading.get_ident(), "ab") == [threading.get_ident()] * 2


def test_several_threads_are_under_way_at_once_and_keep_their_items() -> None:
    both = threading.Barrier(2, timeout=10)  # breaks unless two wait for each other
    pool = PeerPool(2)
    pool.map(lambda _: both.wait(), [0, 1])
    first = pool.map(lambda _: threading.get_ident(), range(4))
    assert first == pool.map(lambda _: threading.get_ident(), range(4))
    assert first[:2] == first[2:]
    assert first[0] != first[1]


@pytest.mark.parametrize("grad", [True, False])
def test_a_thread_computes_as_its_caller_would(grad: bool) -> None:
    pool, before = PeerPool(2), torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            with torch.set_grad_enabled(grad):
                found = pool.map(
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
        PeerPool(2).map(fail, [0, 1, 2])
    assert sorted(ended) == [0, 1, 2]


class Interrupt(Exception):  # noqa: N818
    """What a handler of signals may raise; not only Ctrl-C does."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # while it collects
@pytest.mark.parametrize("new", [True, False])
def test_after_an_interrupt_nothing_is_under_way(new: bool) -> None:
    under_way, random = [], Random(0)

    def work(x: int) -> None:
        under_way.append(x)
        time.sleep(0.0005)
        under_way.remove(x)

    def interrupted(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    pool, interrupts = PeerPool(2), 0
    try:
        for _ in range(150):
            pool = PeerPool(2) if new else pool
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1.5e-3))
                pool.map(work, [0, 1, 2])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                interrupts += 1
            assert under_way == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 20
    assert pool.map(str, [0, 1]) == ["0", "1"]


def test_a_thread_that_asks_for_pool_does_it_alone() -> None:
    pool = PeerPool(2)
    assert pool.map(lambda x: pool.map(lambda y: x + y, [1, 2]), [10, 20]) == [[11, 12], [21, 22]]


def test_a_thread_keeps_nothing_of_what_it_did() -> None:
    pool, item = PeerPool(2), torch.zeros(1)
    gone = weakref.ref(item)
    pool.map(lambda x: x + 1, [item, item])
    pool.map(int, [0, 1])
    del item
    gc.collect()
    assert gone() is None


def test_its_threads_end_with_it() -> None:
    pool = PeerPool(3)
    pool.map(int, [0, 1, 2])
    held = [weakref.ref(thread._jobs) for thread in pool._threads]  # each by two
    del pool
    gc.collect()
    deadline = time.monotonic() + 10
    while any(jobs() for jobs in held) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [jobs() for jobs in held] == [None] * 3


def _in_child(pool: PeerPool, answer: Any) -> None:
    me = threading.get_ident()
    answer.put(pool.map(lambda x: (x, threading.get_ident() == me), [1, 2]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_a_forked_process_it_is_one_after_the_other() -> None:
    pool = PeerPool(2)
    assert pool.map(int, [1, 2]) == [1, 2]
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(pool, answer))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert answer.get() == [(1, True), (2, True)]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_a_number_that_is_none_is_refused(count: object) -> None:
    with pytest.raises(UserError, match="peers_at_once"):
        PeerPool(count)  # type: ignore[arg-type]


def test_whoever_interrupts_again_and_again_does_not_wait_for_what_hangs() -> None:
    free = threading.Event()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(ForcedInterrupt):
            PeerPool(2).map(lambda x: x or free.wait(), [0, 1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        free.set()
