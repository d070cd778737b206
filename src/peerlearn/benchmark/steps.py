"""The step of a method next to its bare loop, and peers side by side next to peers in turn."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from peerlearn.benchmark.bare import BareLoop, record
from peerlearn.benchmark.learners import Scene, Subject, prepared
from peerlearn.benchmark.timing import (
    Action,
    Effort,
    in_turns,
    ratios,
    taking_threads,
    with_and_without,
)
from peerlearn.config.names import split_name
from peerlearn.runtime import peak_memory, reset_peak_memory


def steps(names: Sequence[str], widths: Sequence[int], effort: Effort) -> Iterator[dict[str, Any]]:
    """Each learner's step, peers in turn, and its bare loop, by turns in one process."""
    for width in widths:
        for name in names:
            yield _step(name, width, effort)


def _step(name: str, width: int, effort: Effort) -> dict[str, Any]:
    reset_peak_memory()
    subject = prepared(name, Scene(width=width))
    recording = record(subject)
    peak = peak_memory()
    bare = BareLoop(recording)
    flops = bare.flops()
    ours, theirs = in_turns([subject.step, bare.step], effort)
    ratio, seconds = ratios(ours.clock, theirs.clock), ours.median
    alone = torch.get_num_threads() == 1  # several also count the time in which they wait
    images = sum(forward.shape[0] for forward in recording.forwards)
    return {
        "step": name,
        "width": width,
        "seconds": seconds,
        "bare_seconds": theirs.median,
        "ratio": ratio.median,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "processor_ratio": ratios(ours.processor, theirs.processor).median if alone else None,
        "rounds": len(ours.clock),
        "images": images,
        "images_per_second": images / seconds,
        "flops_per_second": flops / seconds,
        "peak_bytes": peak or None,  # not known on every system
    }


def following(
    names: Sequence[str], widths: Sequence[int], effort: Effort
) -> Iterator[dict[str, Any]]:
    """Each method's step with a slow copy that follows, and without one, by turns."""
    for width in widths:
        for name in dict.fromkeys(split_name(name)[0] for name in names):
            ways = [prepared(way, Scene(width=width)).step for way in (f"{name}+ema", name)]
            yield {"step": name, "width": width, **with_and_without(*in_turns(ways, effort))}


def side_by_side(
    names: Sequence[str], widths: Sequence[int], threads: int, effort: Effort
) -> Iterator[dict[str, Any]]:
    """Learners of several peers: at once, each with its share of the threads, and in turn."""
    for width in widths:
        for name in names:
            in_turn = prepared(name, Scene(width=width))
            at_once = min(len(in_turn.learner.peers), threads)
            if at_once > 1:
                beside = prepared(name, Scene(width=width), peers_at_once=at_once)
                yield {"step": name, "width": width, **_compared(beside, in_turn, threads, effort)}


def _compared(beside: Subject, in_turn: Subject, threads: int, effort: Effort) -> dict[str, Any]:
    at_once = beside.learner.pool.count
    share = threads // at_once
    ways = [
        _with_threads(beside, share),
        _with_threads(in_turn, share),
        _with_threads(in_turn, threads),
    ]
    ours, same_bits, all_threads = in_turns(ways, effort)
    return {
        "peers_at_once": at_once,
        "threads_per_peer": share,
        "seconds": ours.median,
        "in_turn_same_bits_seconds": same_bits.median,
        "in_turn_all_threads_seconds": all_threads.median,
        "ratio": ratios(ours.clock, all_threads.clock).median,
    }


def _with_threads(subject: Subject, count: int) -> Action:
    def step() -> None:
        with taking_threads(count):
            subject.step()

    return step
