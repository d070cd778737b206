"""How a run uses the processor: peers in turn or side by side, with how many threads each.

The number of threads per peer decides the last bits of all numbers, how many peers compute at once
decides none. Where nobody chose, both are measured when a run begins, and recorded.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from peerlearn.devices import global_states
from peerlearn.experiment.settings import MachineSettings
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.parallel import PeerPool
from peerlearn.methods.interface import images
from peerlearn.peer import PeerModel
from peerlearn.runtime import available_threads, free_memory, peak_memory, reset_peak_memory

SECONDS = 1.0  # that measuring takes, unless two rounds take longer
ROUNDS = (2, 10)  # at least, at most
NEAR = 1.1  # a way that takes at most so many times as long as the fastest is as good
HOPELESS = 3.0  # one that takes so many times as long is not tried again


class Threads(NamedTuple):
    """How peers share the processor.

    Args:
        each: threads of one peer's computations.
        at_once: peers that compute side by side.

    >>> Threads(each=1, at_once=2).total
    2
    """

    each: int
    at_once: int

    @property
    def total(self) -> int:
        """Threads in all."""
        return self.each * self.at_once

    def __str__(self) -> str:
        each = f"{self.each} thread{'s' if self.each > 1 else ''}"
        return f"{self.at_once} peers side by side with {each} each" if self.at_once > 1 else each


class Choice(NamedTuple):
    """What was chosen, and why, in words."""

    threads: Threads
    why: str
    seconds: Mapping[Threads, float] = {}  # of a pass of all peers, forward and backward

    def __str__(self) -> str:
        flags = f"--threads {self.threads.total} --peer-threads {self.threads.each}"
        return f"{self.threads} ({self.why}); the same again with {flags}"


def shared_out(threads: int, peer_threads: int, peers: int) -> Threads | None:
    """What was asked for, by `--threads` and `--peer-threads`; None if it is to be measured.

    >>> shared_out(threads=4, peer_threads=0, peers=2)
    Threads(each=2, at_once=2)
    """
    if not (threads or peer_threads):
        return None
    total = threads or max(available_threads(), peer_threads)
    each = min(peer_threads or max(total // peers, 1), total)
    return Threads(each, min(peers, total // each))


def ways(total: int, peers: int) -> list[Threads]:
    """How so many threads can be shared out, the fewest for each peer first.

    >>> ways(4, peers=2)
    [Threads(each=1, at_once=2), Threads(each=2, at_once=2), Threads(each=4, at_once=1)]
    """
    each, found = total, []
    while each:
        found.append(Threads(each, min(peers, total // each)))
        each //= 2
    return found[::-1]


def recorded(settings: Mapping[str, Any], peers: int) -> Threads:
    """The threads of a run by its record; never more peers at once than there are cores for."""
    total, each = settings["machine.threads"], settings["machine.peer_threads"]
    threads = shared_out(total, each, peers) or Threads(available_threads(), 1)
    at_once = max(available_threads() // threads.each, 1)
    return threads._replace(at_once=min(threads.at_once, at_once))


def choose_threads(
    learner: OnlineLearner, shape: Sequence[int], rows: int, asked: MachineSettings
) -> Choice:
    """What was asked for, or in which way the peers of an untrained learner are fastest just now.

    Each peer sends a batch forward and backward, in all ways. Of those that are about as fast as
    the fastest, the one with the fewest threads per peer is taken: it suffers least when others
    need the processor as well, and the choice is less often a matter of chance.

    learner: to be thrown away afterwards; all its peers side by side, if they can. shape: of an
    image, (3, H, W). rows: images of a step.
    """
    peers = min(learner.pool.count, len(learner.peers))  # 1 for those that must take turns
    if given := shared_out(asked.threads, asked.peer_threads, peers):
        return Choice(given, "as asked for")
    found = ways(available_threads(), peers)
    if learner.device.type != "cpu":
        return Choice(found[-1], f"{learner.device.type} does the work")
    if len(found) == 1:
        return Choice(found[0], "there is no other way")
    models = [peer.model for peer in learner.peers]
    rng = torch.Generator().manual_seed(0)
    x = images(torch.randint(256, (rows, *shape), generator=rng, dtype=torch.uint8))
    before = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            fitting = _fitting(found, learner, x)
            seconds = _measured(fitting, models, x)
    finally:
        torch.set_num_threads(before)
    fastest = min(seconds.values())
    chosen = next(way for way in fitting if seconds[way] <= NEAR * fastest)
    ratios = {way: taken / seconds[chosen] for way, taken in seconds.items() if way != chosen}
    why = "; ".join(f"{way}: {_times(ratio)}" for way, ratio in ratios.items())
    return Choice(chosen, why or "for lack of memory", seconds)


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times as long" if ratio > NEAR else f"about as long, {ratio:.2f} times"


def _measured(found: list[Threads], models: list[PeerModel], x: Tensor) -> dict[Threads, float]:
    """Median seconds of a pass in each way; they take turns, in alternating order.

    The first pass in a way only wakes its threads up. A way that is hopeless is not tried again.
    """
    pools = {way: PeerPool(way.at_once) for way in found}
    times: dict[Threads, list[float]] = {way: [] for way in found}
    least, most = ROUNDS
    begin = time.perf_counter()

    def seconds(way: Threads) -> float:
        torch.set_num_threads(way.each)
        start = time.perf_counter()
        pools[way].map(lambda model: _pass(model, x), models)
        return time.perf_counter() - start

    for number in range(most):
        if number >= least and time.perf_counter() - begin > SECONDS:
            break
        for way in list(found[:: -1 if number % 2 else 1]):
            first = seconds(way)
            best = min((min(taken) for taken in times.values() if taken), default=first)
            hopeless = first > HOPELESS * best
            times[way].append(first if hopeless else seconds(way))
            if hopeless:
                found = [other for other in found if other != way]
    return {way: statistics.median(taken) for way, taken in times.items()}


def _pass(model: PeerModel, x: Tensor) -> None:
    model.features(x).square().mean().backward()
    model.zero_grad(set_to_none=True)


def _fitting(found: list[Threads], learner: OnlineLearner, x: Tensor) -> list[Threads]:
    """The ways that can be: peers at once hold their graphs at once, and must not draw."""
    if all(way.at_once == 1 for way in found):
        return found
    torch.set_num_threads(1)
    reset_peak_memory()
    before, drawn = peak_memory(), global_states()
    _pass(learner.peers[0].model, x)
    if global_states() != drawn:  # dropout: such peers take turns
        return ways(found[-1].total, peers=1)
    views = max(learner.method.images_per_sample, len(learner.distillation.student_views))
    graph = (peak_memory() - before) * views
    free = free_memory()
    return [
        way for way in found if way.at_once == 1 or free is None or way.at_once * graph < free
    ]
