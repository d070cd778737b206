"""Steps on the memory alone: `learner.rehearse(steps)`."""

from typing import Any, ClassVar

import pytest
import torch
from torch.nn import functional as F

from peerlearn import ClassStream, OnlineLearner, OpenLearner, StreamInfo, build_learner, small_net
from peerlearn.augment import full
from peerlearn.distill import WRAPPERS
from peerlearn.errors import UserError
from peerlearn.methods import DERPP, StepOutput
from peerlearn.peer import Peer

INFO = StreamInfo(num_classes=4, boundaries=True, classes_per_task=2)
X = torch.randint(0, 256, (10, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
Y = torch.arange(10) % 2


def learner_of(name, batches=3, **settings):
    learner = build_learner(name, INFO, "small", **({"memory": 20} | settings))
    for _ in range(batches):
        learner.learn(X, Y)
    return learner


def test_er_takes_the_step_of_its_formula():
    """One step of SGD on the cross-entropy of the drawn and augmented memory images."""
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0, "momentum": 0}
    learner = learner_of("er", replay_batch=100, memory=20, **settings)
    model = learner.peers[0].model
    weights = {name: w.detach().clone() for name, w in model.named_parameters()}
    drawn = learner.memory.draw(100, torch.Generator())  # all rows, in storage order
    learner.rngs["draws"].manual_seed(7)
    x = full(drawn["x"].float().div(255), torch.Generator().manual_seed(7))
    loss = F.cross_entropy(model.logits(x), drawn["y"])
    slopes = torch.autograd.grad(loss, [*model.parameters()])
    losses = learner.rehearse()
    assert losses["base"] == pytest.approx(loss.item(), rel=1e-6)
    for (name, now), slope in zip(model.named_parameters(), slopes, strict=True):
        torch.testing.assert_close(now.detach(), weights[name] - 0.1 * slope)


def images_of(learner):
    cost = learner.cost
    return cost["forward_images"], cost["backward_images"]


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("er", 16, 16),
        ("er_ace", 16, 16),
        ("mir", 16, 16),  # nothing on the stream could interfere: a random draw
        ("pcr", 32, 32),  # as they are, and augmented
        ("derpp", 32, 32),  # two draws
        ("er+ccldc", 2 * 5 * 16, 2 * 5 * 16),  # two peers, the method's batch and four views
        ("er+ema", 16, 16),
        ("er+mkd", 16 * 3, 16 * 2),  # augmented and raw; the teacher's forward
    ],
)
def test_cost_is_that_of_the_memory_images(name, forward, backward):
    learner = learner_of(name, replay_batch=16)
    before = images_of(learner)
    learner.rehearse(3)
    after = images_of(learner)
    assert (after[0] - before[0], after[1] - before[1]) == (3 * forward, 3 * backward)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_every_wrapper_rehearses(wrapper):
    learner = learner_of(f"er+{wrapper}")
    before = [w.detach().clone() for w in learner.peers[0].model.parameters()]
    assert all(map(torch.isfinite, map(torch.tensor, learner.rehearse().values())))
    after = learner.peers[0].model.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert learner.progress.batches == 3
    assert learner.progress.rehearsed == 1


@pytest.mark.parametrize("name", ["ocm", "gsa", "onpro"])
def test_methods_that_need_a_stream_batch_say_why(name):
    with pytest.raises(UserError, match=f"{name} cannot take steps on the memory alone, as "):
        learner_of(name).rehearse()


def test_an_empty_memory_is_refused_in_one_line():
    with pytest.raises(UserError, match="the memory holds no image; learn"):
        build_learner("er", INFO, "small", memory=20).rehearse()
    with pytest.raises(UserError, match="there is no memory; build the learner with one"):
        learner_of("er", memory=0).rehearse()
    with pytest.raises(UserError, match="finetune keeps no images"):
        learner_of("finetune").rehearse()


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "2"])
def test_steps_must_be_a_whole_number_above_0(steps):
    with pytest.raises(UserError, match="steps must be"):
        learner_of("er").rehearse(steps)


def test_a_step_that_fails_changes_nothing(monkeypatch):
    learner = learner_of("derpp")
    state = {k: v.clone() for k, v in learner.state_dict().items() if torch.is_tensor(v)}
    monkeypatch.setattr(type(learner.peers[0]), "backward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        learner.rehearse()
    monkeypatch.undo()
    for name, value in learner.state_dict().items():
        assert not torch.is_tensor(value) or torch.equal(value, state[name]), name
    assert learner.progress.rehearsed == 0
    assert learner.rehearse()


def test_steps_before_a_failure_stay(monkeypatch):
    learner, twin = learner_of("er"), learner_of("er")
    compute, calls = learner._step.gradients, []

    def fails_at_the_third(*given):
        calls.append(1)
        return compute(*given) if len(calls) < 3 else 1 / 0

    monkeypatch.setattr(learner._step, "gradients", fails_at_the_third)
    with pytest.raises(ZeroDivisionError):
        learner.rehearse(5)
    twin.rehearse(2)
    assert learner.progress.rehearsed == 2
    for a, b in zip(
        learner.peers[0].model.parameters(), twin.peers[0].model.parameters(), strict=True
    ):
        assert torch.equal(a, b)


def test_an_open_learner_rehearses_while_the_stream_pauses():
    learner = OpenLearner("er+ema", memory=20, net="small")
    with pytest.raises(UserError, match="the memory holds no image"):
        learner.rehearse()
    learner.learn(X, ["cat", "dog"] * 5)
    assert learner.rehearse(2)
    assert learner.learner.progress.rehearsed == 2
    assert learner.classes == ["cat", "dog"]


def test_what_a_method_would_store_of_a_rehearsal_is_not_looked_at(stream: ClassStream) -> None:
    class Careless(DERPP):
        name = "careless"
        rehearsed: ClassVar[bool] = False

        def loss(self, peer: Peer, draw: Any) -> StepOutput:
            output = super().loss(peer, draw)
            return output._replace(store={"logits": None}) if type(self).rehearsed else output

    learner = OnlineLearner(Careless(stream.info), lambda: small_net(4, width=4), memory=20)
    for batch in list(stream.tasks[0])[:3]:
        learner.learn(*batch)
    Careless.rehearsed = True
    assert learner.rehearse(2)
