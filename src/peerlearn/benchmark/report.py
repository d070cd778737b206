"""The parts of a benchmark, printed as they come: tables that a page can take as they are."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch

from peerlearn import __version__
from peerlearn.benchmark import around, auto
from peerlearn.benchmark.growth import growth
from peerlearn.benchmark.roof import roof
from peerlearn.benchmark.steps import following, side_by_side, steps
from peerlearn.benchmark.timing import Effort, taking_threads
from peerlearn.methods import METHODS

Row = dict[str, Any]
USUAL = ("er", "er+ccldc")


class Asked(NamedTuple):
    """What is to be timed.

    names: of learners; none for the usual ones of each part. threads: with which most is timed.
    most_threads: that may be taken where numbers of threads are compared.
    """

    names: tuple[str, ...] = ()
    widths: tuple[int, ...] = (16,)
    threads: int = 1
    most_threads: int = 1
    effort: Effort = Effort()

    @property
    def learners(self) -> tuple[str, ...]:
        """Those that stand for all where not every method is timed."""
        return self.names or USUAL


class Part(NamedTuple):
    """One table.

    columns: what a cell shows of a row, by the column's heading.
    """

    about: str
    rows: Callable[[Asked], Iterator[Row]]
    columns: Mapping[str, Callable[[Row], str]]


def number(key: str, digits: int, unit: float = 1.0) -> Callable[[Row], str]:
    """Shows a number in a unit; a dash where it is not known."""
    return lambda row: "-" if row[key] is None else f"{row[key] / unit:.{digits}f}"


def word(key: str) -> Callable[[Row], str]:
    """Shows a value as it is."""
    return lambda row: str(row[key])


def every_method() -> tuple[str, ...]:
    """All methods, each alone and with CCL-DC where it can be taught."""
    return tuple(
        name + wrapper
        for name, method in METHODS.items()
        for wrapper in ("", "+ccldc")
        if method.gives_logits or not wrapper
    )


MS, MB, GFLOP = 1e-3, 1e6, 1e9
LEARNER = {"learner": word("learner"), "width": word("width")}
PARTS: Mapping[str, Part] = {
    "roof": Part(
        "The machine's roof, fp32: large matrix products, and the convolutions of the network by "
        "themselves, forward and backward on 74 images. The best of some rounds.",
        lambda asked: roof(asked.widths, asked.most_threads, asked.effort),
        {
            "arithmetic": word("what"),
            "threads": word("threads"),
            "GFLOP/s": number("flops_per_second", 0, GFLOP),
        },
    ),
    "steps": Part(
        "A step next to its bare loop: the same forwards, backwards and optimizer steps, and "
        "nothing else. Both by turns, peers one after the other; medians, quartiles of the ratio, "
        "and with one thread the ratio in processor time. Images shown to all networks.",
        lambda asked: steps(asked.names or every_method(), asked.widths, asked.effort),
        {
            "step": word("step"),
            "width": word("width"),
            "seconds": number("seconds", 3),
            "bare": number("bare_seconds", 3),
            "ratio": number("ratio", 3),
            "quartiles": lambda row: f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}",
            "processor": number("processor_ratio", 3),
            "images": word("images"),
            "images/s": number("images_per_second", 0),
            "GFLOP/s": number("flops_per_second", 0, GFLOP),
            "peak MB": number("peak_bytes", 0, MB),
        },
    ),
    "shadow": Part(
        "A step with a slow copy that follows, next to the same step without one, by turns; the "
        "ratio in processor time, with its quartiles.",
        lambda asked: following(asked.names or ("er",), asked.widths, asked.effort),
        {
            "step": word("step"),
            "width": word("width"),
            "seconds": number("seconds", 3),
            "without": number("without_seconds", 3),
            "ratio": number("ratio", 3),
            "quartiles": lambda row: f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}",
            "rounds": word("rounds"),
        },
    ),
    "peers": Part(
        "Peers side by side, each with its share of the threads, next to peers in turn.",
        lambda asked: side_by_side(
            asked.learners, asked.widths, asked.most_threads, asked.effort
        ),
        {
            "step": word("step"),
            "width": word("width"),
            "at once": word("peers_at_once"),
            "threads each": word("threads_per_peer"),
            "seconds": number("seconds", 3),
            "in turn, same bits": number("in_turn_same_bits_seconds", 3),
            "in turn, all threads": number("in_turn_all_threads_seconds", 3),
            "ratio to that": number("ratio", 3),
        },
    ),
    "evaluation": Part(
        "Milliseconds for 500 images, with 200 in memory: bare forwards of every peer, `predict`, "
        "nearest class means after a step and again, and all that a run evaluates after a task.",
        lambda asked: around.evaluation(asked.learners, asked.widths, asked.effort),
        {
            **LEARNER,
            "bare": number("bare_seconds", 0, MS),
            "predict": number("predict_seconds", 0, MS),
            "images/s": lambda row: f"{row['images'] / row['predict_seconds']:.0f}",
            "means, first": number("means_first_seconds", 0, MS),
            "means, again": number("means_again_seconds", 0, MS),
            "a run's": number("run_seconds", 0, MS),
        },
    ),
    "along": Part(
        "A hundred images of the stream, learnt and asked about on the way: one evaluation of some "
        "test images of all classes, or a prediction of each batch before it is learnt, next to "
        "learning alone, by turns; the ratio in processor time, with its quartiles.",
        lambda asked: around.along(asked.names or USUAL[:1], asked.widths, asked.effort),
        {
            **LEARNER,
            "asked": word("asked"),
            "seconds": number("seconds", 3),
            "without": number("without_seconds", 3),
            "ratio": number("ratio", 3),
            "quartiles": lambda row: f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}",
            "rounds": word("rounds"),
        },
    ),
    "checkpoint": Part(
        "A checkpoint with 200 images in memory.",
        lambda asked: around.checkpoint(asked.learners, asked.widths, asked.effort),
        {
            **LEARNER,
            "MB": number("bytes", 1, MB),
            "save (ms)": number("save_seconds", 0, MS),
            "load (ms)": number("load_seconds", 0, MS),
        },
    ),
    "startup": Part(
        "Processes from start to end.",
        lambda asked: around.startup(asked.effort),
        {"process": word("what"), "seconds": number("seconds", 2)},
    ),
    "run": Part(
        "What `peerlearn run` adds to a loop around `learn`: seconds per batch, on `mini`.",
        lambda asked: around.whole_run(asked.names or USUAL[:1], asked.widths, asked.effort),
        {
            **LEARNER,
            "run": number("run_seconds", 4),
            "loop": number("loop_seconds", 4),
            "ratio": number("ratio", 3),
        },
    ),
    "auto": Part(
        "What a run would choose here where nobody chose.",
        lambda asked: auto.choices(asked.learners, asked.widths),
        {name: word(name) for name in ("setting", "width", "choice", "why")},
    ),
    "growth": Part(
        "What grows: milliseconds of a step, of all in it but the network, of answers for 100 "
        "images (`predict`, nearest means after a step, and again), and of a checkpoint.",
        lambda asked: growth(asked.names or USUAL[:1], asked.widths[0], asked.effort),
        {
            "grows": word("grows"),
            "to": lambda row: f"{row['value']:,}",
            "learner": word("learner"),
            "step": number("step_seconds", 0, MS),
            "rest": number("rest_seconds", 1, MS),
            "predict": number("predict_seconds", 0, MS),
            "means, first": number("means_first_seconds", 0, MS),
            "again": number("means_again_seconds", 0, MS),
            "MB": number("bytes", 1, MB),
            "save": number("save_seconds", 0, MS),
            "load": number("load_seconds", 0, MS),
        },
    ),
}
USUAL_PARTS = tuple(name for name in PARTS if name != "growth")


def benchmark(parts: Sequence[str], asked: Asked, out: TextIO | None) -> dict[str, Any]:
    """Everything that was measured. out: where tables go as they come; None for nowhere."""
    progress = Progress(sys.stderr)
    found: dict[str, Any] = {"machine": machine(asked)}
    _print(out, described(found["machine"]))
    with taking_threads(asked.threads):
        for name in parts:
            part, found[name] = PARTS[name], []
            heads = [*part.columns]
            _print(out, f"\n## {name}\n\n{part.about}\n", _line(heads), _line(["---"] * len(heads)))
            progress.show(f"{name} ...")
            for row in part.rows(asked):
                found[name].append(row)
                cells = [show(row) for show in part.columns.values()]
                progress.clear()
                _print(out, _line(cells))
                progress.show(f"{name}, after {', '.join(cells[:2])} ...")
            progress.clear()
    found["machine"]["load_after"] = _load()
    return found


def _print(out: TextIO | None, *lines: str) -> None:
    if out is not None:
        print("\n".join(lines), file=out, flush=True)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


class Progress:
    """A line that says what is under way, on a terminal only."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def show(self, text: str) -> None:
        """Put a text in the place of the last one."""
        if self.out.isatty():
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{text[:width]}")

    def clear(self) -> None:
        """Leave nothing behind."""
        if self.out.isatty():
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody needs to look on
            self.out.write(text)
            self.out.flush()


def machine(asked: Asked) -> dict[str, Any]:
    """What the figures hold for."""
    return {
        "peerlearn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": asked.threads,
        "load_before": _load(),
    }


def described(found: Mapping[str, Any]) -> str:
    """The machine in a line or two."""
    load = "" if found["load_before"] is None else f", load {found['load_before']:.1f} at the start"
    return (
        f"{found['processor']} ({found['instructions']}), {found['cores']} cores{load}; "
        f"threads: {found['threads']} unless a table says otherwise, fp32, torch {found['torch']}, "
        f"Python {found['python']}, peerlearn {found['peerlearn']}."
    )


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _load() -> float | None:
    """Processes that want a core, over the last minute, where the system tells."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
