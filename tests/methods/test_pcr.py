"""PCR: its loss against the released form, its head, and what a step trains on."""

import math

import pytest
import torch
from conftest import Build, learn_some, weights
from torch import Tensor
from torch.nn import functional as F

from peerlearn import ClassStream, StreamInfo
from peerlearn.losses import proxy_contrast
from peerlearn.memory import Reservoir
from peerlearn.methods.interface import LabelledImages, Progress
from peerlearn.methods.pcr import PCR, CosineHead, PairDraw


class Parrot:
    """A peer that answers with the next of the logits it was given."""

    def __init__(self, *answers: Tensor) -> None:
        self.answers = list(answers)

    def logits(self, x: Tensor) -> Tensor:
        answer = self.answers.pop(0)
        assert len(answer) == len(x)
        return answer


def released_form(logits: Tensor, labels: Tensor) -> Tensor:
    """The authors' contrast: a column for the proxy of each image, mean over those of one's class.

    logits: (B, C); labels: (B,).
    """
    losses = []
    for row, label in zip(logits, labels, strict=True):
        proxies = row[labels]  # (B,): the similarity to the proxy of every image of the batch
        log_share = proxies - proxies.exp().sum().log()
        losses.append(-log_share[labels == label].mean())
    return torch.stack(losses).mean()


class TestProxyContrast:
    logits = 3 * torch.sin(torch.arange(48.0, dtype=torch.float64)).reshape(8, 6)
    labels = torch.tensor([0, 1, 1, 3, 0, 3, 1, 0])  # 2, 4 and 5 are absent

    def test_it_equals_the_released_contrast_over_the_proxies_of_all_images(self) -> None:
        torch.testing.assert_close(
            proxy_contrast(self.logits, self.labels), released_form(self.logits, self.labels)
        )

    def test_its_gradient_equals_that_of_the_released_form(self) -> None:
        one, two = (self.logits.clone().requires_grad_() for _ in range(2))
        proxy_contrast(one, self.labels).backward()
        released_form(two, self.labels).backward()
        torch.testing.assert_close(one.grad, two.grad)

    def test_it_is_a_cross_entropy_among_the_classes_present_up_to_a_constant(self) -> None:
        present, counts = torch.tensor([0, 1, 3]), torch.tensor([3.0, 3.0, 2.0]).double()
        place = torch.tensor([0, 1, 1, 2, 0, 2, 1, 0])
        constant = counts[place].log().mean()
        expected = F.cross_entropy(self.logits[:, present] + counts.log(), place)
        torch.testing.assert_close(proxy_contrast(self.logits, self.labels) - constant, expected)

    def test_absent_classes_get_no_gradient(self) -> None:
        logits = self.logits.clone().requires_grad_()
        proxy_contrast(logits, self.labels).backward()
        assert logits.grad is not None
        assert (logits.grad[:, [2, 4, 5]] == 0).all()
        assert (logits.grad[:, [0, 1, 3]] != 0).all()

    def test_one_class_costs_the_log_of_the_number_of_images_and_teaches_nothing(self) -> None:
        logits = torch.randn(148, 6, requires_grad=True)
        loss = proxy_contrast(logits, torch.full((148,), 2))
        loss.backward()
        torch.testing.assert_close(loss.item(), math.log(148))
        assert logits.grad is not None
        assert logits.grad.abs().max() < 1e-8


class TestCosineHead:
    features = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))

    def test_it_gives_the_cosines_over_the_temperature(self) -> None:
        head = CosineHead(8, 3, temperature=0.09)
        cosines = F.cosine_similarity(self.features[:, None], head.weight[None], dim=2)
        torch.testing.assert_close(head(self.features), cosines / 0.09, rtol=1e-4, atol=1e-4)

    def test_lengths_do_not_count(self) -> None:
        head = CosineHead(8, 3, temperature=0.09)
        before = head(self.features)
        with torch.no_grad():
            head.weight[1] *= 7
        torch.testing.assert_close(head(9 * self.features), before, rtol=1e-4, atol=1e-4)

    def test_an_image_without_features_has_logits_all_the_same(self) -> None:
        head = CosineHead(8, 3, temperature=0.09)
        assert head(torch.zeros(2, 8)).tolist() == [[0.0] * 3] * 2

    def test_the_gradient_reaches_features_and_proxies(self) -> None:
        head, features = CosineHead(8, 3, temperature=0.09), self.features.clone().requires_grad_()
        proxy_contrast(head(features), torch.tensor([0, 1, 2, 0, 1])).backward()
        assert features.grad is not None
        assert head.weight.grad is not None
        assert features.grad.abs().sum() > 0
        assert head.weight.grad.abs().sum() > 0


