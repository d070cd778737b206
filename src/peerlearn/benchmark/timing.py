"""Seconds of what is compared, in turns: machines are shared, so only ratios carry over."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any, NamedTuple

import torch

LEAST_ROUNDS = 2

Action = Callable[[], Any]


class Effort(NamedTuple):
    """How often something is timed: a number of rounds, or 0 for as many as fill some seconds."""

    rounds: int = 0
    seconds: float = 10.0

    def suffices(self, done: int, seconds: float) -> bool:
        """Whether to stop after so many rounds; where time decides, each had the first turn."""
        if self.rounds:
            return done >= self.rounds
        return done >= LEAST_ROUNDS and done % 2 == 0 and seconds >= self.seconds


class Spread(NamedTuple):
    """The middle of some numbers, and the quarters below and above it."""

    median: float
    low: float
    high: float


class Times(NamedTuple):
    """Seconds of each round: by the clock, and of the processor, which others change less."""

    clock: list[float]
    processor: list[float]

    @property
    def median(self) -> float:
        """By the clock."""
        return median(self.clock)

    def take(self, action: Action) -> None:
        """Do it once more."""
        clock, processor = time.perf_counter(), time.process_time()
        action()
        self.processor.append(time.process_time() - processor)
        self.clock.append(time.perf_counter() - clock)


def in_turns(actions: Sequence[Action], effort: Effort) -> list[Times]:
    """The seconds of each action in each round; who went last in a round goes first in the next."""
    times = [Times([], []) for _ in actions]
    start, done = time.perf_counter(), 0
    while not effort.suffices(done, time.perf_counter() - start):
        order = range(len(actions)) if done % 2 == 0 else reversed(range(len(actions)))
        for number in order:
            times[number].take(actions[number])
        done += 1
    return times


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, low=1.5, high=2.5)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), low, high)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours to theirs, round by round: a slow moment of the machine meets both of a round."""
    return spread([own / other for own, other in zip(ours, theirs, strict=True)])


def with_and_without(ours: Times, theirs: Times) -> dict[str, float]:
    """Seconds of something with an addition and without it, and their ratio in processor time."""
    ratio = ratios(ours.processor, theirs.processor)
    return {
        "seconds": ours.median,
        "without_seconds": theirs.median,
        "ratio": ratio.median,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "rounds": len(ours.clock),
    }


@contextmanager
def taking_threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads, inside only."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
