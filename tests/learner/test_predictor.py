"""Answers, while the learner learns."""

import threading
import time
from threading import Lock
from typing import Any

import pytest
import torch
from conftest import Build, same, tensors
from torch import Tensor, nn

from peerlearn import (
    ClassStream,
    OnlineLearner,
    StreamInfo,
    UserError,
    WithHead,
    accuracy,
    small_net,
)
from peerlearn.experiment.evaluate import Scores
from peerlearn.methods import ER


@pytest.mark.parametrize("name", ["er+ccldc", "onpro", "er+untrained"])
def test_predictions_from_another_thread_change_nothing_and_see_whole_steps(
    name: str, build: Build, stream: ClassStream
) -> None:
    alone, watched = build(name), build(name)
    x, batches = stream.test_sets[0].x[:8], list(stream.tasks[0])
    states = [alone.logits(x)]
    for batch in batches:
        alone.learn(*batch)
        states.append(alone.logits(x))
    answers: list[Tensor] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(watched.logits(x))
            watched.features(x)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number, batch in enumerate(batches):
        while len(answers) < number:  # some answers fall before, between and into the steps
            time.sleep(0.001)
        watched.learn(*batch)
    done.set()
    for thread in threads:
        thread.join()
    assert same(tensors(alone), tensors(watched))
    assert alone.cost == watched.cost
    assert all(any(torch.equal(answer, state) for state in states) for answer in answers)


class Moody(nn.Module):
    """A network whose buffer is replaced, not filled, and one layer of which stays as it is."""

    feature_dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3).eval()
        self.head, self.drop = nn.Linear(3, 4), nn.Dropout(0.5)
        self.register_buffer("shift", torch.zeros(3))

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.drop(self.norm(self.layer(x.mean(dim=(2, 3)))))
        if self.training:
            self.shift = self.shift + features.detach().mean(dim=0)
        return features + self.shift

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def test_a_network_that_replaces_its_buffers_answers_with_the_present_ones(
    build: Build, stream: ClassStream
) -> None:
    learner = build("er", net=Moody)
    x = stream.test_sets[0].x[:4]
    for batch in list(stream.tasks[0])[:3]:
        learner.learn(*batch)
        net: Any = learner.peers[0].model.net
        assert net.training
        assert not net.norm.training  # as its owner left it
        pixels = x.float() / 255
        expected = net.head(net.norm(net.layer(pixels.mean(dim=(2, 3)))) + net.shift)
        torch.testing.assert_close(learner.logits(x), expected)


def test_what_changes_at_the_end_of_a_task_is_seen(stream: ClassStream) -> None:
    class Reborn(ER):
        name = "reborn"

        def end_task(self, peer: Any) -> None:
            peer.model.net.head.weight = nn.Parameter(torch.zeros_like(peer.model.net.head.weight))

    learner = OnlineLearner(Reborn(stream.info), lambda: small_net(4, width=4), memory=20)
    learner.learn(*next(iter(stream.tasks[0])))
    x = stream.test_sets[0].x
    assert learner.logits(x).std(dim=0).min() > 0
    learner.end_task()
    assert learner.logits(x).std(dim=0).max() == 0  # nothing but the bias


