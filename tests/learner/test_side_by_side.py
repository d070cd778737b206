"""Peers side by side learn what they learn in turn, to the bit, whatever happens on the way."""

import gc
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, tensors
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from peerlearn import (
    ClassStream,
    Distillation,
    OnlineLearner,
    StreamInfo,
    WithHead,
    small_net,
)
from peerlearn.distill import WRAPPERS
from peerlearn.errors import UserError
from peerlearn.methods import ER
from peerlearn.methods.er import Replay
from peerlearn.methods.interface import StepOutput
from peerlearn.peer import Peer


def assert_same(ours: OnlineLearner, theirs: OnlineLearner) -> None:
    left, right = tensors(ours), tensors(theirs)
    assert left.keys() == right.keys()
    assert [name for name in left if not left[name].equal(right[name])] == []
    assert ours.cost == theirs.cost


@pytest.mark.parametrize("name", [f"er_ace+{wrapper}" for wrapper in WRAPPERS])
def test_every_wrapper(name: str, build: Build, stream: ClassStream) -> None:
    in_turn, side_by_side = build(name), build(name, peers_at_once=2)
    assert side_by_side.pool.count == min(2, len(side_by_side.peers))
    assert learn_some(in_turn, stream, 3) == learn_some(side_by_side, stream, 3)
    assert_same(in_turn, side_by_side)
    x = stream.test_sets[0].x
    assert in_turn.logits(x).equal(side_by_side.logits(x))
    assert in_turn.predict_ncm(x).equal(side_by_side.predict_ncm(x))


def test_more_peers_than_lanes_and_several_updates(build: Build, stream: ClassStream) -> None:
    settings: dict[str, Any] = {"peers": 3, "updates": 2}
    in_turn = build("er+ccldc", **settings)
    side_by_side = build("er+ccldc", **settings, peers_at_once=2)
    assert learn_some(in_turn, stream, 3) == learn_some(side_by_side, stream, 3)
    assert_same(in_turn, side_by_side)


def two_peers() -> Distillation:
    return WRAPPERS["ccldc"]().distillation()


def with_dropout() -> nn.Module:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 16), nn.ReLU(), nn.Dropout(0.5))
    return WithHead(encoder, 16, 4)


def small_stream() -> Any:
    x = (torch.arange(20 * 3 * 64) % 251).to(torch.uint8).view(20, 3, 8, 8)
    return [(x[i : i + 5], torch.arange(5) % 4) for i in range(0, 20, 5)]


def learn_alike(learners: list[OnlineLearner], batches: Any) -> None:
    for batch in batches:
        losses = [learner.learn(*batch) for learner in learners]
        assert losses[0] == losses[1]


@pytest.mark.parametrize("updates", [1, 2])
def test_peers_whose_layers_draw_take_turns(build: Build, updates: int) -> None:
    learners = [
        build("er+ccldc", net=with_dropout, memory=10, updates=updates, peers_at_once=count)
        for count in (1, 2)
    ]
    with pytest.warns(RuntimeWarning, match="take turns from now on"):
        learn_alike(learners, small_stream())
    assert_same(*learners)
    assert learners[1].pool.count == 1


def test_peers_that_share_a_part_take_turns(build: Build) -> None:
    norm = nn.BatchNorm2d(3)

    def net() -> nn.Module:
        own = small_net(4, width=4)
        own.encoder = nn.Sequential(norm, own.encoder)
        return own

    assert build("er+ccldc", peers_at_once=2).pool.count == 2
    assert build("er+ccldc", net=net, peers_at_once=2).pool.count == 1


def test_peers_that_share_numbers_take_turns(build: Build) -> None:
    state = small_net(4, width=4).state_dict()

    def net() -> nn.Module:
        own = small_net(4, width=4)
        own.load_state_dict(state, assign=True)
        return own

    assert build("er+ccldc", net=net, peers_at_once=2).pool.count == 1


class Scribbles(ER):
    """ER that leaves a note to itself in `loss`, which another peer may overwrite."""

    name = "scribbles"

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        self.peer = peer
        time.sleep(0.01)
        return super().loss(self.peer, draw)


class Tidies(Scribbles):
    """The same, and takes the note away."""

    name = "tidies"
    peer: Any = None

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        outcome = super().loss(peer, draw)
        del self.peer
        return outcome


class Counts(ER):
    """ER whose loss grows with every call."""

    name = "counts"

    def __init__(self, stream: StreamInfo) -> None:
        super().__init__(stream)
        self.calls = 0

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        self.calls += 1
        outcome = super().loss(peer, draw)
        return outcome._replace(loss=outcome.loss * self.calls)


def learners_of(method: type[ER]) -> list[OnlineLearner]:
    """One in turn, and one side by side."""
    net = partial(small_net, 4, width=4)
    return [
        OnlineLearner(
            method(StreamInfo(num_classes=4)), net, two_peers(), memory=20, peers_at_once=count
        )
        for count in (1, 2)
    ]


@pytest.mark.parametrize("method", [Scribbles, Counts])
def test_peers_whose_method_assigns_to_itself_take_turns(
    method: type[ER], stream: ClassStream
) -> None:
    learners = learners_of(method)
    with pytest.warns(RuntimeWarning, match="take turns from now on"):
        learn_alike(learners, list(stream.tasks[0].batches())[:4])
    assert learners[1].pool.count == 1
    assert_same(*learners)