class TestAStep:
    method = PCR(StreamInfo(num_classes=4), replay_batch=6)
    batch = LabelledImages(torch.rand(2, 3, 8, 8), torch.tensor([2, 3]))
    progress = Progress(torch.full((4,), -1))

    def memory(self, rows: int = 20, capacity: int = 20) -> Reservoir:
        memory, rng = Reservoir(capacity), torch.Generator().manual_seed(0)
        if rows:
            x = torch.randint(256, (rows, 3, 8, 8), generator=rng, dtype=torch.uint8)
            memory.add(rng, x=x, y=torch.arange(rows) % 2)
        return memory

    def draw(self, memory: Reservoir) -> PairDraw | None:
        rng = torch.Generator().manual_seed(0)
        return self.method.draw(self.batch, memory, self.progress, rng)

    def test_trains_on_stream_and_memory_each_as_it_is_and_augmented(self) -> None:
        draw = self.draw(self.memory())
        assert draw is not None
        stream, replayed = draw.pairs
        assert (len(stream.y), len(replayed.y)) == (4, 12)
        assert torch.equal(stream.x[:2], self.batch.x)
        assert not torch.equal(stream.x[2:], self.batch.x)
        for pair in draw.pairs:
            assert torch.equal(*pair.y.chunk(2))

    def test_is_one_contrast_over_two_forwards(self) -> None:
        draw = self.draw(self.memory())
        assert draw is not None
        logits = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
        peer = Parrot(logits[:4], logits[4:])
        outcome = self.method.loss(peer, draw)  # type: ignore[arg-type]
        labels = torch.cat([pair.y for pair in draw.pairs])
        torch.testing.assert_close(outcome.loss, released_form(logits, labels))
        assert [len(answer.x) for answer in outcome.outputs] == [4, 12]

    def test_lets_peers_discuss_memory_and_stream_unaugmented(self) -> None:
        draw = self.draw(self.memory())
        assert draw is not None
        (group,) = self.method.groups(draw, torch.Generator())
        assert torch.equal(group.x, torch.cat([draw.pairs[1].x[:6], self.batch.x]))
        assert group.active_classes is group.mix is None

    def test_is_not_taken_while_there_is_nothing_to_replay(self) -> None:
        assert self.draw(self.memory(rows=0)) is None

    def test_without_a_memory_is_on_the_stream_alone(self) -> None:
        draw = self.draw(self.memory(rows=0, capacity=0))
        assert draw is not None
        assert [len(pair.y) for pair in draw.pairs] == [4]


class TestALearner:
    def test_answers_by_cosines(self, build: Build, stream: ClassStream) -> None:
        for temperature in (0.09, 0.5):
            learner = build("pcr", temperature=temperature)
            learn_some(learner, stream)
            logits = learner.logits(stream.test_sets[0].x)
            assert 0 < logits.abs().max() <= 1 / temperature

    def test_leaves_the_classifier_of_the_network_alone(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("pcr+ccldc")
        before = weights(learner)
        learn_some(learner, stream)
        moved = {
            name for name, weight in weights(learner).items() if not before[name].equal(weight)
        }
        assert "head.weight" in moved
        assert not moved & {"net.head.weight", "net.head.bias"}

    @pytest.mark.parametrize(("name", "images"), [("pcr", 14.8), ("pcr+ccldc", 88.8)])
    def test_costs_what_its_page_says(self, name: str, images: float, build: Build) -> None:
        learner = build(name, memory=100)
        for _ in range(9):
            before = learner.cost
            learner.learn(torch.rand(10, 3, 8, 8), torch.arange(10) % 4)
        for way in ("forward_images", "backward_images"):
            assert (learner.cost[way] - before[way]) / 10 == images
