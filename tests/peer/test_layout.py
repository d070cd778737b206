"""The memory layout: fast where it is safe."""

import os
import runpy
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import yaml
from command import VARIANT, folder, run_small
from conftest import Build, learn_some, same, tensors
from torch import nn

from peerlearn import ClassStream, OnlineLearner, UserError
from peerlearn.experiment import run as running
from peerlearn.nets import ResNet18
from peerlearn.nets.processor import bf16_trial
from peerlearn.peer import Layout, PeerModel

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("width", "layout"),
    [(1, torch.contiguous_format), (8, torch.contiguous_format), (15, torch.contiguous_format),
     (16, torch.channels_last), (64, torch.channels_last)],
)  # fmt: skip
def test_few_channels_keep_the_default_layout(width: int, layout: torch.memory_format) -> None:
    model = PeerModel(ResNet18(10, width=width))
    model.settle(CPU)
    assert model.layout == layout
    assert model.net.stages[2].conv1.weight.is_contiguous(memory_format=layout)


def test_a_net_without_strided_pointwise_convolutions_is_always_fast() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 4, 1), nn.Flatten())
    net.feature_dim, net.features = 4, net.forward  # type: ignore[assignment]
    model = PeerModel(net)
    model.settle(CPU)
    assert model.layout == torch.channels_last


@pytest.mark.parametrize("layout", ["auto", "channels_last", "default"])
def test_a_layout_that_is_safe_can_be_chosen(layout: Layout) -> None:
    model = PeerModel(ResNet18(10, width=16), layout=layout)
    model.settle(CPU)
    formats = [torch.contiguous_format, torch.channels_last]
    chosen, other = formats if layout == "default" else formats[::-1]
    weight = model.net.stages[0].conv1.weight
    assert weight.is_contiguous(memory_format=chosen)
    assert not weight.is_contiguous(memory_format=other)


def test_channels_last_is_refused_where_it_may_end_the_process() -> None:
    model = PeerModel(ResNet18(10, width=15), layout="channels_last")
    with pytest.raises(UserError, match=r"^layout channels_last may end the process.*take auto$"):
        model.settle(CPU)


def test_another_layout_is_refused(build: Build) -> None:
    with pytest.raises(UserError, match=r"layout must be auto, .*default, got 'nhwc'"):
        build("er", layout="nhwc")


def test_every_network_of_a_learner_has_its_layout(build: Build, stream: ClassStream) -> None:
    learner = build("ocm+ccldc-easy-to-hard", layout="default")  # a snapshot and teachers
    learn_some(learner, stream, 2)
    assert len(learner.networks) > 2
    assert {network.layout for network in learner.networks} == {torch.contiguous_format}


def test_layouts_agree_but_for_rounding(build: Build, stream: ClassStream) -> None:
    losses = [learn_some(build("er", layout=layout), stream, 2) for layout in ("auto", "default")]
    for one, two in zip(*losses, strict=True):
        assert one.keys() == two.keys()
        assert all(one[name] == pytest.approx(two[name], rel=1e-3) for name in one)


def test_a_checkpoint_may_go_on_in_another_layout(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner, other = build("er", layout="channels_last"), build("er", layout="default")
    learn_some(learner, stream, 2)
    learner.save(tmp_path)
    other.load(tmp_path)
    assert same(tensors(learner), tensors(other))
    moments = other.peers[0].optimizer.state.values()
    assert all(m["exp_avg"].is_contiguous() for m in moments)


def test_a_resumed_run_keeps_its_layout_which_makes_no_other_row(tmp_path: Path) -> None:
    words = ("--net", "small")
    assert run_small(tmp_path, *words, "--layout", "default", method="er") == 0
    place = folder(tmp_path, "er", f"net=small,{VARIANT}")
    before = (place / "accuracy.json").read_bytes()
    (place / "summary.json").unlink()  # as if it had not come to its end
    make, learners = running.make_learner, []

    def noted(*args: Any, **options: Any) -> OnlineLearner:
        learners.append(make(*args, **options))
        return learners[-1]

    with patch.object(running, "make_learner", noted):
        assert run_small(tmp_path, *words, method="er") == 0
    assert {n.layout for one in learners for n in one.networks} == {torch.contiguous_format}
    assert (place / "accuracy.json").read_bytes() == before
    config = yaml.safe_load((place / "config.yaml").read_text())
    assert config["settings"]["machine"]["layout"] == "default"


SWEEP = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "sweep_layouts.py"))


@pytest.mark.parametrize(("precision", "sizes"), [("fp32", (8, 33, 46, 64)), ("bf16", (9, 48))])
def test_no_step_ends_its_process(precision: str, sizes: tuple[int, ...]) -> None:
    """A small part of scripts/sweep_layouts.py."""
    if precision == "bf16" and (fault := bf16_trial().fault):
        pytest.skip(f"bf16 on this machine: a trial {fault}")
    some = [*SWEEP["grid"](["resnet18"], (1, 8, 15, 16, 31), sizes, [precision])]
    assert not SWEEP["sweep"](some)


def test_a_step_that_ends_its_process_would_be_found() -> None:
    some = [SWEEP["Configuration"]("small", 2, size, "auto", "fp32") for size in (8, 16, 24)]

    def dies(one: Any) -> None:
        if one.size == 16:
            os.kill(os.getpid(), signal.SIGKILL)

    with patch.dict(SWEEP["_work"].__globals__, take_step=dies):
        [line] = SWEEP["sweep"](some)
    assert "width=2, size=16" in line
    assert line.endswith("exit code -9")


class Functional(nn.Module):
    """A network of somebody else's, whose convolution is no module."""

    feature_dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.rand(8, 3, 1, 1))
        self.head = nn.Linear(8, 4)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.kernel, stride=2).mean(dim=(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.features(x))
        return found


def test_a_network_of_others_that_may_have_such_a_convolution_keeps_the_default_layout() -> None:
    norm = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 1, stride=2))
    net = nn.Sequential(norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.feature_dim, net.features = 8, net.forward  # type: ignore[assignment]
    for made in (Functional(), net):
        model = PeerModel(made)
        model.settle(CPU)
        assert model.layout == torch.contiguous_format
