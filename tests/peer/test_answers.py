"""Logits and features of one forward, wherever they are those of two."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn import WithHead, small_net
from peerlearn.methods.pcr import CosineHead
from peerlearn.nets import Network, ResNet18
from peerlearn.peer import PeerModel

X = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def encoder() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())


class Halved(WithHead):
    """Overrides forward, but not classify."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


class Called(WithHead):
    """Overrides what is called."""

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = super().__call__(x) / 2
        return logits


class HalvedResNet(ResNet18):
    """Overrides forward, but not classify."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


class Plain(nn.Module):
    """No more than a network must offer; a part happens to be called classify."""

    feature_dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(3, 4)

    def features(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(F.normalize(self.features(x)))
        return logits


def hooked() -> WithHead:
    net = small_net(4)
    net.register_forward_hook(lambda *call: call[2] / 2)
    return net


def replaced() -> WithHead:
    net = small_net(4)
    net.forward = lambda x: net.classify(net.features(x)) / 2  # type: ignore[method-assign]
    return net


class Softened(WithHead):
    """Overrides classify, on which forward is built, and features."""

    def features(self, x: Tensor) -> Tensor:
        return F.normalize(super().features(x))

    def classify(self, features: Tensor) -> Tensor:
        return super().classify(features) / 3


class SoftenedHalved(Halved):
    """Overrides classify, which is not all that forward does."""

    def classify(self, features: Tensor) -> Tensor:
        return super().classify(features) / 3


class Anew(Halved):
    """Overrides both, so that they agree again."""

    def classify(self, features: Tensor) -> Tensor:
        return F.linear(features, self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


def in_place() -> WithHead:
    net = WithHead(nn.Sequential(encoder(), nn.Linear(12, 12)), 12, 4)
    net.head = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(12, 4))  # type: ignore[assignment]
    return net


ONCE: dict[str, Callable[[], nn.Module]] = {
    "ResNet18": lambda: ResNet18(4, width=4, pool="2x2", normalise=True),
    "SmallNet": lambda: small_net(4),
    "another classify": lambda: Softened(encoder(), 12, 4),
    "another forward with its classify": lambda: Anew(encoder(), 12, 4),
    "a classifier that works in place": in_place,
}
TWICE: dict[str, Callable[[], nn.Module]] = {
    "without classify": Plain,
    "another forward": lambda: Halved(encoder(), 12, 4),
    "another forward, then another classify": lambda: SoftenedHalved(encoder(), 12, 4),
    "another forward of ResNet18": lambda: HalvedResNet(4, width=4),
    "another call": lambda: Called(encoder(), 12, 4),
    "a hook": hooked,
    "a forward of the object's own": replaced,
}


@pytest.mark.parametrize("name", [*ONCE, *TWICE])
def test_they_are_those_of_two_forwards(name: str) -> None:
    net = (ONCE | TWICE)[name]()
    assert isinstance(net, Network)
    model = PeerModel(net).eval()
    with torch.no_grad():
        expected = model.logits(X), model.features(X)
        shown = model.forwards
        logits, features = model.answers(X)
    assert torch.equal(logits, expected[0])
    assert torch.equal(features, expected[1])
    assert model.forwards - shown == len(X) * (1 if name in ONCE else 2)


def test_a_head_of_the_methods_own_is_asked() -> None:
    for net in (small_net(4), Plain()):
        model = PeerModel(net).eval()
        model.use_head(CosineHead(model.feature_dim, 4, temperature=0.1))
        logits, features = model.answers(X)
        assert model.forwards == len(X)
        assert torch.equal(logits, model.logits(X))
        assert torch.equal(features, model.features(X))


def test_a_classifier_sees_features_as_precise_as_they_were_computed() -> None:
    class Coarse(WithHead):
        """Gives what it computes as bf16, as autocast does."""

        seen: torch.dtype

        def features(self, x: Tensor) -> Tensor:
            return super().features(x).bfloat16()

        def classify(self, features: Tensor) -> Tensor:
            self.seen = features.dtype
            return features[:, :4] / 3

    net = Coarse(encoder(), 12, 4)
    model = PeerModel(net).eval()
    logits, features = model.answers(X)
    assert net.seen == torch.bfloat16
    assert logits.dtype == features.dtype == torch.float32
    assert torch.equal(logits, model.logits(X))
    assert not torch.equal(logits, features[:, :4] / 3)
    assert torch.equal(features, model.features(X))


def test_gradients_pass_through_both() -> None:
    one, two = PeerModel(small_net(4)), PeerModel(small_net(4))
    two.load_state_dict(one.state_dict())
    logits, features = one.answers(X)
    (logits.square().mean() + features.mean()).backward()
    shared = two.net.features(X)
    (two.net.classify(shared).square().mean() + shared.mean()).backward()  # type: ignore[operator]
    for ours, theirs in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
