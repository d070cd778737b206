"""What a run would choose here where nobody chose, and why: asked of the code that chooses."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from peerlearn.benchmark.learners import BATCH, Scene, untrained
from peerlearn.experiment.machine import Choice, choose_threads
from peerlearn.experiment.precision import settle_precision
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.settings import MachineSettings


def usual_threads(width: int) -> Choice:
    """The threads of a run with one peer, measured as the machine is just now."""
    return _threads("er", Scene(width=width))


def choices(names: Sequence[str], widths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each choice."""
    for width in widths:
        scene = Scene(width=width)
        for name in names:
            threads, why, _ = _threads(name, scene)
            row = {"setting": f"threads of {name}", "width": width}
            yield {**row, "choice": str(threads), "why": why}
        yield {"setting": "layout", "width": width, **_layout(names[0], scene)}
        yield {"setting": "precision, if auto", "width": width, **_precision(names[0], width)}


def _threads(name: str, scene: Scene) -> Choice:
    peers = len(untrained(name, scene).peers)
    learner = untrained(name, scene, peers_at_once=peers)
    rows = BATCH + learner.method.settings.replay_batch
    shape = (3, scene.pixels, scene.pixels)
    return choose_threads(learner, shape, rows, MachineSettings())


def _layout(name: str, scene: Scene) -> dict[str, str]:
    fast = untrained(name, scene).peers[0].model.layout == torch.channels_last
    return {
        "choice": "channels_last" if fast else "default",
        "why": "safe for this network" if fast else "channels_last is not safe for this network",
    }


def _precision(name: str, width: int) -> dict[str, str]:
    flags = {"data": "mini", "width": width, "precision": "auto"}
    wanted = resolve(name, [Given(k, v, "flag", f"--{k}") for k, v in flags.items()])
    with tempfile.TemporaryDirectory() as nothing:  # there is no run that was begun before
        (run,), (line,) = settle_precision([wanted], Path(nothing))
    return {"choice": run.values["machine.precision"], "why": line.partition(", ")[2]}
