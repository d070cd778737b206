"""Snapshots: predictions, while the learner learns."""

import copy
import threading
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, same, tensors
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
from peerlearn.learner import snapshot
from peerlearn.learner.parallel import PeerPool
from peerlearn.losses import class_means
from peerlearn.methods import ER
from peerlearn.methods import class_means as nearest


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


def test_weights_that_were_changed_by_hand_are_seen(build: Build, stream: ClassStream) -> None:
    learner = build("er")
    learner.learn(*next(iter(stream.tasks[0])))
    before = learner.logits(stream.test_sets[0].x)
    with torch.no_grad():
        for weight in learner.peers[0].model.parameters():
            weight.mul_(0.5)
    assert not torch.equal(learner.logits(stream.test_sets[0].x), before)


def test_tensors_that_were_replaced_by_hand_are_seen(build: Build, stream: ClassStream) -> None:
    learner, other = build("er"), build("er", seed=1)
    learner.learn(*next(iter(stream.tasks[0])))
    x = stream.test_sets[0].x
    learner.logits(x)
    state = {name: t.clone() for name, t in other.peers[0].model.state_dict().items()}
    learner.peers[0].model.load_state_dict(state, assign=True)
    assert torch.equal(learner.logits(x), other.logits(x))
    layer = nn.Linear(8, 4)
    learner.peers[0].model.net.head = layer
    assert torch.equal(learner.logits(x), layer(learner.features(x)))


@pytest.mark.parametrize("name", ["er", "er+ccldc", "pcr+ccldc"])
@pytest.mark.parametrize("net", [None, "Moody"])
def test_one_pass_gives_what_each_question_gives(
    name: str, net: str | None, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "EVAL_BATCH", 7)  # the last part is a small one
    learner = build(name, **({"net": Moody} if net else {}))
    for batch in list(stream.tasks[0])[:3]:
        learner.learn(*batch)
    x = stream.test_sets[0].x[:17]
    logits, features = learner.snapshot().outputs(x)
    assert features is not None
    assert torch.equal(features, learner.features(x))
    for peer, own in enumerate(logits):
        assert torch.equal(own, learner.logits(x, peer=peer))
    assert len(logits) == len(learner.peers)
    assert learner.snapshot().outputs(x, features=False).features is None


def test_a_pool_changes_no_output(build: Build, stream: ClassStream) -> None:
    learner = build("er+ccldc", peers=3)
    for batch in list(stream.tasks[0])[:3]:
        learner.learn(*batch)
    x = stream.test_sets[0].x
    models = [peer.model for peer in learner.peers]
    side_by_side = copy.copy(learner.snapshot(memory=True))
    side_by_side._pool = PeerPool(2)
    threads = set()
    head = type(models[0].net).classify

    def classify(net: Any, features: Tensor) -> Tensor:
        threads.add(threading.get_ident())
        return head(net, features)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(models[0].net), "classify", classify)
        ours, theirs = side_by_side.outputs(x), learner.snapshot().outputs(x)
    assert threads - {threading.get_ident()}
    assert all(map(torch.equal, ours.logits, theirs.logits))
    assert torch.equal(side_by_side.logits(x), learner.logits(x))
    assert torch.equal(side_by_side.features(x), learner.features(x))
    assert torch.equal(side_by_side.nearest_mean(x), learner.predict_ncm(x))


def plain_nearest_mean(learner: OnlineLearner, x: Tensor) -> Tensor:
    """All computed at once and anew."""
    labels = learner.memory["y"]
    means = class_means(
        learner.features(learner.memory["x"]), labels, learner.method.stream.num_classes
    )
    held = labels.unique()
    nearest: Tensor = held[torch.cdist(learner.features(x), means[held]).argmin(dim=1)]
    return nearest


class Counting(WithHead):
    """Counts the images that it is shown, all objects together."""

    shown = 0

    def __init__(self) -> None:
        layers = nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1)
        super().__init__(nn.Sequential(*layers, nn.Flatten()), 6, 4)

    def features(self, x: Tensor) -> Tensor:
        Counting.shown += len(x)
        return super().features(x)


def shown_by(action: Callable[[], object]) -> int:
    """How many images networks were shown."""
    before = Counting.shown
    action()
    return Counting.shown - before


Change = Callable[[OnlineLearner, ClassStream, Path], object]


