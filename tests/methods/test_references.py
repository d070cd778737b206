"""`finetune` and `joint`, the references below and above every other row."""

import json
from pathlib import Path

import pytest
import torch
from command import folder, run_small

from peerlearn import StreamInfo, build_learner, small_net
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.paper.tables import table

INFO = StreamInfo(num_classes=4)
X = torch.randint(0, 256, (10, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
Y = torch.arange(10) % 4


@pytest.mark.parametrize("name", ["finetune", "joint"])
def test_takes_the_steps_of_er_without_memory_and_keeps_nothing(name: str) -> None:
    learners = [
        build_learner(method, INFO, lambda: small_net(4), memory=memory)
        for method, memory in ((name, 50), ("er", 0))
    ]
    for _ in range(3):
        losses = [learner.learn(X, Y) for learner in learners]
        assert losses[0] == losses[1]
    states = [learner.peers[0].model.state_dict() for learner in learners]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert learners[0].kept_bytes["images"] == 0


def test_the_stream_of_joint_is_one_task_whatever_is_asked_for() -> None:
    flags = [Given(name, value, "flag", f"--{name}") for name, value in
             (("stream", "i-blurry"), ("tasks", 5), ("disjoint", 10))]  # fmt: skip
    run = resolve("joint", flags)
    assert run.values["stream.name"] == "class"
    assert run.values["stream.tasks"] == 1
    assert run.values["stream.epochs"] == 10
    assert run.variant == {}
    assert {item.name for item in run.unused} >= {"stream", "tasks"}


def test_joint_takes_other_epochs() -> None:
    run = resolve("joint", [Given("epochs", 3, "flag", "--epochs")])
    assert run.variant == {"epochs": 3}


def test_k_counts_every_epoch_in_steps_of_er_with_the_memory_of_the_command(tmp_path: Path) -> None:
    """A hundred images in batches of 10, memory 20: ER would replay 0, 10, then 20 images."""
    assert run_small(tmp_path, method="er finetune joint") == 0
    by_er = 10 + (10 + 10) + 8 * (10 + 20)
    for name, passes in (("finetune", 1), ("joint", 10)):
        found = json.loads((folder(tmp_path, name) / "summary.json").read_text())
        assert found["cost"]["forward_per_image"] == passes
        assert found["cost"]["relative"] == pytest.approx(100 * passes / by_er)
        assert found["ncm"] is None
    matrix = json.loads((folder(tmp_path, "joint") / "accuracy.json").read_text())["ensemble"]
    assert len(matrix) == 1


def test_reproduce_takes_them_as_rows() -> None:
    rows = [line.label for line in table("aa").only(["er", "finetune", "joint"]).lines]
    assert rows == ["er", "er+ccldc", "finetune", "joint"]
