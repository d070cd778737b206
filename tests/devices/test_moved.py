"""What comes to a device: all tensors of a value, and without waiting where that is safe."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from devices.learners import ONE, taught
from peerlearn.devices import moved
from peerlearn.memory import Reservoir


class Drawn(NamedTuple):
    x: Tensor
    more: list[Any]


@dataclass(frozen=True)
class Step:
    drawn: Drawn
    name: str


def test_all_tensors_of_a_value_are_moved_and_the_rest_stays() -> None:
    memory = Reservoir(3)
    step = Step(Drawn(torch.ones(2), [torch.zeros(1), None, {"y": torch.ones(1)}, memory]), "er")
    found = moved(step, torch.device(ONE))
    first, nothing, mapping, same = found.drawn.more
    assert {str(one.device) for one in (found.drawn.x, first, mapping["y"])} == {ONE}
    assert (nothing, same, found.name) == (None, memory, "er")
    assert step.drawn.x.is_cpu


def test_a_tensor_that_is_there_already_is_handed_on() -> None:
    x = torch.ones(2)
    assert moved([x], x.device)[0] is x


@pytest.mark.parametrize(
    ("device", "waits"), [("cuda", False), ("pretend:1", False), ("cpu", True), ("mps", True)]
)
def test_the_host_waits_on_the_way_to_the_cpu_and_to_mps(
    device: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(Tensor, "to", lambda _x, _device, non_blocking: told.append(non_blocking))
    moved(torch.ones(1), torch.device(device))
    assert told == [not waits]


def test_labels_are_kept_and_drawn_on_the_cpu_wherever_they_come_from() -> None:
    memory, rng = Reservoir(4), torch.Generator().manual_seed(0)
    x, y = torch.arange(8, dtype=torch.uint8).to(ONE), torch.arange(8).to(ONE)
    memory.add(rng, x=x, y=y)
    odd = memory.draw_where(2, (memory["y"] % 2 == 1).to(ONE), rng)
    for rows in (memory.draw(2, rng), odd, {name: memory[name] for name in ("x", "y")}):
        assert (str(rows["x"].device), str(rows["y"].device)) == (ONE, "cpu")
        assert rows["x"].tolist() == rows["y"].tolist()


def test_where_the_stream_stands_is_known_on_the_cpu_and_what_is_carried_is_on_the_device() -> None:
    progress = taught("onpro", ONE).learner.progress
    assert progress.first_met.is_cpu
    assert progress.classes.tolist() == []  # between two batches
    assert {name: str(tensor.device) for name, tensor in progress.carry.items()} == {
        "prototypes": ONE
    }