class Keeper(nn.Module):
    """An encoder that no deep copy can be made of: it keeps a result and a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.lock = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), Lock()
        self.other = torch.nn.utils.spectral_norm(nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            self.last = self.other(self.layer(x.mean(dim=(2, 3))))
        return self.last


def test_a_network_that_cannot_be_copied_answers_all_the_same(
    build: Build, stream: ClassStream
) -> None:
    learner = build("er_ace+ccldc", net=lambda: WithHead(Keeper(), 3, 4))
    for batch in list(stream.tasks[0])[:3]:
        learner.learn(*batch)
        kept = learner.peers[0].model.net.encoder.last  # type: ignore[attr-defined]
        assert learner.predict(stream.test_sets[0].x).shape == (len(stream.test_sets[0]),)
        assert learner.peers[0].model.net.encoder.last is kept  # type: ignore[attr-defined]


def test_weights_are_shared_not_copied(build: Build, stream: ClassStream) -> None:
    learner = build("er")
    learner.learn(*next(iter(stream.tasks[0])))
    before = learner.logits(stream.test_sets[0].x)
    with torch.no_grad():
        for weight in learner.peers[0].model.parameters():
            weight.mul_(0.5)
    assert not torch.equal(learner.logits(stream.test_sets[0].x), before)


class NearestMean(ER):
    """ER that predicts by nearest class means, as SCR does."""

    name = "nearest_mean"
    gives_logits = False

    def predict(self, answers: Any, x: Tensor) -> Tensor:
        nearest: Tensor = answers.nearest_mean(x)
        return nearest


class TestARuleOfTheMethodsOwn:
    net = staticmethod(lambda: small_net(4, width=4))

    def test_decides_the_class(self, stream: ClassStream) -> None:
        learner = OnlineLearner(NearestMean(stream.info), self.net, memory=20)
        for batch in list(stream.tasks[0])[:4]:
            learner.learn(*batch)
        x = stream.test_sets[0].x
        assert torch.equal(learner.predict(x), learner.predict_ncm(x))
        assert not torch.equal(learner.predict(x), learner.logits(x).argmax(dim=1))

    def test_sees_the_images_that_it_asks_about_also_in_an_evaluation(
        self, stream: ClassStream
    ) -> None:
        class Negative(ER):
            """Predicts from the negative, half of the images at a time."""

            name = "negative"

            def predict(self, answers: Any, x: Tensor) -> Tensor:
                first, second = x.split(len(x) // 2)
                assert not torch.equal(answers.logits(255 - x), answers.logits(x))
                halves = [answers.logits(255 - first), answers.logits(255 - second)]
                return torch.cat(halves).argmax(dim=1)

        learner = OnlineLearner(Negative(stream.info), self.net, memory=20)
        for batch in stream.tasks[0]:
            learner.learn(*batch)
        scores, test = Scores(peers=1, ncm=False), stream.test_sets[0]
        scores.add(learner, [test])
        assert scores.ensemble.average_accuracy == accuracy(learner.predict, test)

    def test_a_method_without_logits_has_no_probabilities(self, stream: ClassStream) -> None:
        learner = OnlineLearner(NearestMean(stream.info), self.net, memory=20)
        with pytest.raises(UserError, match="predict_proba: nearest_mean has no probabilities"):
            learner.predict_proba(stream.test_sets[0].x)

    def test_a_method_without_a_classifier_cannot_be_taught(self) -> None:
        from peerlearn.learner import collaboration_of

        method = NearestMean(StreamInfo(num_classes=4))
        with pytest.raises(UserError, match="nearest_mean has no classifier"):
            OnlineLearner(method, self.net, collaboration_of("ccldc", "er"), memory=20)


def test_a_head_of_the_methods_own_answers_learns_and_is_saved(
    stream: ClassStream, tmp_path: Any
) -> None:
    class WithOwnHead(ER):
        name = "own_head"

        def setup_peer(self, peer: Any) -> None:
            peer.model.use_head(nn.Linear(peer.model.feature_dim, self.stream.num_classes))

    def learner() -> OnlineLearner:
        return OnlineLearner(WithOwnHead(stream.info), lambda: small_net(4, width=4), memory=20)

    one, two = learner(), learner()
    before = {k: v.clone() for k, v in one.peers[0].model.named_parameters()}
    for batch in list(stream.tasks[0])[:3]:
        one.learn(*batch)
    after = dict(one.peers[0].model.named_parameters())
    assert not torch.equal(before["head.weight"], after["head.weight"])
    assert torch.equal(before["net.head.weight"], after["net.head.weight"])  # answers no more
    one.save(tmp_path)
    two.load(tmp_path)
    assert torch.equal(one.logits(stream.test_sets[0].x), two.logits(stream.test_sets[0].x))
