"""A copy predicts with weights of its own, however its modules reach each other."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from conftest import Build
from torch import Tensor, nn

from peerlearn import ClassStream, WithHead


class Encoder(nn.Module):
    """(B, 3, H, W) -> (B, 6); how its layer is reached, others say."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 6)

    def encode(self, x: Tensor, power: int = 1) -> Tensor:
        encoded: Tensor = self.layer(x.mean(dim=(2, 3))) ** power
        return encoded


class ByMethod(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.op = self.encode

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x)


class ByMethodOfAPart(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.op = self.layer.forward

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x.mean(dim=(2, 3)))


class ByPartial(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.op = partial(self.encode, power=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x)


class ByList(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.ops = [self.layer], {"encode": self.encode}

    def forward(self, x: Tensor) -> Tensor:
        encoded: Tensor = self.layers[0](x.mean(dim=(2, 3)))
        return encoded + self.ops["encode"](x)


class ByHook(Encoder):
    """Takes what a hook has kept."""

    def __init__(self) -> None:
        super().__init__()
        self.layer.register_forward_hook(self.keep)

    def keep(self, *said: Tensor) -> None:
        self.kept = said[-1]

    def forward(self, x: Tensor) -> Tensor:
        self.encode(x)
        return self.kept


KINDS = [ByMethod, ByMethodOfAPart, ByPartial, ByList, ByHook]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_module_keeps_of_itself_is_of_the_copy(
    kind: Callable[[], nn.Module], build: Build, stream: ClassStream
) -> None:
    learner = build("er", net=lambda: WithHead(kind(), 6, 4), lr=0.1)
    first, *others = list(stream.tasks[0])[:4]
    x = stream.test_sets[0].x[:4]
    learner.learn(*first)
    model, snapshot = learner.peers[0].model, learner.snapshot()
    before = snapshot.logits(x)
    for batch in others:
        learner.learn(*batch)
    assert torch.equal(snapshot.logits(x), before)
    assert not torch.equal(learner.logits(x), before)
    model.eval()
    torch.testing.assert_close(learner.logits(x), model.logits(x.float() / 255))
