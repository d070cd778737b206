"""Offline learning, to compare with: several passes over each task, remembered once."""

import json
from pathlib import Path

import pytest
import torch

from peerlearn import cli
from peerlearn.data.toy import toy_images
from peerlearn.errors import UserError
from peerlearn.learner.build import build_learner
from peerlearn.nets import small_net
from peerlearn.stream import ClassStream, StreamInfo

SMALL = [
    *("--data", "mini", "--memory", "20", "--width", "1", "--threads", "1"),
    *("--train-per-class", "10", "--test-per-class", "5"),
]


def stream(epochs: int) -> ClassStream:
    return ClassStream(toy_images(num_classes=4, train_per_class=9), 2, 4, seed=3, epochs=epochs)


def test_the_first_pass_is_that_of_an_online_stream() -> None:
    for once, thrice in zip(stream(1), stream(3), strict=True):
        assert len(thrice) == 3 * len(once)
        for a, b in zip(once, thrice, strict=False):
            assert torch.equal(a.x, b.x)


def test_every_pass_shows_every_image_once_in_another_order() -> None:
    for task in stream(3):
        batches = list(task)
        size = len(batches) // 3
        passes = [torch.cat([b.x for b in batches[e * size : (e + 1) * size]]) for e in range(3)]
        orders = [[bytes(x.numpy().tobytes()) for x in one] for one in passes]
        assert len({*orders[0]}) == task.num_images
        assert all(sorted(order) == sorted(orders[0]) for order in orders)
        assert len({tuple(order) for order in orders}) == 3


def test_a_later_pass_can_be_entered_at_any_batch() -> None:
    (task, _) = stream(2)
    whole = list(task)
    for start in range(len(task) + 1):
        for a, b in zip(whole[start:], task.batches(start), strict=True):
            assert torch.equal(a.x, b.x)


def test_the_card_says_that_images_pass_again() -> None:
    assert "every image once" in stream(1).card()
    assert "every image 3 times in its task" in stream(3).card()


def test_no_pass_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="epochs must be at least 1, not 0"):
        stream(0)


def test_what_is_not_to_be_remembered_is_learnt_and_not_kept() -> None:
    learner = build_learner("er", StreamInfo(num_classes=4), lambda: small_net(4), memory=50)
    x, y = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8), torch.arange(10) % 4
    with pytest.raises(UserError, match="remember=False is for what passes again"):
        learner.learn(x, y, remember=False)
    learner.learn(x, y)
    before = [p.clone() for p in learner.peers[0].model.net.parameters()]
    learner.learn(x, y, remember=False)
    assert len(learner.memory) == 10
    assert learner.cost["stream_images"] == 10
    after = learner.peers[0].model.net.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_an_offline_run_keeps_what_an_online_one_would_and_pays_for_its_passes(
    tmp_path: Path,
) -> None:
    assert cli.main(["run", "er", *SMALL, "--out", str(tmp_path)]) == 0
    assert cli.main(["run", "er", *SMALL, "--epochs", "3", "--out", str(tmp_path)]) == 0
    found = {
        path.parent.parent.name.count("epochs=3"): json.loads(path.read_text())
        for path in tmp_path.rglob("summary.json")
    }
    assert len(found) == 2
    online, offline = found[0], found[1]
    assert online["memory_classes"] == offline["memory_classes"]
    times = offline["cost"]["backward_per_image"] / online["cost"]["backward_per_image"]
    assert 3 < times < 3.5  # an online run takes no step on its first batch, a tenth of all
