"""Who answers: the peers, their slow copies, or networks half-way between both."""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, same, tensors
from torch import Tensor

from peerlearn import ClassStream, OnlineLearner, UserError
from peerlearn.data.images import ImageSet
from peerlearn.experiment.evaluate import Scores
from peerlearn.learner.collaboration import ANSWERS, AnswerBy
from peerlearn.losses import class_means
from peerlearn.peer.model import PeerModel
from peerlearn.records.schema import Matrices
from peerlearn.stream import Batch

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("er+ema", {}),
    ("er+mkd", {}),
    ("er+mkd", {"profile": "authors"}),  # slow copies with statistics of their own
    ("pcr+mkd", {}),  # a head of the method's own
    ("ocm+ema", {}),
    ("er+mkd-pair", {}),
    ("er+ccldc-ema", {}),
    ("er+gwm", {}),  # one slow copy for two peers
]


Make = Callable[[], OnlineLearner]


@pytest.fixture(params=SETTINGS, ids=lambda case: "-".join([case[0], *case[1].values()]))
def make(request: pytest.FixtureRequest, build: Build, stream: ClassStream) -> Make:
    """Makes learners that are the same: a little learnt, and copies some way behind."""
    name, settings = request.param

    def made() -> OnlineLearner:
        learner = build(name, shadow={"alpha": 0.1}, lr=0.02, **settings)
        for batch in list(stream.tasks[0])[:3]:
            learner.learn(*batch)
        learner.end_task()
        for batch in list(stream.tasks[1])[:3]:
            learner.learn(*batch)
        return learner

    return made


@pytest.fixture
def learner(make: Make) -> OnlineLearner:
    return make()


@pytest.fixture
def x(stream: ClassStream) -> Tensor:
    return torch.cat([test.x for test in stream.test_sets])


@pytest.fixture
def batch(stream: ClassStream) -> Batch:
    """The last one of the stream."""
    return list(stream.tasks[1])[-1]


def slow_copies(learner: OnlineLearner) -> list[PeerModel]:
    """The slow copy of each peer."""
    (copies,) = filter(None, (teacher.slow_copies for teacher in learner.teachers.values()))
    return copies


def by_hand(learner: OnlineLearner, who: AnswerBy, build: Build, x: Tensor) -> Tensor:
    """Logits of networks of their own, into which the right weights and statistics are loaded."""
    said = []
    for peer, slow in zip(learner.peers, slow_copies(learner), strict=True):
        net = build(f"{learner.method.name}+ema", seed=5).peers[0].model.eval()
        own, other = peer.model.state_dict(), slow.state_dict()
        if who == "shadow":
            own = other
        elif who == "average":
            own |= {name: (own[name] + other[name]) / 2 for name, _ in net.named_parameters()}
        net.load_state_dict(own)
        with torch.no_grad():
            said.append(net.logits(x.float() / 255))
    return torch.stack(said).mean(dim=0)


