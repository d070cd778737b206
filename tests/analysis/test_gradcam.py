"""Grad-CAM++ against derivatives taken one by one, and the layer at which it looks."""

from types import SimpleNamespace

import pytest
import torch
from conftest import Build, same, tensors
from torch import Tensor, nn

from peerlearn import ClassStream, WithHead
from peerlearn.analysis.gradcam import _labels, grad_cam_pp, heat_maps, last_maps
from peerlearn.analysis.networks import evaluating, first_peer
from peerlearn.errors import UserError
from peerlearn.nets.resnet import ResNet18
from peerlearn.peer import PeerModel


def derivative(y: Tensor, at: Tensor, place: tuple[int, ...]) -> Tensor:
    """Of y by one number of a tensor; can be derived again."""
    (gradient,) = torch.autograd.grad(y, at, create_graph=True)
    return gradient[place]


def by_derivatives(maps: Tensor, weights: Tensor) -> Tensor:
    """The paper's formula for one image, (K, h, w): Y = exp(score), derived three times."""
    maps = maps.clone().requires_grad_()
    y = (maps * weights).sum().exp()
    seen = torch.zeros(maps.shape[1:], dtype=maps.dtype)
    for k in range(maps.shape[0]):
        weight = 0.0
        for i in range(maps.shape[1]):
            for j in range(maps.shape[2]):
                first = derivative(y, maps, (k, i, j))
                second = derivative(first, maps, (k, i, j))
                third = derivative(second, maps, (k, i, j))
                alpha = second / (2 * second + maps[k].sum() * third)
                weight += float((alpha * first.relu()).detach())
        seen = seen + weight * maps[k].detach()
    seen = seen.relu()
    return seen / seen.max()


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_three_explicit_derivatives_of_exp_of_the_score_give(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    maps = torch.rand(2, 3, 2, 3, generator=rng, dtype=torch.float64)
    weights = torch.randn(2, 3, 2, 3, generator=rng, dtype=torch.float64)
    found = grad_cam_pp(maps, weights)  # the score is linear: its gradients are the weights
    for one, own, expected in zip(maps, weights, found, strict=True):
        torch.testing.assert_close(by_derivatives(one, own), expected)


def test_a_class_that_is_seen_nowhere_gives_nothing() -> None:
    assert not grad_cam_pp(torch.rand(1, 2, 3, 3), torch.zeros(1, 2, 3, 3)).any()


def test_a_spot_that_alone_speaks_for_a_class_is_the_hottest() -> None:
    torch.manual_seed(0)
    model = PeerModel(ResNet18(4, width=4))
    maps, gradients, _ = last_maps(model, torch.rand(2, 3, 32, 32), torch.tensor([1, 3]))
    maps = torch.zeros_like(maps)
    maps[:, (gradients[:, :, 0, 0] > 0).all(dim=0).nonzero()[0, 0], 2, 1] = 1.0
    assert grad_cam_pp(maps, gradients).flatten(1).argmax(dim=1).tolist() == [9, 9]


class TestTheLayer:
    def test_of_the_resnet_is_the_last_block_of_stage_four(self) -> None:
        model = PeerModel(ResNet18(4, width=2))
        maps, gradients, layer = last_maps(model, torch.rand(2, 3, 32, 32), torch.tensor([0, 1]))
        assert layer == "stages.7"
        assert maps.shape == gradients.shape == (2, 16, 4, 4)
        linear = model.net.head.weight[:2] / 16  # an average over 16 places, then a linear layer
        torch.testing.assert_close(gradients, linear[:, :, None, None].expand(2, 16, 4, 4))

    def test_of_another_network_is_the_last_with_maps_whatever_pools_them(
        self, build: Build
    ) -> None:
        model = build("er").peers[0].model
        _, _, layer = last_maps(model, torch.rand(1, 3, 16, 16), torch.tensor([0]))
        assert layer == "encoder.5"  # a ReLU; the pool after it gives single places

    def test_of_a_network_without_maps_is_missed_by_name(self) -> None:
        flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
        model = PeerModel(WithHead(flat, 5, 4))
        with pytest.raises(UserError, match="WithHead has no layer that gives maps"):
            last_maps(model, torch.rand(1, 3, 8, 8), torch.tensor([0]))


class TestLooking:
    def test_changes_nothing_about_a_learner(self, build: Build, stream: ClassStream) -> None:
        learner = build("er+ccldc")
        learner.learn(*next(iter(stream.tasks[0])))
        before = tensors(learner)
        learner.peers[0].model.net.encoder[1].eval()  # a layer that is frozen stays so
        modes = [module.training for module in learner.peers[0].model.modules()]
        cost = learner.cost
        test = stream.test_sets[0]
        heat_maps(learner, test.x[:3], test.y[:3])
        first_peer(learner, test.x, PeerModel.features)
        assert same(tensors(learner), before)
        assert [module.training for module in learner.peers[0].model.modules()] == modes
        assert learner.cost == cost
        assert all(p.grad is None for p in learner.peers[0].model.parameters())
        assert not any(m._forward_hooks for m in learner.peers[0].model.modules())

    def test_ends_as_it_began_though_something_fails(self, build: Build) -> None:
        model = build("er").peers[0].model.train()
        with pytest.raises(LookupError), evaluating(model):
            raise LookupError
        assert model.net.training

    def test_by_the_first_peer_gives_its_own_answers(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+ccldc")
        learner.learn(*next(iter(stream.tasks[0])))
        x = stream.test_sets[0].x
        assert torch.equal(first_peer(learner, x, PeerModel.logits), learner.logits(x, peer=0))


def test_a_training_image_has_the_label_that_the_stream_gives_it(stream: ClassStream) -> None:
    train = stream.dataset.train
    rows = torch.arange(len(train))
    labels = _labels(SimpleNamespace(stream=stream), rows)  # type: ignore[arg-type]
    known = {x.numpy().tobytes(): int(y) for x, y in zip(train.x, labels, strict=True)}
    for task in stream:
        for x, y in task:
            assert [known[image.numpy().tobytes()] for image in x] == y.tolist()
