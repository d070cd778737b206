"""RAR: ten steps per batch, counted by hand, and ER with other defaults as its plainer twin."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command import VARIANT, folder, run_small
from conftest import same, tensors
from torch.nn import functional as F

from peerlearn import OnlineLearner, StreamInfo, build_learner, small_net
from peerlearn.augment import AUGMENTATIONS
from peerlearn.methods import ER, RAR

INFO = StreamInfo(num_classes=4)
# turns ER into RAR, but for the number of steps
TWIN: dict[str, Any] = {"augment": "randaugment", "replay_batch": 10}
WRAPPED = [  # images of one step per image of its batch: peers, times the method's batch and views
    ("rar", 1),
    ("rar+ema", 1),
    ("rar+ccldc", 2 * (1 + 4)),
]


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (10, 3, 8, 8), generator=rng).byte()
    return x, torch.randint(4, (10,), generator=rng)


def build(name: str, **settings: Any) -> OnlineLearner:
    settings = {"memory": 50, "net": partial(small_net, 4, width=2)} | settings
    return build_learner(name, INFO, **settings)


def learn(learner: OnlineLearner, batches: int) -> list[dict[str, float]]:
    return [learner.learn(*batch(seed)) for seed in range(batches)]


def images(learner: OnlineLearner) -> tuple[int, int]:
    return learner.cost["forward_images"], learner.cost["backward_images"]


# ---- the preset ----


@pytest.mark.parametrize(("name", "factor"), WRAPPED)
def test_ten_steps_of_ten_stream_and_ten_memory_images_are_taken_per_batch(
    name: str, factor: int
) -> None:
    learner = build(name)
    assert learner.updates == 10
    learn(learner, 1)
    assert images(learner) == (0, 0)  # nothing to replay yet
    learn(learner, 3)
    computed = factor * 3 * 10 * (10 + 10)
    assert images(learner) == (computed, computed)


def test_a_learner_that_is_built_from_the_class_takes_ten_steps_as_well() -> None:
    learner = OnlineLearner(RAR(INFO), partial(small_net, 4, width=2), memory=50)
    assert learner.updates == 10


def test_another_number_of_steps_can_be_given() -> None:
    learner = build("rar", updates=3)
    assert learner.updates == 3
    learn(learner, 2)
    assert images(learner) == (3 * 20, 3 * 20)


def test_er_still_takes_one_step() -> None:
    assert build("er").updates == 1


# ---- a plainer twin ----


def test_one_step_is_one_of_er_with_randaugment_and_a_replay_batch_of_ten() -> None:
    rar, er = build("rar", updates=1), build("er", **TWIN)
    assert learn(rar, 4) == learn(er, 4)
    assert same(tensors(rar), tensors(er))


def test_ten_steps_are_ten_of_er_on_the_same_batch() -> None:
    rar, er = build("rar"), build("er", updates=10, **TWIN)
    assert learn(rar, 3) == learn(er, 3)
    assert same(tensors(rar), tensors(er))


def test_each_step_draws_and_augments_anew_and_follows_its_gradient() -> None:
    """Three steps of plain SGD, written out; the batch is stored after the last of them."""
    sgd = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0, "momentum": 0}
    learner, twin = (build("rar", updates=3, **sgd) for _ in range(2))
    for one in (learner, twin):
        one.learn(*batch(0))
        one.learn(*batch(1))
    x, y = batch(2)
    model, rng = twin.peers[0].model.train(), twin.rngs["draws"]
    drawn = []
    for _ in range(3):
        rows = twin.memory.draw(10, rng)
        drawn.append(rows["x"])
        shown = torch.cat([rows["x"], x]).float() / 255
        logits = model.logits(AUGMENTATIONS["randaugment"](shown, rng))
        loss = F.cross_entropy(logits, torch.cat([rows["y"], y]))
        slopes = torch.autograd.grad(loss, [*model.parameters()])
        with torch.no_grad():
            for weight, slope in zip(model.parameters(), slopes, strict=True):
                weight -= 0.1 * slope
    assert not torch.equal(drawn[0], drawn[1])
    assert learner.learn(x, y)["base"] == pytest.approx(loss.item(), rel=1e-5)
    found = learner.peers[0].model.state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found[name], value)
    assert len(learner.memory) == 30


# ---- wrappers and rehearsal ----


@pytest.mark.parametrize("name", ["rar+ema", "rar+ccldc"])
def test_wrapped_it_takes_the_steps_of_er_in_the_same_distillation(name: str) -> None:
    learner = build(name)
    net, distillation = partial(small_net, 4, width=2), learner.distillation
    twin = OnlineLearner(ER(INFO, **TWIN), net, distillation, memory=50, updates=10)
    assert learn(learner, 3) == learn(twin, 3)
    assert same(tensors(learner), tensors(twin))
    assert not same(tensors(learner), tensors(build(name)))
    assert torch.equal(learner.predict(batch(9)[0]), twin.predict(batch(9)[0]))


@pytest.mark.parametrize(("name", "factor"), WRAPPED)
def test_rehearsal_takes_steps_on_ten_memory_images(name: str, factor: int) -> None:
    learner = build(name)
    learn(learner, 3)
    before, weights = images(learner), tensors(learner)
    assert learner.rehearse(4)["base"] > 0
    assert images(learner) == (before[0] + factor * 4 * 10, before[1] + factor * 4 * 10)
    assert not same(tensors(learner), weights)
    assert len(learner.memory) == 30


# ---- in a run ----


@pytest.mark.parametrize(("words", "steps"), [((), 10), (("--updates", "3"), 3)])
def test_a_run_counts_k_in_steps_of_er_with_the_same_replay_batch(
    words: tuple[str, ...], steps: int, tmp_path: Path
) -> None:
    """Ten batches of 10 with a memory of 20; there is no step on the first."""
    assert run_small(tmp_path, *words, "--net", "small", method="rar") == 0
    given = f"updates={steps}," if words else ""
    (found,) = tmp_path.rglob("summary.json")
    assert found.parent == folder(tmp_path, "rar", f"net=small,{given}{VARIANT}")
    cost = json.loads(found.read_text())["cost"]
    assert cost["forward_per_image"] == cost["backward_per_image"] == 9 * steps * 20 / 100
    assert cost["relative"] == pytest.approx(steps)
    assert cost["updates_per_image"] == pytest.approx(9 * steps / 100)
    settings = yaml.safe_load((found.parent / "config.yaml").read_text())["settings"]
    assert settings["updates"] == steps
    assert settings["augment"] == {"randaugment_n": 1, "randaugment_m": 14}
