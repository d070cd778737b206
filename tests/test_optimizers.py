"""Optimizers by name, with their settings, and resumed with their state."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, same, tensors, weights

from peerlearn import SGD, Adam, AdamW, ClassStream, UserError
from peerlearn.optim import OPTIMIZERS, Optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_learns_and_resumes_bit_for_bit(
    name: str, build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    one, two = (build("er+ccldc", optimizer=name, **momentum(name)) for _ in range(2))
    before = weights(one)
    learn_some(one, stream, 3)
    assert not same(before, weights(one))
    one.save(tmp_path)
    two.load(tmp_path)
    batch = list(stream.tasks[1])[-1]
    assert one.learn(*batch) == two.learn(*batch)
    assert same(tensors(one), tensors(two))


def momentum(name: str) -> dict[str, Any]:
    return {"momentum": 0.9} if name == "sgd" else {}


def test_the_settings_reach_the_optimizer(build: Build) -> None:
    learner = build("er", optimizer="sgd", lr=0.3, momentum=0.9, weight_decay=0.01)
    (group,) = learner.peers[0].optimizer.param_groups
    assert isinstance(learner.peers[0].optimizer, torch.optim.SGD)
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.3, 0.9, 0.01)


def test_an_optimizer_may_be_given_as_an_object(build: Build) -> None:
    for chosen in (SGD(lr=0.3, momentum=0.9), Adam(beta1=0.5), AdamW(lr=1e-2)):
        assert build("er", optim=chosen).optim == chosen


def test_a_learning_rate_that_moves_is_resumed_where_it_was(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    one, two = build("er"), build("er")
    learn_some(one, stream, 2)
    for group in one.peers[0].optimizer.param_groups:
        group["lr"] *= 0.5
    one.save(tmp_path)
    two.load(tmp_path)
    batch = list(stream.tasks[1])[-1]
    one.learn(*batch)
    two.learn(*batch)
    assert same(weights(one), weights(two))


def test_the_methods_own_settings_are_those_of_its_own_optimizer_only(build: Build) -> None:
    assert build("ocm").optim == AdamW(lr=1e-3, beta2=0.99)
    assert build("ocm", optimizer="sgd").optim == SGD()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lr": 0}, "AdamW: lr must be above 0, got 0"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"weight_decay": -1}, "weight_decay must be at least 0"),
        ({"beta1": 1}, "beta1 must be below 1"),
        ({"momentum": 0.9}, "er has no setting 'momentum'"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    wrong: dict[str, Any], says: str, build: Build
) -> None:
    with pytest.raises(UserError, match=says):
        build("er", **wrong)


def test_a_checkpoint_of_another_optimizer_is_refused(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er")
    learn_some(learner, stream, 1)
    learner.save(tmp_path)
    with pytest.raises(UserError, match=r"optim.name 'adamw' there, 'sgd' here"):
        build("er", optimizer="sgd").load(tmp_path)


class Odd(Optimizer):
    """One whose state has other shapes than the weights, and numbers that are no tensors."""

    name = "odd"

    def build(self, parameters: Any) -> torch.optim.Optimizer:
        return Counting(torch.optim.Adafactor(parameters, lr=self.lr))


class Counting(torch.optim.Optimizer):
    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner
        self.state = inner.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.state = self.state
        self.inner.step(closure)
        for state in self.state.values():
            state["calls"] = state.get("calls", 0) + 1
            if state["calls"] > 3:
                for weight in self.param_groups[0]["params"]:
                    weight.data.mul_(0.999)


def test_one_of_others_resumes_whatever_its_state_is(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    with OPTIMIZERS.unchanged():
        OPTIMIZERS.add(Odd)
        one, two = build("er", optimizer="odd"), build("er", optimizer="odd")
        learn_some(one, stream, 3)
        one.save(tmp_path)
        two.load(tmp_path)
        for batch in list(stream.tasks[1])[-3:]:
            assert one.learn(*batch) == two.learn(*batch)
        assert same(weights(one), weights(two))
