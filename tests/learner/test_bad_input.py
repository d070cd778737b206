"""Bad input is refused with what to do next, and changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Build, same, tensors
from torch import Tensor

from peerlearn import (
    SGD,
    ClassStream,
    OnlineLearner,
    StreamInfo,
    UserError,
    build_learner,
    small_net,
)
from peerlearn.nets.small import SmallNet

X, Y = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])


BAD: dict[str, tuple[Any, Any, str]] = {
    "a single image": (X[0], Y[:1], r"shape must be \(batch, 3, height, width\).*x\[None\]"),
    "channels last": (X.permute(0, 2, 3, 1), Y, "need 3 channels.*move the channels"),
    "grey images": (X[:, :1], Y, "need 3 channels.*repeat grey"),
    "grey images, channels last": (X.permute(0, 2, 3, 1)[..., :1], Y, r"permute.*repeat\(1, 3"),
    "grey images without channels": (X[:, 0], Y, r"grey images are x\[:, None\]"),
    "four channels": (X[:, [0, 1, 2, 0]], Y, r"drop the alpha channel, x\[:, :3\]"),
    "four channels last": (
        X[:, [0, 1, 2, 0]].permute(0, 2, 3, 1),
        Y,
        r"permute\(0, 3, 1, 2\), and drop alpha",
    ),
    "channels last, of numpy": (X.permute(0, 2, 3, 1).numpy(), Y, r"x\.transpose\(0, 3, 1, 2\)"),
    "grey images of numpy": (X[:, :1].numpy(), Y, r"x\.repeat\(3, axis=1\)"),
    "a sparse tensor": (X.to_sparse(), Y, "need a plain tensor"),
    "a tensor without values": (X.to("meta"), Y, "need a plain tensor"),
    "floats of 8 bits": (X.float().to(torch.float8_e5m2), Y, "need a plain tensor"),
    "another size": (torch.zeros(4, 3, 9, 9, dtype=torch.uint8), Y, "resize"),
    "whole numbers that are not bytes": (X.int(), Y, "dtype must be uint8.*got int32"),
    "an empty batch": (X[:0], Y[:0], "batch is empty"),
    "NaN pixels": (torch.full((4, 3, 8, 8), float("nan")), Y, "NaN or infinite"),
    "infinite pixels": (torch.full((4, 3, 8, 8), float("inf")), Y, "NaN or infinite"),
    "floats up to 255": (X.float() + 255, Y, r"must lie in \[0, 1\].*divide by 255"),
    "normalised floats": (X.float() - 1, Y, r"must lie in \[0, 1\]"),
    "a list": ([[1]], Y, r"tensor or numpy array, got list; take numpy.asarray"),
    "names as labels": (X, np.array(["cat", "dog", "cat", "dog"]), "return_inverse=True"),
    "an array of objects": (np.array([None]), Y, "tensor or numpy array"),
    "too few labels": (X, Y[:3], r"shape must be \(4,\)"),
    "one-hot labels": (X, torch.eye(4).long(), r"shape must be \(4,\).*argmax\(1\)"),
    "a negative label": (X, Y - 1, "-1 is negative"),
    "a label beyond the head": (X, Y + 3, "4 is out of range.*num_classes=5"),
    "labels that are not whole": (X, Y.float(), "whole numbers, got float32"),
    "labels that are truths": (X, Y.bool(), "whole numbers, got bool"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_changes_nothing(
    case: str, build: Build, stream: ClassStream
) -> None:
    learner = build("er+ccldc")
    for batch in list(stream.tasks[0])[:2]:
        learner.learn(*batch)
    before = tensors(learner)
    x, y, says = BAD[case]
    with pytest.raises(UserError, match=says):
        learner.learn(x, y)
    assert same(before, tensors(learner))


def test_a_label_of_another_task_is_refused_by_a_method_that_needs_tasks(
    build: Build, stream: ClassStream
) -> None:
    learner = build("gsa+ccldc")
    learner.learn(*next(iter(stream.tasks[0])))
    before = tensors(learner)
    with pytest.raises(UserError, match=r"label \d is not of task 0.*call end_task"):
        learner.learn(*next(iter(stream.tasks[1])))
    assert same(before, tensors(learner))


@pytest.mark.parametrize("method", ["ocm", "gsa", "onpro"])
def test_a_stream_that_hides_its_boundaries_is_refused_by_methods_that_need_them(
    method: str,
) -> None:
    with pytest.raises(UserError, match=r"where tasks end.*take derpp, er, .*mir, pcr or rar"):
        build_learner(method, StreamInfo(num_classes=4), lambda: small_net(4), memory=10)


def test_gsa_must_know_the_classes_of_each_task() -> None:
    stream = StreamInfo(num_classes=4, boundaries=True)
    with pytest.raises(UserError, match="classes of each task"):
        build_learner("gsa", stream, lambda: small_net(4), memory=10)


@pytest.mark.parametrize("method", ["er", "derpp", "er_ace"])
def test_plain_replay_needs_no_boundaries(method: str, stream: ClassStream) -> None:
    info = StreamInfo(num_classes=4)
    learner = build_learner(method + "+ccldc", info, lambda: small_net(4, width=4), memory=10)
    for batch in list(stream.tasks[0])[:3]:
        losses = learner.learn(*batch)
    assert losses
    with pytest.raises(UserError, match="no task boundaries"):
        learner.end_task()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "err"}, "no method 'err'; did you mean er"),
        ({"name": "er+ccdlc"}, "no wrapper 'ccdlc'; did you mean ccldc"),
        ({"memory": -1}, "capacity must be 0"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"precision": "fp16"}, "needs device='cuda'"),
        ({"precision": "int8"}, "fp32, bf16 or fp16"),
        ({"device": None}, "device: need a name such as cpu or cuda:0, got None"),
        ({"device": [0]}, "device: need a name such as cpu or cuda:0, got 0"),
        ({"device": "meta"}, "device 'meta' cannot be used .*take cpu"),
        ({"device": "nonsense"}, "device 'nonsense' cannot be used .*take cpu"),
        ({"profile": "mine"}, "no profile 'mine'; known: paper, authors"),
        ({"method": {"replay_batch": 0}}, "replay_batch must be at least 1"),
        (
            {"method": {"replay_size": 3}},
            "er has no setting 'method.replay_size'; did you mean replay_b",
        ),
        ({"net": lambda: torch.nn.Linear(2, 2)}, r"Linear must offer features\(x\)"),
        ({"net": small_net(4)}, "a function that makes a network"),
        ({"net": None}, "a function that makes a network"),
        ({"net": 5}, r"small_net\(10\), or lambda n: small_net\(n\) where .*announced; got int"),
        ({"name": 5}, "name: need a method, and after a plus its wrapper, .*er.ccldc.*, got 5"),
        ({"memory": 2.5}, "capacity must be 0 .*got 2.5"),
        ({"memory": True}, "capacity must be 0 .*got True"),
        ({"memory": torch.tensor(2.5)}, r"capacity must be 0 .*got tensor\(2\.5"),
        ({"seed": "0"}, "seed must be a whole number"),
        ({"lr": True}, "lr must be a number, got True"),
        ({"optim": SGD(), "optimizer": "adam"}, "optim is sgd, optimizer adam; say one"),
        ({"momentum": 0.9}, "er has no setting 'momentum'"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    settings: dict[str, Any], says: str, build: Build
) -> None:
    with pytest.raises(UserError, match=says):
        build(**{"name": "er", **settings})


def test_a_task_without_a_batch_cannot_end(build: Build, stream: ClassStream) -> None:
    learner = build("ocm")
    with pytest.raises(UserError, match="task 0 has had no batch yet"):
        learner.end_task()
    learner.learn(*next(iter(stream.tasks[0])))
    learner.end_task()
    with pytest.raises(UserError, match="task 1 has had no batch yet"):
        learner.end_task()


@pytest.mark.parametrize("method", ["ocm", "onpro"])
def test_images_that_cannot_be_rotated_are_refused(method: str, build: Build) -> None:
    learner = build(method)
    before = tensors(learner)
    with pytest.raises(UserError, match="resize them to a square"):
        learner.learn(torch.zeros(4, 3, 8, 10, dtype=torch.uint8), Y)
    assert same(before, tensors(learner))


def test_one_network_cannot_be_two_peers(build: Build) -> None:
    only = small_net(4)
    with pytest.raises(UserError, match="a new network at each call"):
        build("er+ccldc", net=lambda: only)


@pytest.mark.parametrize("rows", [3, 7])
def test_a_network_with_another_number_of_classes_is_refused(rows: int, build: Build) -> None:
    says = f"answers {rows} classes, the stream has 4; make it with num_classes=4"
    with pytest.raises(UserError, match=says):
        build("er", net=lambda: small_net(rows)).learn(X, Y)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_network_that_ignores_the_number_of_classes_is_refused(rows: int) -> None:
    learner = build_learner("er", StreamInfo(), lambda _: small_net(rows, width=4), memory=10)
    before = tensors(learner)
    says = rf"answers {rows} classes, .* has 2; .* that it is given, as in lambda n: small_net\(n\)"
    with pytest.raises(UserError, match=says):
        learner.learn(X, Y)
    assert same(before, tensors(learner))


def test_a_learner_is_not_built_where_nothing_can_be_learnt_but_may_be_loaded_there(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er", net="small")
    learner.learn(*next(iter(stream.tasks[0])))
    learner.save(tmp_path)
    with torch.inference_mode():
        with pytest.raises(UserError, match=r"inference_mode\(\) is on.*build .* outside of it"):
            build("er")
        with pytest.raises(UserError, match=r"inference_mode\(\) is on.*restore .* outside of it"):
            OnlineLearner.restore(tmp_path)
        learner.load(tmp_path)
    learner.learn(*next(iter(stream.tasks[0])))


class Labels(SmallNet):
    """A network whose `classify` is no part of its forward."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    def classify(self, x: Tensor) -> Tensor:
        return self(x).argmax(dim=1)


def test_a_network_whose_classify_is_something_else_is_refused(build: Build) -> None:
    learner = build("er", net=lambda: Labels(4))
    with pytest.raises(UserError, match=r"forward\(x\) must be classify\(features\(x\)\)"):
        learner.learn(X, Y)


def test_a_loss_that_is_not_finite_stops_before_the_step(build: Build, stream: ClassStream) -> None:
    learner = build("er_ace")
    with torch.no_grad():
        next(learner.peers[0].model.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match=r"not finite any more.*smaller lr"):
        learner.learn(*next(iter(stream.tasks[0])))
