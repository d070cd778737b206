"""A fair lock."""

import threading
import time

import pytest

from peerlearn.learner.turns import Turns


def test_threads_get_it_in_the_order_in_which_they_asked() -> None:
    turns, order = Turns(), []

    def ask(number: int) -> None:
        with turns:
            order.append(number)

    with turns:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
            while len(turns._waiting) <= threads.index(thread):
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_one_that_asks_again_at_once_does_not_overtake() -> None:
    turns, done = Turns(), threading.Event()

    def ask() -> None:
        with turns:
            done.set()

    with turns:
        thread = threading.Thread(target=ask)
        thread.start()
        while not turns._waiting:
            time.sleep(0.001)
    with turns:  # the thread was first
        assert done.is_set()
    thread.join()


def test_no_two_are_ever_inside() -> None:
    turns, inside, most, count = Turns(), [0], [0], [0]

    def work() -> None:
        for _ in range(300):
            with turns, turns:
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
    assert turns._holder is None


def test_an_error_inside_frees_it() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns:
        _ = 1 / 0
    assert turns._holder is None


def test_one_that_stops_waiting_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, entered = Turns(), []

    class Interrupted:
        def acquire(self) -> None:
            if self in turns._waiting:  # the second call is the wait
                raise KeyboardInterrupt

        def release(self) -> None: ...

    def interrupted() -> None:
        monkeypatch.setattr(threading, "Lock", Interrupted)
        try:
            with turns:
                entered.append("interrupted")
        except KeyboardInterrupt:
            entered.append("gone")
        finally:
            monkeypatch.undo()

    with turns:
        thread = threading.Thread(target=interrupted)
        thread.start()
        thread.join()
    assert entered == ["gone"]
    with turns:
        assert not turns._waiting
