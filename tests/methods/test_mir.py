"""MIR: the virtual step against a plainer twin, what it leaves alone, and what is chosen."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, same, weights
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn import ClassStream, StreamInfo, UserError, WithHead, small_net
from peerlearn.methods.interface import LabelledImages
from peerlearn.methods.mir import MIR
from peerlearn.optim import AdamW
from peerlearn.peer import Peer, PeerModel

CLASSES = 4


class Tied(nn.Module):
    """Two layers with one weight, and dropout between them."""

    feature_dim = 12

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12, bias=False), nn.Linear(12, 12, bias=False)
        self.second.weight = self.first.weight
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(12, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.second(self.dropout(self.first(x.flatten(1)))).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def peer_of(build: Callable[[], nn.Module]) -> Peer:
    return Peer(build, lambda _: None, AdamW(), seed=0, index=0, device=torch.device("cpu"))


def group(size: int, pixels: int = 8, seed: int = 0) -> LabelledImages:
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(size, 3, pixels, pixels, generator=rng)
    return LabelledImages(x, torch.randint(CLASSES, (size,), generator=rng))


def method(**settings: Any) -> MIR:
    return MIR(StreamInfo(num_classes=CLASSES), **settings)


NETS = {"batch-norm": (partial(small_net, CLASSES), 8), "tied weights and dropout": (Tied, 2)}


@pytest.fixture(params=NETS)
def peer_and_pixels(request: pytest.FixtureRequest) -> tuple[Peer, int]:
    build, pixels = NETS[request.param]
    return peer_of(build), pixels


class TestTheVirtualStep:
    def test_equals_a_step_written_out_for_a_linear_network(self) -> None:
        model = peer_of(lambda: WithHead(nn.Flatten(), 12, CLASSES)).model
        stream, candidates = group(6, pixels=2), group(9, pixels=2, seed=1)
        head = model.net.head
        w, b = head.weight.detach().clone(), head.bias.detach().clone()
        share = (stream.x.flatten(1) @ w.T + b).softmax(dim=1) - F.one_hot(stream.y, CLASSES)
        moved_w, moved_b = w - 0.3 * share.T @ stream.x.flatten(1) / 6, b - 0.3 * share.mean(dim=0)
        losses = [
            F.cross_entropy(candidates.x.flatten(1) @ w.T + b, candidates.y, reduction="none")
            for w, b in ((w, b), (moved_w, moved_b))
        ]
        found = method(virtual_lr=0.3).interference(model, stream, candidates)
        torch.testing.assert_close(found, losses[1] - losses[0])

    def test_equals_a_step_of_sgd_in_training_mode(self) -> None:
        model = peer_of(partial(small_net, CLASSES)).model
        stream, candidates = group(10), group(20, seed=1)
        twin = copy.deepcopy(model)
        before = F.cross_entropy(twin.logits(candidates.x), candidates.y, reduction="none")
        step = torch.optim.SGD(twin.parameters(), lr=0.1)
        F.cross_entropy(twin.logits(stream.x), stream.y).backward()
        step.step()
        after = F.cross_entropy(twin.logits(candidates.x), candidates.y, reduction="none")
        found = method().interference(model, stream, candidates)
        torch.testing.assert_close(found, (after - before).detach())
        assert not found.requires_grad
        assert found.std() > 0

    def test_leaves_the_network_its_buffers_gradients_and_generators_as_they_were(
        self, peer_and_pixels: tuple[Peer, int]
    ) -> None:
        peer, pixels = peer_and_pixels
        kept = [*peer.model.parameters(), *peer.model.buffers()]
        before = [(id(t), t.stride(), t.detach().clone()) for t in kept]
        drawn = torch.random.get_rng_state(), peer.rng.get_state()
        method().interference(peer.model, group(10, pixels), group(20, pixels, seed=1))
        now = [*peer.model.parameters(), *peer.model.buffers()]
        for tensor, (identity, stride, value) in zip(now, before, strict=True):
            assert (id(tensor), tensor.stride()) == (identity, stride)
            assert torch.equal(tensor, value)
            assert tensor.grad is None
        assert torch.equal(torch.random.get_rng_state(), drawn[0])
        assert torch.equal(peer.rng.get_state(), drawn[1])
        assert peer.model.training

    def test_of_length_zero_harms_nothing(self, peer_and_pixels: tuple[Peer, int]) -> None:
        peer, pixels = peer_and_pixels
        stream, candidates = group(10, pixels), group(20, pixels, seed=1)
        found = method(virtual_lr=0).interference(peer.model, stream, candidates)
        assert found.tolist() == [0.0] * 20

    def test_keeps_tied_weights_tied(self) -> None:
        peer = peer_of(Tied)
        peer.model.eval()  # without dropout, to compare
        stream, candidates = group(10, pixels=2), group(20, pixels=2, seed=1)
        twin = copy.deepcopy(peer.model)
        before = F.cross_entropy(twin.logits(candidates.x), candidates.y, reduction="none")
        F.cross_entropy(twin.logits(stream.x), stream.y).backward()
        torch.optim.SGD(twin.parameters(), lr=0.1).step()
        after = F.cross_entropy(twin.logits(candidates.x), candidates.y, reduction="none")
        found = method().interference(peer.model, stream, candidates)
        torch.testing.assert_close(found, (after - before).detach())

    def test_is_counted(self) -> None:
        model = peer_of(partial(small_net, CLASSES)).model
        method().interference(model, group(10), group(20, seed=1))
        assert (model.forwards, model.backwards) == (10 + 2 * 20, 10)


class TestWhatIsReplayed:
    def test_is_what_is_harmed_most_on_the_mean_over_the_peers(
        self, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner = build("mir+ccldc", memory=20, replay_batch=2, candidates=5)
        learn_some(learner, stream, 3)
        rises = [torch.tensor([0.0, 4, 1, 3, 0]), torch.tensor([4.0, 0, 1, 3, 0])]
        offered: list[LabelledImages] = []

        def told(
            _self: MIR, _model: PeerModel, _stream: LabelledImages, candidates: LabelledImages
        ) -> Tensor:
            offered.append(candidates)
            return rises[len(offered) - 1]

        monkeypatch.setattr(MIR, "interference", told)
        batch, rng = group(10), torch.Generator().manual_seed(0)
        draw = learner.method.draw_for(learner.peers, batch, learner.memory, learner.progress, rng)
        chosen = draw.groups[0]  # 3 has a mean of 3; of 0 and 1, both 2, the first drawn
        assert torch.equal(chosen.x, torch.cat([offered[0].x[[3, 0]], batch.x]))
        assert torch.equal(chosen.y, torch.cat([offered[0].y[[3, 0]], batch.y]))
        assert torch.equal(offered[0].x, offered[1].x)

    def test_depends_on_the_virtual_learning_rate_and_the_candidates(
        self, build: Build, stream: ClassStream
    ) -> None:
        found = []
        for settings in ({}, {"virtual_lr": 1.0}, {"candidates": 15}):
            learner = build("mir", **{"replay_batch": 8, "candidates": 20, **settings})
            learn_some(learner, stream)
            found.append(weights(learner))
        assert not same(found[0], found[1])
        assert not same(found[0], found[2])

    def test_is_all_of_a_memory_that_offers_no_choice_which_is_er(
        self, build: Build, stream: ClassStream
    ) -> None:
        one, two = build("mir+ccldc", memory=20), build("er+ccldc", memory=20)
        two._step.distillation = one.distillation  # ER has published weights
        learn_some(one, stream)
        learn_some(two, stream)
        assert one.cost == two.cost
        assert same(weights(one, 1), weights(two, 1))

    def test_must_be_chosen_from_enough(self) -> None:
        says = "MIR: candidates must be at least replay_batch, got 20 and 64"
        with pytest.raises(UserError, match=says):
            method(candidates=20)


@pytest.mark.parametrize(("name", "images"), [("mir", (34, 8.4)), ("mir+ccldc", (127.2, 76))])
def test_it_costs_what_its_page_says(name: str, images: tuple[float, float], build: Build) -> None:
    learner = build(name, memory=200)
    for _ in range(15):
        before = learner.cost
        learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % CLASSES)
    ways = ("forward_images", "backward_images")
    assert tuple((learner.cost[way] - before[way]) / 10 for way in ways) == images