def _half(learner: OnlineLearner, *_: object) -> None:
    with torch.no_grad():
        next(learner.peers[1].model.parameters()).mul_(-0.5)


def _statistics(learner: OnlineLearner, *_: object) -> None:
    encoder: Any = learner.peers[0].model.net.encoder
    encoder[1].running_mean.add_(torch.arange(6.0))


def _state(learner: OnlineLearner, assign: bool) -> None:
    model = learner.peers[0].model
    state = {name: t.flip(0) if t.ndim else t for name, t in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)


def _end_task(learner: OnlineLearner, *_: object) -> None:
    class Reborn(type(learner.method)):  # type: ignore[misc]
        name = "reborn"

        def end_task(self, peer: Any) -> None:
            next(peer.model.parameters()).data.mul_(-2)  # torch does not count this

    learner.method.__class__ = Reborn
    learner.end_task()


def _fed(learner: OnlineLearner, stream: ClassStream, _: Path) -> None:
    x, y = next(iter(stream.tasks[1]))
    learner.memory.add(torch.Generator().manual_seed(0), x=x, y=y)


def _loaded_memory(learner: OnlineLearner, *_: object) -> None:
    for _ in range(3):  # columns are new each time, and written as often
        learner.snapshot(memory=True).class_means()
        state = learner.memory.state_dict()
        state["columns"] = {"x": state["columns"]["x"].clone(), "y": state["columns"]["y"].flip(0)}
        learner.memory.load_state_dict(state, learner.device)


def _darkened(learner: OnlineLearner, *_: object) -> None:
    learner.memory["x"][learner.memory["y"] == 0] = 7


def _loaded(learner: OnlineLearner, stream: ClassStream, folder: Path) -> None:
    learner.save(folder)
    for batch in list(stream.tasks[0])[4:6]:
        learner.learn(*batch)
    learner.predict_ncm(stream.test_sets[0].x)
    learner.load(folder)


CHANGES: dict[str, Change] = {
    "a weight": _half,
    "a running mean": _statistics,
    "load_state_dict": lambda learner, *_: _state(learner, assign=False),
    "load_state_dict with new tensors": lambda learner, *_: _state(learner, assign=True),
    "the end of a task": _end_task,
    "a step": lambda learner, stream, _: learner.learn(*list(stream.tasks[0])[3]),
    "a checkpoint": _loaded,
    "rows added by hand": _fed,
    "the memory's state": _loaded_memory,
    "rows written by hand": _darkened,
}


