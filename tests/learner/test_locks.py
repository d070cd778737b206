"""A fair lock."""

import threading
import time

import pytest

from peerlearn.learner.parallel import FairLock


def test_threads_get_it_in_the_order_in_which_they_asked() -> None:
    lock, order = FairLock(), []

    def ask(number: int) -> None:
        with lock:
            order.append(number)

    with lock:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
            while len(lock._waiting) <= threads.index(thread):
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_one_that_asks_again_at_once_does_not_overtake() -> None:
    lock, done = FairLock(), threading.Event()

    def ask() -> None:
        with lock:
            done.set()

    with lock:
        thread = threading.Thread(target=ask)
        thread.start()
        while not lock._waiting:
            time.sleep(0.001)
    with lock:  # the thread was first
        assert done.is_set()
    thread.join()


def test_no_two_are_ever_inside() -> None:
    lock, inside, most, count = FairLock(), [0], [0], [0]

    def work() -> None:
        for _ in range(300):
            with lock, lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                count[0] += 1
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most[0], count[0]) == (1, 1800)
    assert lock._holder is None


def test_an_error_inside_frees_it() -> None:
    lock = FairLock()
    with pytest.raises(ZeroDivisionError), lock:
        _ = 1 / 0
    assert lock._holder is None


def test_one_that_stops_waiting_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, entered = FairLock(), []

    class Interrupted:
        def acquire(self) -> None:
            if self in lock._waiting:  # the second call is the wait
                raise KeyboardInterrupt

        def release(self) -> None: ...

    def interrupted() -> None:
        monkeypatch.setattr(threading, "Lock", Interrupted)
        try:
            with lock:
                entered.append("interrupted")
        except KeyboardInterrupt:
            entered.append("gone")
        finally:
            monkeypatch.undo()

    with lock:
        thread = threading.Thread(target=interrupted)
        thread.start()
        thread.join()
    assert entered == ["gone"]
    with lock:
        assert not lock._waiting
