"""An evaluation computes nothing twice, and what it finds is what separate questions find."""

from typing import Any

import pytest
import torch
from conftest import Build, learn_some
from torch import Tensor, nn

from peerlearn import ClassStream, OnlineLearner, WithHead, small_net
from peerlearn.data.images import ImageSet
from peerlearn.experiment.evaluate import Scores
from peerlearn.losses import class_means
from peerlearn.methods import ER


class Counting(WithHead):
    """Counts the images that it is shown, all objects together."""

    shown = 0

    def __init__(self) -> None:
        super().__init__(small_net(4, width=4).encoder, 8, 4)

    def features(self, x: Tensor) -> Tensor:
        Counting.shown += len(x)
        return super().features(x)


class Unshared(Counting):
    """Its forward is its own, so that features and logits are two forwards."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


class NearestMean(ER):
    """ER without a classifier."""

    name = "nearest"
    gives_logits = False

    def predict(self, answers: Any, x: Tensor) -> Tensor:
        nearest: Tensor = answers.nearest_mean(x)
        return nearest


def plain_scores(learner: OnlineLearner, tests: list[ImageSet]) -> dict[str, Any]:
    """Everything asked for on its own, and computed anew."""
    x = torch.cat([test.x for test in tests])

    def right(predicted: Tensor) -> list[float]:
        parts = predicted.split([len(test) for test in tests])
        pairs = zip(parts, tests, strict=True)
        return [float((part == test.y).double().mean()) for part, test in pairs]

    scores: dict[str, Any] = {"ensemble": right(learner.predict(x)), "peers": [], "ncm": None}
    if len(learner.peers) > 1:
        logits = [learner.logits(x, peer=i) for i in range(len(learner.peers))]
        scores["peers"] = [right(own.argmax(dim=1)) for own in logits]
    if len(learner.memory):
        labels = learner.memory["y"]
        means = class_means(learner.features(learner.memory["x"]), labels, 4)
        held = labels.unique()
        nearest = torch.cdist(learner.features(x), means[held]).argmin(dim=1)
        scores["ncm"] = right(held[nearest])
    return scores


def last_rows(scores: Scores) -> dict[str, Any]:
    """The newest row of each matrix, without the tasks to come."""

    def row(rows: list[list[float | None]]) -> list[float]:
        return [value for value in rows[-1] if value is not None]

    lists = scores.to_lists()
    return {
        "ensemble": row(lists["ensemble"]),
        "peers": [row(rows) for rows in lists["peers"]],
        "ncm": lists["ncm"] and row(lists["ncm"]),
    }


@pytest.mark.parametrize("net", [Counting, Unshared])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("er", {}), ("er_ace+ccldc", {}), ("pcr+ccldc", {}), ("er+ccldc", {"peers": 3}),
     ("er+ccldc", {"memory": 0})],
)  # fmt: skip
def test_every_matrix_is_that_of_separate_questions(
    name: str,
    settings: dict[str, Any],
    net: type[nn.Module],
    build: Build,
    stream: ClassStream,
) -> None:
    learner = build(name, net=net, **settings)
    memory = settings.get("memory", 20)
    scores = Scores(learner, ncm=memory > 0)
    for number, task in enumerate(stream):
        for batch in list(task)[:4]:
            learner.learn(*batch)
        learner.end_task()
        tests = list(stream.test_sets[: number + 1])
        scores.add(learner, tests)
        assert last_rows(scores) == plain_scores(learner, tests)


@pytest.mark.parametrize("name", ["er", "er+ccldc", "pcr+ccldc"])
def test_each_network_sees_an_image_once(name: str, build: Build, stream: ClassStream) -> None:
    learner = build(name, net=Counting)
    learn_some(learner, stream)
    tests, peers = list(stream.test_sets), len(learner.peers)
    images = sum(map(len, tests))
    assert shown_by_evaluation(learner, tests) == peers * (images + len(learner.memory))
    assert shown_by_evaluation(learner, tests) == peers * images  # the class means are kept


def test_a_forward_of_its_own_costs_features_only_where_they_are_asked_for(
    build: Build, stream: ClassStream
) -> None:
    tests = list(stream.test_sets)
    images = sum(map(len, tests))
    without, with_memory = build("er", net=Unshared, memory=0), build("er", net=Unshared)
    for learner in (without, with_memory):
        learn_some(learner, stream)
    assert shown_by_evaluation(without, tests) == images
    assert shown_by_evaluation(with_memory, tests) == 2 * images + len(with_memory.memory)


def test_a_rule_without_logits_asks_for_none(stream: ClassStream) -> None:
    learner = OnlineLearner(NearestMean(stream.info), Unshared, memory=20)
    for batch in list(stream.tasks[0])[:4]:
        learner.learn(*batch)
    tests = [stream.test_sets[0]]
    assert shown_by_evaluation(learner, tests) == len(tests[0]) + len(learner.memory)
    scores = Scores(learner, ncm=True)
    scores.add(learner, tests)
    assert last_rows(scores) == plain_scores(learner, tests)
    assert last_rows(scores)["ensemble"] == last_rows(scores)["ncm"]


def test_a_rule_that_works_in_place_spoils_nothing(stream: ClassStream) -> None:
    class Rough(ER):
        name = "rough"

        def predict(self, answers: Any, x: Tensor) -> Tensor:
            answers.features(x).zero_()
            predicted: Tensor = answers.logits(x).neg_().argmin(dim=1)
            return predicted

    learner = OnlineLearner(Rough(stream.info), Counting, memory=20)
    for batch in list(stream.tasks[0])[:4]:
        learner.learn(*batch)
    scores, tests = Scores(learner, ncm=True), [stream.test_sets[0]]
    scores.add(learner, tests)
    assert last_rows(scores) == plain_scores(learner, tests)


def shown_by_evaluation(learner: OnlineLearner, tests: list[ImageSet]) -> int:
    scores = Scores(learner, ncm=True)
    for number in range(len(tests) - 1):
        scores.ensemble.add_row([0.0] * (number + 1))  # rows of earlier tasks
        for matrix in (*scores.peers, scores.ncm):
            assert matrix is not None
            matrix.add_row([0.0] * (number + 1))
    before = Counting.shown
    scores.add(learner, tests)
    return Counting.shown - before