class TestClassMeans:
    @pytest.fixture
    def learner(self, build: Build, stream: ClassStream) -> OnlineLearner:
        learner = build("er+ccldc", net=Counting, memory=25)
        for batch in list(stream.tasks[0])[:3]:
            learner.learn(*batch)
        return learner

    def test_are_kept_while_nothing_changes(
        self, learner: OnlineLearner, stream: ClassStream
    ) -> None:
        x = stream.test_sets[0].x[:9]
        first = learner.predict_ncm(x)
        assert torch.equal(first, plain_nearest_mean(learner, x))
        assert shown_by(lambda: learner.predict_ncm(x)) == 2 * len(x)
        assert torch.equal(learner.predict_ncm(x), first)
        learner.logits(x)
        learner.memory.draw(5, torch.Generator())
        learner.state_dict()
        assert shown_by(lambda: learner.predict_ncm(x)) == 2 * len(x)
        means = learner.snapshot(memory=True).class_means().means
        assert means.shape == (2, 6)  # not as long as the memory

    @pytest.mark.parametrize("change", CHANGES)
    def test_are_computed_anew_after_a_change_of(
        self, change: str, learner: OnlineLearner, stream: ClassStream, tmp_path: Path
    ) -> None:
        x = torch.cat([test.x for test in stream.test_sets])
        before = learner.snapshot(memory=True).class_means()
        CHANGES[change](learner, stream, tmp_path)
        size = len(learner.memory)
        assert shown_by(lambda: learner.predict_ncm(x)) == 2 * (size + len(x))
        assert torch.equal(learner.predict_ncm(x), plain_nearest_mean(learner, x))
        after = learner.snapshot(memory=True).class_means()
        same = after.classes.equal(before.classes) and after.means.equal(before.means)
        assert same == (change == "a checkpoint")

    def test_of_a_memory_in_one_part_are_a_single_product(
        self, learner: OnlineLearner, stream: ClassStream
    ) -> None:
        for batch in stream.tasks[1]:
            learner.learn(*batch)
        memory = learner.memory
        expected = class_means(learner.features(memory["x"]), memory["y"], 4)
        found = learner.snapshot(memory=True).class_means()
        assert torch.equal(found.classes, memory["y"].unique())
        assert torch.equal(found.means, expected[found.classes])

    def test_of_a_large_memory_take_no_more_room_than_a_part(
        self, learner: OnlineLearner, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for batch in stream.tasks[1]:
            learner.learn(*batch)
        whole = learner.snapshot(memory=True).class_means()
        rows = []

        def means(features: Tensor, *rest: Any) -> Tensor:
            rows.append(len(features))
            return class_means(features, *rest)

        monkeypatch.setattr(nearest, "class_means", means)
        monkeypatch.setattr(nearest, "PART", 4)
        learner.refresh()
        parts = learner.snapshot(memory=True).class_means()
        assert rows == [4] * 6 + [1]
        assert torch.equal(parts.classes, whole.classes)
        torch.testing.assert_close(parts.means, whole.means)

    def test_are_those_of_whole_steps_from_another_thread(
        self, build: Build, stream: ClassStream
    ) -> None:
        alone, watched = build("er"), build("er")
        x, batches = stream.test_sets[0].x[:8], list(stream.tasks[0])[:6]
        states = []
        for batch in batches:
            alone.learn(*batch)
            states.append(alone.snapshot(memory=True).class_means().means)
        answers: list[Tensor] = []
        watched.learn(*batches[0])
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                answers.append(watched.snapshot(memory=True).class_means().means)
                watched.predict_ncm(x)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number, batch in enumerate(batches[1:]):
            while len(answers) < number:
                time.sleep(0.001)
            watched.learn(*batch)
        done.set()
        for thread in threads:
            thread.join()
        assert answers
        assert all(any(torch.equal(answer, state) for state in states) for answer in answers)

    def test_of_a_learner_loaded_without_gradients(
        self, build: Build, stream: ClassStream, tmp_path: Path
    ) -> None:
        learner, server = build("er"), build("er")
        for batch in list(stream.tasks[0])[:3]:
            learner.learn(*batch)
        learner.save(tmp_path)
        x = stream.test_sets[0].x
        with torch.inference_mode():
            server.load(tmp_path)
            assert torch.equal(server.predict_ncm(x), learner.predict_ncm(x))
            server.memory["x"].fill_(7)  # torch does not count changes of such tensors
        learner.memory["x"].fill_(7)
        assert torch.equal(server.predict_ncm(x), learner.predict_ncm(x))


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
        scores, test = Scores(learner, ncm=False), stream.test_sets[0]
        scores.add(learner, [test])
        assert scores.ensemble.average_accuracy == accuracy(learner.predict, test)

    def test_a_method_without_logits_has_no_probabilities(self, stream: ClassStream) -> None:
        learner = OnlineLearner(NearestMean(stream.info), self.net, memory=20)
        with pytest.raises(UserError, match="predict_proba: nearest_mean has no probabilities"):
            learner.predict_proba(stream.test_sets[0].x)

    def test_a_method_without_a_classifier_cannot_be_taught(self) -> None:
        from peerlearn.distill import distillation_of

        method = NearestMean(StreamInfo(num_classes=4))
        with pytest.raises(UserError, match="nearest_mean has no classifier"):
            OnlineLearner(method, self.net, distillation_of("ccldc", "er"), memory=20)


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


def test_class_means_are_those_of_the_weights_after_any_step_of_a_peer(
    build: Build, stream: ClassStream
) -> None:
    learner = build("er", memory=20)
    learn_some(learner, stream, 3)
    x = stream.test_sets[0].x
    before = learner.snapshot(memory=True).class_means().means
    (peer,) = learner.peers
    peer.backward(peer.logits(torch.rand(4, 3, *x.shape[2:])).square().mean())
    peer.step()  # by hand, with the fused optimizer that torch does not count
    after = learner.snapshot(memory=True).class_means().means
    assert not after.equal(before)
    learner.refresh()
    assert learner.snapshot(memory=True).class_means().means.equal(after)


COPIED = ["snapshot.copy_network", "online.Snapshot", "online.Fingerprint"]
RENEWED = ["snapshot.copy.copy", "online.Fingerprint.renew", "online.Snapshot.renew"]


@pytest.mark.parametrize("where", [*COPIED, *RENEWED])
def test_an_interrupt_while_networks_are_copied_leaves_no_answer_of_before(
    where: str, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, twin = build("er"), build("er")
    x = stream.test_sets[0].x[:8]
    for batch in list(stream.tasks[0])[:3]:
        if where in COPIED and learner.image_shape:
            learner.logits(x)  # a snapshot that was used is not renewed
        learner.learn(*batch)
        twin.learn(*batch)
        if where in COPIED:
            learner.refresh()
        with monkeypatch.context() as patch:
            patch.setattr(f"peerlearn.learner.{where}", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                learner.logits(x)
        assert torch.equal(learner.logits(x), twin.logits(x))
        learner.learn(*batch)
        twin.learn(*batch)


BY_HAND = ["a hook", "an attribute", "data", "a part", "a shape", "a narrower shape", "a class"]


@pytest.mark.parametrize("change", BY_HAND)
def test_a_change_by_hand_between_steps_is_in_the_next_snapshot(
    change: str, build: Build, stream: ClassStream
) -> None:
    learner = build("er")
    learn_some(learner, stream, 3)  # the last snapshot was not used, so it may be renewed
    net = learner.peers[0].model.net
    with torch.no_grad():
        if change == "a hook":
            net.head.register_forward_hook(lambda _, __, logits: logits.flip(1))
        elif change == "an attribute":
            next(m for m in net.modules() if isinstance(m, nn.BatchNorm2d)).eps = 0.5
        elif change == "data":
            net.head.weight.data = net.head.weight.data.flip(0)
        elif change == "a part":
            net.head = nn.Linear(net.feature_dim, 4)
        elif change == "a narrower shape":  # in the same place of memory
            net.head.weight.data = net.head.weight.data[:1]
            net.head.bias.data = net.head.bias.data[:1]
        elif change == "a class":
            net.__class__ = type("Other", (type(net),), {"classify": lambda _, z: z[:, :4]})
            assert net(torch.rand(2, 3, 8, 8)).shape == (2, 4)
        else:
            net.head.weight.data = net.head.weight.data.repeat(2, 1)
            net.head.bias.data = net.head.bias.data.repeat(2)
    x = stream.test_sets[0].x[:8]
    net.eval()
    expected = net(x.float() / 255)
    net.train()
    torch.testing.assert_close(learner.snapshot().all_logits(x), expected, rtol=1e-4, atol=1e-5)


def test_another_precision_by_hand_is_in_the_next_snapshot(
    build: Build, stream: ClassStream
) -> None:
    learner = build("er")
    learn_some(learner, stream, 3)
    learner.peers[0].model.precision = "bf16"
    assert learner.snapshot().models[0].precision == "bf16"


def test_an_interrupt_while_images_are_kept_leaves_no_means_of_before(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("er")
    learn_some(learner, stream, 3)
    x = stream.test_sets[0].x[:8]
    batches = iter(stream.tasks[1])
    for where in ("Fingerprint.__init__", "Snapshot.keep_memory", "Snapshot.using"):
        learner.learn(*next(batches))
        with monkeypatch.context() as patch:
            patch.setattr(f"peerlearn.learner.online.{where}", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                learner.snapshot("ncm")
        learner.learn(*next(batches))
        assert len(learner.snapshot(memory=True).memory_features().labels) == len(learner.memory)
        assert torch.equal(learner.predict_ncm(x), plain_nearest_mean(learner, x))


def test_a_snapshot_that_was_half_renewed_is_never_served(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("er")
    learn_some(learner, stream, 3)
    state = learner.state_dict()
    del state["rng.views"]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "_foreach_copy_", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner.snapshot()
    with pytest.raises(KeyError):
        learner.load_state_dict(state)
    with pytest.raises(UserError, match="broke off"):
        learner.snapshot()


def test_a_snapshot_that_is_held_is_never_renewed(build: Build, stream: ClassStream) -> None:
    learner = build("er")
    x, held = stream.test_sets[0].x[:8], []
    for batch in list(stream.tasks[0])[:4]:
        learner.learn(*batch)
        held.append((learner.snapshot(), learner.logits(x)))
        learner.learn(*batch)
        learner.learn(*batch)
    for snapshot_, logits in held:
        assert torch.equal(snapshot_.logits(x), logits)


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