@pytest.mark.parametrize("who", ANSWERS)
def test_they_are_those_of_networks_built_by_hand(
    who: AnswerBy, learner: OnlineLearner, build: Build, x: Tensor
) -> None:
    expected = by_hand(learner, who, build, x)
    torch.testing.assert_close(learner.answering(who).logits(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(learner.predict_proba(x, answer=who), expected.softmax(dim=1))
    assert torch.equal(learner.predict(x, answer=who), expected.argmax(dim=1))


def test_they_are_three_different_ones(learner: OnlineLearner, x: Tensor) -> None:
    said = {who: learner.predict_proba(x, answer=who) for who in ANSWERS}
    for one, other in combinations(said.values(), 2):
        assert not torch.allclose(one, other, atol=1e-3)


def test_half_way_means_the_weights_and_not_the_statistics(
    build: Build, stream: ClassStream, x: Tensor
) -> None:
    learner = build("er+mkd", shadow={"alpha": 0.1})
    learn_some(learner, stream, 3)
    before = {who: learner.answering(who).logits(x) for who in ANSWERS}
    for name, buffer in slow_copies(learner)[0].named_buffers():
        if name.endswith("running_mean"):
            buffer.add_(1)
    after = {who: learner.answering(who).logits(x) for who in ANSWERS}
    changed = [who for who in ANSWERS if not torch.equal(before[who], after[who])]
    assert changed == ["shadow"]


def test_one_who_was_not_asked_for_is_as_the_collaboration_says(
    learner: OnlineLearner, x: Tensor
) -> None:
    who = learner.collaboration.answer
    assert torch.equal(learner.predict(x), learner.predict(x, answer=who))
    assert torch.equal(learner.predict_proba(x), learner.predict_proba(x, answer=who))
    assert torch.equal(learner.logits(x), learner.answering(who).logits(x))
    assert torch.equal(learner.features(x), learner.answering(who).features(x))
    assert torch.equal(learner.predict_ncm(x), learner.answering(who).nearest_mean(x))


@pytest.mark.parametrize(
    ("name", "who"),
    [("er", "peers"), ("er+ccldc", "peers"), ("er+ema", "shadow"), ("er+mkd", "average"),
     ("er+ema-chain", "average"), ("er+mkd-pair", "average"), ("er+ccldc-ema", "average"),
     ("er+gwm", "peers")],
)  # fmt: skip
def test_every_wrapper_says_who_answers(name: str, who: AnswerBy, build: Build) -> None:
    assert build(name).collaboration.answer == who


def test_a_single_peer_is_asked_for_itself_whoever_answers(
    build: Build, stream: ClassStream, x: Tensor
) -> None:
    learner = build("er+gwm", answer="shadow")
    learn_some(learner, stream, 3)
    one, two = (learner.logits(x, peer=peer) for peer in (0, 1))
    mean = torch.stack([one, two]).mean(dim=0)
    assert torch.equal(mean, learner.answering("peers").logits(x))
    assert not torch.equal(learner.logits(x), mean)
    with pytest.raises(UserError, match="peer must be from 0 to 1, got 2"):
        learner.logits(x, peer=2)


def test_asking_changes_nothing_that_is_learnt(make: Make, x: Tensor, batch: Batch) -> None:
    learner, unasked = make(), make()
    before, cost = tensors(learner), learner.cost
    modes = [module.training for net in learner.networks for module in net.modules()]
    for who in ANSWERS:
        learner.predict(x, answer=who)
        learner.predict_proba(x, answer=who)
        learner.answering(who).nearest_mean(x)
    assert same(tensors(learner), before)
    assert learner.cost == cost
    assert modes == [module.training for net in learner.networks for module in net.modules()]
    assert learner.learn(*batch) == unasked.learn(*batch)
    assert same(tensors(learner), tensors(unasked))


def test_class_means_are_of_whom_is_asked(learner: OnlineLearner) -> None:
    memory, found = learner.memory, {}
    for who in ANSWERS:
        predictor = learner.answering(who)
        expected = class_means(predictor.features(memory["x"]), memory["y"], 4)
        found[who] = predictor.class_means()
        torch.testing.assert_close(found[who].means, expected[found[who].classes])
    assert not torch.equal(found["peers"].means, found["shadow"].means)
    assert not torch.equal(found["peers"].means, found["average"].means)
    for who in ANSWERS:  # and are kept beside each other
        assert learner.answering(who).class_means() is found[who]


def test_after_a_step_all_of_them_have_changed(make: Make, x: Tensor, batch: Batch) -> None:
    learner, unasked = make(), make()
    before = {who: learner.predict_proba(x, answer=who) for who in ANSWERS}
    means = {who: learner.answering(who).class_means().means for who in ANSWERS}
    for one in (learner, unasked):
        one.learn(*batch)
    for who in ANSWERS:
        now = learner.predict_proba(x, answer=who)
        assert not torch.equal(now, before[who])
        assert torch.equal(now, unasked.predict_proba(x, answer=who))
        assert not torch.equal(learner.answering(who).class_means().means, means[who])


def test_a_copy_that_moves_alone_is_seen(build: Build, stream: ClassStream, x: Tensor) -> None:
    learner = build("er+ema", shadow={"alpha": 0.5})
    learn_some(learner, stream, 3)
    before = {who: learner.predict_proba(x, answer=who) for who in ANSWERS}
    learner.teachers["shadow"].after_step()
    changed = [
        who for who in ANSWERS if not torch.equal(before[who], learner.predict_proba(x, answer=who))
    ]
    assert changed == ["shadow", "average"]


def test_peers_that_a_broadcast_has_moved_are_seen(
    build: Build, stream: ClassStream, x: Tensor
) -> None:
    learner = build("er+gwm", broadcast_every=1, shadow={"alpha": 0.5})
    for batch in list(stream.tasks[0])[:4]:
        learner.learn(*batch)
        said = [learner.answering(who).logits(x) for who in ANSWERS]
        assert torch.equal(said[0], said[1])  # all are the slow copy now
        assert torch.equal(said[0], said[2])


def test_before_the_first_step_all_say_the_same(build: Build, x: Tensor) -> None:
    learner = build("er+mkd-pair")
    said = [learner.predict_proba(x, answer=who) for who in ANSWERS]
    assert torch.equal(said[0], said[1])
    assert torch.equal(said[0], said[2])


@pytest.mark.parametrize("who", ANSWERS)
def test_images_of_another_size_are_refused_by_everyone(
    who: AnswerBy, build: Build, stream: ClassStream
) -> None:
    learner = build("er+mkd")
    learner.learn(*next(iter(stream.tasks[0])))
    with pytest.raises(UserError, match="3, 8, 8"):
        learner.predict(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), answer=who)


@pytest.mark.parametrize(
    ("name", "who", "says"),
    [
        ("er", "shadow", "nobody answers as 'shadow'; this learner has no slow copies; take peers"),
        ("er", "average", "as 'average'; this learner has no slow copies; take peers"),
        ("er+ccldc", "shadow", "as 'shadow'; this learner has no slow copies; take peers"),
        ("er", "nobody", "answer: nobody answers as 'nobody'; take peers"),
        ("er+mkd", "nobody", "as 'nobody'; take peers or shadow or average"),
        ("er+mkd", "", "as ''; take peers or shadow or average"),
    ],
)
def test_one_who_is_not_there_is_refused_in_a_line(
    name: str, who: Any, says: str, build: Build, x: Tensor
) -> None:
    learner = build(name)
    for ask in (learner.predict, learner.predict_proba):
        with pytest.raises(UserError, match=says) as refused:
            ask(x, answer=who)
        assert "\n" not in str(refused.value)
    assert torch.equal(learner.predict(x, answer="peers"), learner.answering("peers").predict(x))


def right(predicted: Tensor, tests: list[ImageSet]) -> list[float]:
    parts = predicted.split([len(test) for test in tests])
    return [float((p == t.y).double().mean()) for p, t in zip(parts, tests, strict=True)]


class TestScores:
    def learnt(self, learner: OnlineLearner, stream: ClassStream) -> Scores:
        scores = Scores(learner, ncm=True)
        for number, task in enumerate(stream):
            for batch in task:
                learner.learn(*batch)
            learner.end_task()
            scores.add(learner, list(stream.test_sets[: number + 1]))
        return scores

    @pytest.mark.parametrize(
        ("name", "settings"),
        [("er+ema", {}), ("er+mkd", {}), ("pcr+mkd", {"answer": "shadow"}), ("er+mkd-pair", {}),
         ("er+gwm", {}), ("er+gwm", {"answer": "average"})],
    )  # fmt: skip
    def test_are_of_all_who_can_answer_and_one_of_them_is_the_ensemble(
        self, name: str, settings: Mapping[str, Any], build: Build, stream: ClassStream, x: Tensor
    ) -> None:
        learner = build(name, shadow={"alpha": 0.1}, lr=0.02, **settings)
        scores, tests = self.learnt(learner, stream), list(stream.test_sets)
        lists = scores.to_lists()
        assert [*lists["answers"]] == [*ANSWERS]
        for who, rows in lists["answers"].items():
            assert rows[-1] == right(learner.predict(x, answer=who), tests)
        assert lists["ensemble"] == lists["answers"][learner.collaboration.answer]
        assert len({str(rows) for rows in lists["answers"].values()}) > 1
        assert lists["ncm"][-1] == right(learner.predict_ncm(x), tests)
        peers = range(len(learner.peers)) if len(learner.peers) > 1 else ()
        logits = [learner.logits(x, peer=peer) for peer in peers]
        assert [rows[-1] for rows in lists["peers"]] == [
            right(own.argmax(dim=1), tests) for own in logits
        ]
        summary = scores.summary()
        assert summary["metrics"] == summary["answers"][learner.collaboration.answer]

    def test_are_the_same_when_they_are_restored(self, build: Build, stream: ClassStream) -> None:
        learner = build("er+mkd-pair")
        scores, restored = self.learnt(learner, stream), Scores(learner, ncm=True)
        restored.restore(Matrices.model_validate(scores.to_lists()))
        assert restored.to_lists() == scores.to_lists()
        assert restored.summary() == scores.summary()

    @pytest.mark.parametrize("name", ["er", "er+ccldc"])
    def test_without_slow_copies_are_as_they_always_were(
        self, name: str, build: Build, stream: ClassStream
    ) -> None:
        scores = self.learnt(build(name), stream)
        assert [*scores.to_lists()] == ["ensemble", "peers", "ncm"]
        assert scores.summary()["answers"] == {}