def test_what_a_method_notes_for_a_peer_no_other_peer_sees(stream: ClassStream) -> None:
    learners = learners_of(Tidies)
    learn_alike(learners, list(stream.tasks[0].batches())[:4])
    assert learners[1].pool.count == 2
    assert_same(*learners)


def test_a_method_may_ask_another_learner(build: Build, stream: ClassStream) -> None:
    teacher = build("er+ccldc", peers_at_once=2)
    learn_some(teacher, stream, 2)

    class Follows(ER):
        name = "follows"

        def loss(self, peer: Peer, draw: Replay) -> StepOutput:
            outcome = super().loss(peer, draw)
            return outcome._replace(loss=outcome.loss * teacher.logits(draw.groups[0].x).std())

    learners = learners_of(Follows)
    learn_alike(learners, list(stream.tasks[0].batches())[:3])
    assert learners[1].pool.count == 2


def test_a_hook_that_saves_the_learner_is_refused_and_not_left_waiting(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er+ccldc", peers_at_once=2)
    first, second = list(stream.tasks[0].batches())[:2]
    learner.learn(*first)
    for peer in learner.peers:
        peer.model.net.register_forward_hook(lambda *_: learner.save(tmp_path))
    with pytest.raises(UserError, match="peers_at_once=1"):
        learner.learn(*second)


class Fails(ER):
    """ER whose second peer fails at a step that is asked for."""

    name = "fails"
    failing = False

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        outcome = super().loss(peer, draw)
        if self.failing and peer is self.second:
            raise RuntimeError("no more")
        return outcome

    second: Peer


def test_if_one_peer_fails_nothing_has_changed(stream: ClassStream) -> None:
    method = Fails(StreamInfo(num_classes=4))
    learner = OnlineLearner(
        method,
        partial(small_net, 4, width=4),
        two_peers(),
        memory=20,
        peers_at_once=2,
    )
    method.second = learner.peers[1]
    batches = list(stream.tasks[0].batches())
    for batch in batches[:3]:
        learner.learn(*batch)
    before = tensors(learner)
    method.failing = True
    with pytest.raises(RuntimeError, match="no more"):
        learner.learn(*batches[3])
    after = tensors(learner)
    assert [name for name in before if not before[name].equal(after[name])] == []
    assert all(p.grad is None for peer in learner.peers for p in peer.model.parameters())
    method.failing = False
    assert learner.learn(*batches[3])


def test_a_learner_goes_on_side_by_side_from_a_checkpoint_of_turns(
    build: Build, stream: ClassStream, tmp_path: Any
) -> None:
    in_turn = build("onpro+ccldc")
    learn_some(in_turn, stream, 2)
    in_turn.save(tmp_path / "c")
    side_by_side = build("onpro+ccldc", peers_at_once=2)
    side_by_side.load(tmp_path / "c")
    assert_same(in_turn, side_by_side)


@pytest.mark.parametrize("count", [0, 1.5, True])
def test_a_wrong_number_is_refused(build: Build, count: Any) -> None:
    with pytest.raises(UserError, match="peers_at_once must be a whole number from 1 on"):
        build("er+ccldc", peers_at_once=count)


def test_a_loss_that_is_not_finite_stops_both(build: Build, stream: ClassStream) -> None:
    learner = build("er+ccldc", peers_at_once=2)
    learn_some(learner, stream, 2)
    head: Tensor = learner.peers[1].model.net.head.bias  # type: ignore[union-attr, assignment]
    with torch.no_grad():
        head.fill_(float("nan"))
    before = tensors(learner)
    with pytest.raises(UserError, match="not finite"):
        learner.learn(*next(iter(stream.tasks[0].batches())))
    after = tensors(learner)
    unequal = [n for n in before if not torch.equal(before[n].nan_to_num(), after[n].nan_to_num())]
    assert unequal == []


class Gathers(ER):
    """ER that changes what it holds in place."""

    name = "gathers"

    def __init__(self, stream: StreamInfo) -> None:
        super().__init__(stream)
        self.sum, self.calls = torch.zeros(()), list[int]()

    def loss(self, peer: Peer, draw: Replay) -> StepOutput:
        outcome = super().loss(peer, draw)
        self.sum.add_(outcome.loss.detach())
        self.calls.append(len(draw.groups))
        return outcome


def test_peers_whose_method_changes_what_it_holds_take_turns(stream: ClassStream) -> None:
    learners = learners_of(Gathers)
    with pytest.warns(RuntimeWarning, match="take turns from now on"):
        learn_alike(learners, list(stream.tasks[0].batches())[:3])
    assert learners[1].pool.count == 1


def test_whoever_counts_operations_sees_all_of_a_step(build: Build, stream: ClassStream) -> None:
    counts = []
    for at_once in (1, 2):
        learner = build("er+ccldc", peers_at_once=at_once)
        learn_some(learner, stream, 2)
        with FlopCounterMode(display=False) as counter:
            learner.learn(*next(iter(stream.tasks[0].batches())))
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_a_learner_ends_with_its_threads_when_nobody_holds_it(
    build: Build, stream: ClassStream
) -> None:
    gc.collect()
    gc.disable()
    try:
        learner = build("er+ccldc", peers_at_once=64)
        learn_some(learner, stream, 2)
        assert learner.pool.count == 2
        gone = weakref.ref(learner)
        del learner
        assert gone() is None
    finally:
        gc.enable()


def test_learning_is_refused_in_inference_mode(build: Build, stream: ClassStream) -> None:
    batch = next(iter(stream.tasks[0].batches()))
    with torch.inference_mode(), pytest.raises(UserError, match="inference_mode"):
        build("er").learn(*batch)
