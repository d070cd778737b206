"""Compiled networks: which part, for which device, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command import run_small
from torch import Tensor, nn

from devices.learners import STREAM, build, differences, taught, teach
from peerlearn import small_net
from peerlearn.peer import PeerModel


class Compiler:
    """Stands for `torch.compile`: notes what it is told, and what its product is shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.modes: list[str | None] = []
        self.shown: list[nn.Module] = []
        monkeypatch.setattr(torch, "compile", self)

    def __call__(self, function: Any, mode: str | None = None) -> Any:
        self.modes.append(mode)

        def product(net: nn.Module, x: Tensor) -> Any:
            self.shown.append(net)
            return function(net, x)

        return product


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(monkeypatch)


@pytest.mark.parametrize("name", ["er+ccldc", "ocm", "pcr", "mir", "er+untrained"])
def test_a_learner_with_compiled_networks_learns_and_answers_the_same(
    name: str, compiler: Compiler
) -> None:
    compiled = teach(build(name, compile=True))
    assert compiled.losses == taught(name).losses
    assert differences(compiled.learner, taught(name).learner) == []
    x = STREAM.test_sets[0].x
    assert torch.equal(compiled.learner.logits(x), taught(name).learner.logits(x))
    assert len(compiler.modes) == len(compiled.learner.networks)
    assert {*compiler.modes} == {None}


def test_names_of_tensors_stay_and_nothing_is_compiled_unasked(compiler: Compiler) -> None:
    plain = build("er+ccldc")
    assert compiler.modes == []
    assert build("er+ccldc", compile=True).state_dict().keys() == plain.state_dict().keys()


def test_a_copy_computes_with_its_own_weights(compiler: Compiler) -> None:
    learner = build("ocm", compile=True)
    learner.learn(*next(iter(STREAM.tasks[0])))
    learner.predict(STREAM.test_sets[0].x)
    net = learner.peers[0].model.net
    assert any(one is net for one in compiler.shown)
    assert not compiler.shown[-1].training  # a twin of it


def test_cuda_graphs_are_for_cuda_and_leave_their_answers_alone(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PeerModel(small_net(4), compile=True)
    monkeypatch.setattr(model, "to", lambda *_args, **_named: model)  # there is none to go to
    model.settle(torch.device("cuda"))
    assert compiler.modes == ["reduce-overhead"]
    x = torch.rand(2, 3, 8, 8)
    assert model.features(x).shape == (2, model.feature_dim)
    assert compiler.shown == [model.net]


def test_peers_with_compiled_networks_take_turns(compiler: Compiler) -> None:
    assert build("er+ccldc", compile=True, peers_at_once=2).pool.count == 1
    assert len(compiler.modes) == 2


def test_a_run_that_is_told_to_compiles_its_networks(compiler: Compiler, tmp_path: Path) -> None:
    words = ("--net", "small", "--width", "4", "--compile", "true")
    assert run_small(tmp_path, *words, method="er") == 0
    assert {*compiler.modes} == {None}
    assert "compile: true" in next(tmp_path.rglob("config.yaml")).read_text()
