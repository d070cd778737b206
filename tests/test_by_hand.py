"""The example that spells out ER and CCL-DC takes the same steps as the library, bit for bit.

The learners are built with layout="default", so that the example need not mention memory layouts;
one case converts the example's networks to channels_last instead, which "auto" chooses here.
"""

import ast
import importlib.util
import runpy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from peerlearn import (
    ClassStream,
    OnlineLearner,
    ResNet18,
    build_learner,
    small_net,
    toy_images,
)

SCRIPT = Path(__file__).parents[1] / "examples" / "00_by_hand.py"
CAPACITY = 80  # more than a replay batch of 64, so that it is drawn; less than the 200 images
SMALL = partial(small_net, 4)
NAMES = {"er": "ER", "er+ccldc": "CCLDC"}


@pytest.fixture(autouse=True)
def _one_thread_here() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def example() -> ModuleType:
    """Import the example anew, so that a test may change its constants."""
    spec = importlib.util.spec_from_file_location("by_hand", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pair(
    example: ModuleType,
    name: str,
    stream: ClassStream,
    build: Callable[[], nn.Module] = SMALL,
    seed: int = 0,
    layout: Any = "default",
) -> tuple[Any, OnlineLearner]:
    """Return the example's learner and the library's."""
    learner = build_learner(
        name, stream.info, build, memory=CAPACITY, seed=seed, profile="paper", layout=layout
    )
    by_hand = getattr(example, NAMES[name])(build, capacity=CAPACITY, seed=seed)
    if layout == "auto":
        for own, peer in zip(by_hand.peers, learner.peers, strict=True):
            assert peer.model.layout == torch.channels_last
            own.net.to(memory_format=torch.channels_last)
    return by_hand, learner


def network_state(net: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name."""
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def differences(by_hand: Any, learner: OnlineLearner) -> list[str]:
    """Return the names of all tensors in which the two learners differ, by at least one bit."""
    assert len(by_hand.peers) == len(learner.peers)
    found = []
    for i, (own, peer) in enumerate(zip(by_hand.peers, learner.peers, strict=True)):
        a, b = network_state(own.net), network_state(peer.model.net)
        assert a.keys() == b.keys()
        found += [f"peer {i}: {name}" for name in a if not torch.equal(a[name], b[name])]
    if len(learner.memory):
        x, y = by_hand.memory.draw(CAPACITY, None)  # all of it, in storage order
        found += ["images"] if not torch.equal(x, learner.memory["x"]) else []
        found += ["labels"] if not torch.equal(y, learner.memory["y"]) else []
    return found


def compare(by_hand: Any, learner: OnlineLearner, stream: ClassStream) -> list[str]:
    """Let both learn the stream; return how they differ after the first batch where they do."""
    found, number = differences(by_hand, learner), 0
    for task in stream:
        for x, y in task:
            by_hand.learn(x, y)
            losses = learner.learn(x, y)
            assert bool(losses) == (number > 0)  # ER only stores the first batch
            found = found or [f"batch {number}, {name}" for name in differences(by_hand, learner)]
            number += 1
        learner.end_task()
    assert number >= 12
    return found


@pytest.mark.parametrize("layout", ["default", "auto"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_it_takes_the_same_steps_as_the_library(
    example: ModuleType, stream: ClassStream, name: str, seed: int, layout: str
) -> None:
    by_hand, learner = pair(example, name, stream, seed=seed, layout=layout)
    before = {k: v.clone() for k, v in network_state(by_hand.peers[-1].net).items()}
    assert compare(by_hand, learner, stream) == []
    after = network_state(by_hand.peers[-1].net)
    assert not any(torch.equal(before[key], after[key]) for key in before)
    assert learner.memory.seen > CAPACITY == len(learner.memory)
    assert learner.memory["y"].unique().tolist() == [0, 1, 2, 3]  # images of task 1 took slots
    images = torch.cat([test.x for test in stream.test_sets])
    assert torch.equal(by_hand.logits(images), learner.logits(images))


@pytest.mark.parametrize("name", NAMES)
def test_it_takes_the_same_steps_with_a_resnet(example: ModuleType, name: str) -> None:
    images = toy_images(num_classes=4, train_per_class=35, size=16)
    stream = ClassStream(images, num_tasks=2, batch_size=10, seed=1)
    by_hand, learner = pair(example, name, stream, partial(ResNet18, 4, width=4))
    assert compare(by_hand, learner, stream) == []


@pytest.mark.parametrize(
    ("constant", "value"),
    [
        ("REPLAY_BATCH", 63),
        ("LAMBDA1", 0.6),
        ("LAMBDA2", 2.1),
        ("TAU", 3.0),
        ("EDGES", ((0, 0), (1, 0), (2, 1), (3, 2))),
    ],
)
def test_the_comparison_notices_another_method(
    example: ModuleType, stream: ClassStream, constant: str, value: Any
) -> None:
    setattr(example, constant, value)
    by_hand, learner = pair(example, "er+ccldc", stream)
    assert compare(by_hand, learner, stream)


def test_it_leaves_the_global_generator_alone(example: ModuleType, stream: ClassStream) -> None:
    before = torch.get_rng_state()
    by_hand = example.CCLDC(SMALL, capacity=CAPACITY)
    for batch in [*stream.tasks[0]][:2]:
        by_hand.learn(*batch)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_short_and_imports_only_network_and_augmentations() -> None:
    source = SCRIPT.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 150
    *body, main = ast.parse(source).body
    assert isinstance(main, ast.If)
    assert ast.unparse(main.test) == "__name__ == '__main__'"
    nodes = [node for statement in body for node in ast.walk(statement)]  # functions included
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names = {
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lent = {name for name in modules | names if name.startswith("peerlearn")}
    assert lent == {
        "peerlearn.augment.ViewChain", "peerlearn.augment.full", "peerlearn.nets.small_net",
    }  # fmt: skip
    standard = {"hashlib", "collections.abc.Callable"}
    assert {name for name in modules | names if not name.startswith("torch")} == lent | standard


def test_it_prints_both_accuracies(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": accuracy ")[0] for line in lines] == ["ER", "CCLDC"]
    chance = 0.1
    assert all(float(line.split("accuracy ")[1].split("%")[0]) / 100 > chance for line in lines)
