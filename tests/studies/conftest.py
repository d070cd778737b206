"""No test of this folder may wait for ever for a process."""

import signal
from collections.abc import Iterator

import pytest

SECONDS = 300


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
