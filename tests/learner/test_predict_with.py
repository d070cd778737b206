"""What predicts: the peers, their EMA copies, the average of both, or nearest class means."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import Build, learn_some, same, tensors
from torch import Tensor
from typing_extensions import override

from peerlearn import METHODS, ClassStream, Distillation, OnlineLearner, UserError, small_net
from peerlearn.checks import check_method
from peerlearn.data.images import ImageSet
from peerlearn.distill.distillation import Networks
from peerlearn.distill.wrappers import EMA
from peerlearn.experiment.evaluate import Scores
from peerlearn.losses import class_means
from peerlearn.methods import ER
from peerlearn.methods.class_means import Distance
from peerlearn.methods.interface import Answers
from peerlearn.peer import PeerModel
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


NET = partial(small_net, 4, width=4)
NETWORKS: tuple[Networks, ...] = ("peers", "ema", "average")
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


def ema_copies(learner: OnlineLearner) -> list[PeerModel]:
    """The slow copy of each peer."""
    (copies,) = filter(None, (teacher.ema_copies for teacher in learner.teachers.values()))
    return copies


def by_hand(learner: OnlineLearner, who: Networks, build: Build, x: Tensor) -> Tensor:
    """Logits of networks of their own, into which the right weights and statistics are loaded."""
    said = []
    for peer, slow in zip(learner.peers, ema_copies(learner), strict=True):
        net = build(f"{learner.method.name}+ema", seed=5).peers[0].model.eval()
        own, other = peer.model.state_dict(), slow.state_dict()
        if who == "ema":
            own = other
        elif who == "average":
            own |= {name: (own[name] + other[name]) / 2 for name, _ in net.named_parameters()}
        net.load_state_dict(own)
        with torch.no_grad():
            said.append(net.logits(x.float() / 255))
    return torch.stack(said).mean(dim=0)


@pytest.mark.parametrize("who", NETWORKS)
def test_they_are_those_of_networks_built_by_hand(
    who: Networks, learner: OnlineLearner, build: Build, x: Tensor
) -> None:
    expected = by_hand(learner, who, build, x)
    torch.testing.assert_close(learner.snapshot(who).logits(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(learner.predict_proba(x, predict_with=who), expected.softmax(dim=1))
    assert torch.equal(learner.predict(x, predict_with=who), expected.argmax(dim=1))


def test_they_are_three_different_ones(learner: OnlineLearner, x: Tensor) -> None:
    said = {who: learner.predict_proba(x, predict_with=who) for who in NETWORKS}
    for one, other in combinations(said.values(), 2):
        assert not torch.allclose(one, other, atol=1e-3)


def test_half_way_means_the_weights_and_not_the_statistics(
    build: Build, stream: ClassStream, x: Tensor
) -> None:
    learner = build("er+mkd", shadow={"alpha": 0.1})
    learn_some(learner, stream, 3)
    before = {who: learner.snapshot(who).logits(x) for who in NETWORKS}
    for name, buffer in ema_copies(learner)[0].named_buffers():
        if name.endswith("running_mean"):
            buffer.add_(1)
    after = {who: learner.snapshot(who).logits(x) for who in NETWORKS}
    changed = [who for who in NETWORKS if not torch.equal(before[who], after[who])]
    assert changed == ["ema"]


def test_one_who_was_not_asked_for_is_as_the_distillation_says(
    learner: OnlineLearner, x: Tensor
) -> None:
    who = learner.distillation.predict_with
    assert torch.equal(learner.predict(x), learner.predict(x, predict_with=who))
    assert torch.equal(learner.predict_proba(x), learner.predict_proba(x, predict_with=who))
    assert torch.equal(learner.logits(x), learner.snapshot(who).logits(x))
    assert torch.equal(learner.features(x), learner.snapshot(who).features(x))
    assert torch.equal(learner.predict_ncm(x), learner.snapshot(who, memory=True).nearest_mean(x))


@pytest.mark.parametrize(
    ("name", "who"),
    [("er", "peers"), ("er+ccldc", "peers"), ("er+ema", "ema"), ("er+mkd", "average"),
     ("er+ema-chain", "average"), ("er+mkd-pair", "average"), ("er+ccldc-ema", "average"),
     ("er+gwm", "peers")],
)  # fmt: skip
def test_every_wrapper_has_networks_that_predict(name: str, who: Networks, build: Build) -> None:
    assert build(name).distillation.predict_with == who


def test_a_single_peer_is_asked_for_itself_whoever_answers(
    build: Build, stream: ClassStream, x: Tensor
) -> None:
    learner = build("er+gwm", predict_with="ema")
    learn_some(learner, stream, 3)
    one, two = (learner.logits(x, peer=peer) for peer in (0, 1))
    mean = torch.stack([one, two]).mean(dim=0)
    assert torch.equal(mean, learner.snapshot("peers").logits(x))
    assert not torch.equal(learner.logits(x), mean)
    with pytest.raises(UserError, match="peer must be from 0 to 1, got 2"):
        learner.logits(x, peer=2)


def test_asking_changes_nothing_that_is_learnt(make: Make, x: Tensor, batch: Batch) -> None:
    learner, unasked = make(), make()
    before, cost = tensors(learner), learner.cost
    modes = [module.training for net in learner.networks for module in net.modules()]
    for who in NETWORKS:
        learner.predict(x, predict_with=who)
        learner.predict_proba(x, predict_with=who)
        learner.snapshot(who, memory=True).nearest_mean(x)
    assert same(tensors(learner), before)
    assert learner.cost == cost
    assert modes == [module.training for net in learner.networks for module in net.modules()]
    assert learner.learn(*batch) == unasked.learn(*batch)
    assert same(tensors(learner), tensors(unasked))


def test_class_means_are_of_whom_is_asked(learner: OnlineLearner) -> None:
    memory, found = learner.memory, {}
    for who in NETWORKS:
        snapshot = learner.snapshot(who, memory=True)
        expected = class_means(snapshot.features(memory["x"]), memory["y"], 4)
        found[who] = snapshot.class_means()
        torch.testing.assert_close(found[who].means, expected[found[who].classes])
    assert not torch.equal(found["peers"].means, found["ema"].means)
    assert not torch.equal(found["peers"].means, found["average"].means)
    for who in NETWORKS:  # and are kept beside each other
        assert learner.snapshot(who, memory=True).class_means() is found[who]


def test_after_a_step_all_of_them_have_changed(make: Make, x: Tensor, batch: Batch) -> None:
    learner, unasked = make(), make()
    before = {who: learner.predict_proba(x, predict_with=who) for who in NETWORKS}
    means = {who: learner.snapshot(who, memory=True).class_means().means for who in NETWORKS}
    for one in (learner, unasked):
        one.learn(*batch)
    for who in NETWORKS:
        now = learner.predict_proba(x, predict_with=who)
        assert not torch.equal(now, before[who])
        assert torch.equal(now, unasked.predict_proba(x, predict_with=who))
        assert not torch.equal(learner.snapshot(who, memory=True).class_means().means, means[who])


def test_a_copy_that_moves_alone_is_seen(build: Build, stream: ClassStream, x: Tensor) -> None:
    learner = build("er+ema", shadow={"alpha": 0.5})
    learn_some(learner, stream, 3)
    before = {who: learner.predict_proba(x, predict_with=who) for who in NETWORKS}
    learner.teachers["shadow"].after_step()
    after = {who: learner.predict_proba(x, predict_with=who) for who in NETWORKS}
    changed = [who for who in NETWORKS if not torch.equal(before[who], after[who])]
    assert changed == ["ema", "average"]


def test_peers_that_a_broadcast_has_moved_are_seen(
    build: Build, stream: ClassStream, x: Tensor
) -> None:
    learner = build("er+gwm", broadcast_every=1, shadow={"alpha": 0.5})
    for batch in list(stream.tasks[0])[:4]:
        learner.learn(*batch)
        said = [learner.snapshot(who).logits(x) for who in NETWORKS]
        assert torch.equal(said[0], said[1])  # all are the slow copy now
        assert torch.equal(said[0], said[2])


def test_before_the_first_step_all_say_the_same(build: Build, x: Tensor) -> None:
    learner = build("er+mkd-pair")
    said = [learner.predict_proba(x, predict_with=who) for who in NETWORKS]
    assert torch.equal(said[0], said[1])
    assert torch.equal(said[0], said[2])


@pytest.mark.parametrize("who", NETWORKS)
def test_images_of_another_size_are_refused_by_everyone(
    who: Networks, build: Build, stream: ClassStream
) -> None:
    learner = build("er+mkd")
    learner.learn(*next(iter(stream.tasks[0])))
    with pytest.raises(UserError, match="3, 8, 8"):
        learner.predict(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), predict_with=who)


@pytest.mark.parametrize(
    ("name", "who", "says"),
    [
        ("er", "ema", "unknown source 'ema'; this learner has no EMA copies; choose peers or ncm"),
        ("er", "average", "'average'; this learner has no EMA copies; choose peers or ncm"),
        ("er+ccldc", "ema", "'ema'; this learner has no EMA copies; choose peers or ncm"),
        ("er", "nobody", "predict_with: unknown source 'nobody'; choose peers or ncm"),
        ("er+mkd", "nobody", "source 'nobody'; choose peers, ema, average or ncm"),
        ("er+mkd", "", "unknown source ''; choose peers, ema, average or ncm"),
    ],
)
def test_one_who_is_not_there_is_refused_in_a_line(
    name: str, who: Any, says: str, build: Build, x: Tensor
) -> None:
    learner = build(name)
    for ask in (learner.predict, learner.predict_proba):
        with pytest.raises(UserError, match=says) as refused:
            ask(x, predict_with=who)
        assert "\n" not in str(refused.value)
    assert torch.equal(learner.predict(x, "peers"), learner.snapshot("peers").predict(x))


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
        [("er+ema", {}), ("er+mkd", {}), ("pcr+mkd", {"predict_with": "ema"}), ("er+mkd-pair", {}),
         ("er+gwm", {}), ("er+gwm", {"predict_with": "average"})],
    )  # fmt: skip
    def test_are_of_all_who_can_answer_and_one_of_them_is_the_ensemble(
        self, name: str, settings: Mapping[str, Any], build: Build, stream: ClassStream, x: Tensor
    ) -> None:
        learner = build(name, shadow={"alpha": 0.1}, lr=0.02, **settings)
        scores, tests = self.learnt(learner, stream), list(stream.test_sets)
        lists = scores.to_lists()
        assert [*lists["answers"]] == ["peers", "shadow", "average"]  # as files have called them
        for who in NETWORKS:
            assert scores.answers[who].to_lists()[-1] == right(learner.predict(x, who), tests)
        assert lists["ensemble"] == scores.answers[learner.predict_with].to_lists()
        assert len({str(rows) for rows in lists["answers"].values()}) > 1
        assert lists["ncm"][-1] == right(learner.predict_ncm(x), tests)
        peers = range(len(learner.peers)) if len(learner.peers) > 1 else ()
        logits = [learner.logits(x, peer=peer) for peer in peers]
        assert [rows[-1] for rows in lists["peers"]] == [
            right(own.argmax(dim=1), tests) for own in logits
        ]
        summary = scores.summary()
        stored = {"ema": "shadow"}.get(learner.predict_with, learner.predict_with)
        assert summary["metrics"] == summary["answers"][stored]

    def test_are_the_same_when_they_are_restored(self, build: Build, stream: ClassStream) -> None:
        learner = build("er+mkd-pair")
        scores, restored = self.learnt(learner, stream), Scores(learner, ncm=True)
        restored.restore(Matrices.model_validate(scores.to_lists()))
        assert restored.to_lists() == scores.to_lists()
        assert restored.summary() == scores.summary()

    @pytest.mark.parametrize("name", ["er", "er+ccldc"])
    def test_without_ema_copies_are_as_they_always_were(
        self, name: str, build: Build, stream: ClassStream
    ) -> None:
        scores = self.learnt(build(name), stream)
        assert [*scores.to_lists()] == ["ensemble", "peers", "ncm"]
        assert scores.summary()["answers"] == {}


class TestNearestMeans:
    @pytest.mark.parametrize("distance", ["euclidean", "cosine"])
    @pytest.mark.parametrize("name", ["er", "er+ccldc", "er+ema", "er+ema-chain"])
    def test_are_those_computed_by_hand(
        self, name: str, distance: Distance, build: Build, stream: ClassStream, x: Tensor
    ) -> None:
        learner = build(name, ncm_distance=distance)
        learn_some(learner, stream, 6)
        features, kept = learner.features(x).double(), learner.features(learner.memory["x"])
        kept, labels = kept.double(), learner.memory["y"]
        if distance == "cosine":
            features = features / features.norm(dim=1, keepdim=True)
            kept = kept / kept.norm(dim=1, keepdim=True)
        squared = torch.full((len(x), 4), torch.inf, dtype=torch.float64)
        for label in labels.unique():
            mean = kept[labels == label].mean(dim=0)
            mean = mean / mean.norm() if distance == "cosine" else mean
            squared[:, label] = (features - mean).square().sum(dim=1)
        assert torch.equal(learner.predict(x, "ncm"), squared.argmin(dim=1))
        assert torch.equal(learner.predict(x, "ncm"), learner.predict_ncm(x))
        found = learner.predict_proba(x, "ncm")
        torch.testing.assert_close(found.double(), (-squared).softmax(dim=1), rtol=1e-3, atol=1e-5)

    def test_the_distances_are_two(self, build: Build, stream: ClassStream, x: Tensor) -> None:
        said = []
        for distance in ("euclidean", "cosine"):
            learner = build("er", ncm_distance=distance)
            learn_some(learner, stream, 6)
            said.append(learner.predict_proba(x, "ncm"))
        assert not torch.allclose(*said, atol=1e-3)

    def test_as_a_learners_own_choice_change_nothing_that_is_learnt(
        self, build: Build, stream: ClassStream, x: Tensor, tmp_path: Path
    ) -> None:
        chosen, plain = build("er+ema", predict_with="ncm"), build("er+ema")
        for learner in (chosen, plain):
            learn_some(learner, stream, 4)
        assert same(tensors(chosen), tensors(plain))
        assert torch.equal(chosen.predict(x), plain.predict(x, "ncm"))
        assert torch.equal(chosen.logits(x), plain.snapshot("ncm").logits(x))
        assert torch.equal(chosen.predict(x, "ema"), plain.predict(x))
        chosen.save(tmp_path)
        assert torch.equal(OnlineLearner.restore(tmp_path, net=NET).predict(x), chosen.predict(x))

    def test_leave_it_to_the_classifier_while_the_memory_is_empty(
        self, build: Build, x: Tensor
    ) -> None:
        learner = build("er", predict_with="ncm")
        assert torch.equal(learner.predict(x), learner.predict(x, "peers"))

    def test_may_be_the_preset_of_a_method(self, stream: ClassStream, x: Tensor) -> None:
        class Nearest(ER):
            name = "er_nearest"
            preset: ClassVar[Mapping[str, Any]] = {
                "predict_with": "ncm",
                "ncm_distance": "cosine",
            }

        learner = OnlineLearner(Nearest(stream.info), NET, memory=40)
        alike = OnlineLearner(ER(stream.info), NET, memory=40, ncm_distance="cosine")
        for one in (learner, alike):
            learn_some(one, stream, 4)
        assert torch.equal(learner.predict(x), alike.predict(x, "ncm"))
        other = OnlineLearner(Nearest(stream.info), NET, memory=40, predict_with="peers")
        assert other.predict_with == "peers"

    @pytest.mark.parametrize("given", [{"predict_with": "mean"}, {"ncm_distance": "manhattan"}])
    def test_a_wrong_word_is_refused(self, given: dict[str, Any], build: Build) -> None:
        ((name, value),) = given.items()
        with pytest.raises(UserError, match=f"{name}: unknown '{value}'; choose"):
            build("er", **given)


def test_the_old_name_still_works(build: Build, stream: ClassStream, x: Tensor) -> None:
    with pytest.warns(DeprecationWarning, match="answer='shadow' is now predict_with='ema'"):
        old = build("er+ema-chain", answer="shadow")
    new = build("er+ema-chain", predict_with="ema")
    for learner in (old, new):
        learn_some(learner, stream, 3)
    assert torch.equal(old.logits(x), new.logits(x))
    assert torch.equal(old.predict(x, answer="shadow"), new.predict(x, "ema"))
    assert Distillation(answer="shadow", teachers={"shadow": {}}).predict_with == "ema"  # type: ignore[call-arg]


def test_the_old_value_is_understood_under_the_present_name(build: Build) -> None:
    with pytest.warns(DeprecationWarning, match="predict_with='shadow' is now predict_with='ema'"):
        learner = build("er+ema", predict_with="shadow")
    assert learner.predict_with == "ema"


def test_the_old_name_beside_the_present_one_is_refused(build: Build) -> None:
    with pytest.raises(UserError, match="answer and predict_with are the same setting; give only"):
        build("er+ema", predict_with="peers", answer="shadow")


def test_class_means_without_a_memory_are_refused_at_once(build: Build) -> None:
    with pytest.raises(UserError, match="class means are of images in memory; finetune keeps none"):
        build("finetune", predict_with="ncm")


def test_a_wrapper_that_says_it_in_the_old_way_still_works() -> None:
    with pytest.warns(DeprecationWarning, match='write predict_with = "ema"'):

        class Old(EMA):
            name = "old"
            answer: str = "shadow"

    assert Old.predict_with == "ema"
    assert Old().distillation().predict_with == "ema"


class TestMemoryFeatures:
    class Neighbour(ER):
        """Predicts the class of the nearest image in memory."""

        name = "neighbour"

        @override
        def predict(self, answers: Answers, x: Tensor) -> Tensor:
            features, labels = answers.memory_features()
            return labels[torch.cdist(answers.features(x), features).argmin(dim=1)]

    def test_are_those_of_the_images_in_memory(self, stream: ClassStream, x: Tensor) -> None:
        learner = OnlineLearner(self.Neighbour(stream.info), NET, memory=40)
        learn_some(learner, stream, 4)
        kept = learner.features(learner.memory["x"])
        nearest = torch.cdist(learner.features(x), kept).argmin(dim=1)
        assert torch.equal(learner.predict(x), learner.memory["y"][nearest])

    def test_are_the_same_in_the_scores_of_a_run(self, stream: ClassStream) -> None:
        learner = OnlineLearner(self.Neighbour(stream.info), NET, memory=40)
        learn_some(learner, stream, 4)
        test = stream.test_sets[0]
        said = Scores(learner, ncm=True).add(learner, [test])
        assert torch.equal(said, learner.predict(test.x))

    def test_pass_the_checks_of_a_method(self) -> None:
        with METHODS.unchanged():
            assert check_method(self.Neighbour, replay_batch=8)
