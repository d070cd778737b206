"""Whole steps of methods against numbers from the authors' code, network outputs by formula."""

import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.losses import class_means
from peerlearn.methods import ERACE, GSA
from peerlearn.methods.feedback import pair_counts
from peerlearn.methods.gsa import GSADraw
from peerlearn.methods.interface import LabelledImages
from peerlearn.stream import StreamInfo


class Parrot:
    """A peer that answers with the next of the logits it was given."""

    def __init__(self, *answers: Tensor) -> None:
        self.answers = list(answers)
        self.buffers: dict[str, Tensor] = {}

    def logits(self, x: Tensor) -> Tensor:
        answer = self.answers.pop(0)
        assert len(answer) == len(x)
        return answer


def test_a_gsa_step_equals_the_authors() -> None:
    gsa = GSA(StreamInfo(num_classes=6, boundaries=True, classes_per_task=2), replay_batch=8)
    first = 1.5 * torch.sin(0.6 * torch.arange(48)).reshape(8, 6)
    second = 1.5 * torch.cos(0.4 * torch.arange(96)).reshape(16, 6)
    peer = Parrot(first, second)
    peer.buffers = {
        "count": torch.tensor([10.0, 12, 0, 0, 0, 0]),
        "own": torch.tensor([6.0, 7, 0, 0, 0, 0]),
        "others": torch.tensor([4.0, 5, 0, 0, 0, 0]),
    }
    current, balanced = torch.tensor([2, 3, 3, 2] * 2), torch.tensor([0, 1, 1, 0, 2, 3, 3, 2] * 2)
    draw = GSADraw(
        stream=LabelledImages(torch.zeros(2), torch.tensor([2, 3])),
        current=LabelledImages(torch.zeros(8), current),
        balanced=LabelledImages(torch.zeros(16), balanced),
        slots=slice(2, 4),
        warm=False,
    )
    outcome = gsa.loss(peer, draw)  # type: ignore[arg-type]
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(outcome.loss, torch.tensor(3.4575725), **tolerance)
    for name, expected in {
        "count": [14.0, 16.0, 4.0, 4.0, 0, 0],
        "others": [6.5347757, 7.8835325, 2.6463561, 3.5512652, 0, 0],
        "own": [7.7172756, 7.8525801, 1.0969353, 0.7172788, 0, 0],
    }.items():
        torch.testing.assert_close(peer.buffers[name], torch.tensor(expected), **tolerance)


def test_a_gsa_step_in_the_warm_up_weighs_all_classes_alike() -> None:
    gsa = GSA(StreamInfo(num_classes=4, boundaries=True, classes_per_task=2))
    logits = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
    peer = Parrot(logits[0], logits[1])
    peer.buffers = {name: torch.full((4,), 7.0) for name in ("count", "own", "others")}
    y = torch.tensor([0, 1, 0, 1] * 2)
    group = LabelledImages(torch.zeros(8), y)
    draw = GSADraw(group, group, group, slots=slice(0, 2), warm=True)
    expected = F.cross_entropy(logits[0][:, :2], y) + 2 * F.cross_entropy(logits[1][:, :2], y)
    torch.testing.assert_close(gsa.loss(peer, draw).loss, expected)  # type: ignore[arg-type]


def test_gsa_takes_labels_of_a_task_that_lie_apart() -> None:
    gsa = GSA(StreamInfo(boundaries=True))
    gsa.stream = StreamInfo(num_classes=4, grows=True, boundaries=True)
    logits = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
    peer = Parrot(logits[0], logits[1])
    peer.buffers = {name: torch.full((4,), 7.0) for name in ("count", "own", "others")}
    y, slots = torch.tensor([0, 3, 0, 3] * 2), torch.tensor([0, 3])
    group = LabelledImages(torch.zeros(8), y)
    draw = GSADraw(group, group, group, slots=slots, warm=True)
    within = F.cross_entropy(logits[0][:, slots], torch.tensor([0, 1] * 4))
    expected = within + 2 * F.cross_entropy(logits[1], y)
    torch.testing.assert_close(gsa.loss(peer, draw).loss, expected)  # type: ignore[arg-type]


class TestERACEActiveClasses:
    labels, seen = torch.tensor([2, 3, 2, 3]), torch.tensor([1, 1, 1, 1, 0, 0]).bool()

    def test_by_the_paper_all_unseen_classes_compete(self) -> None:
        active_classes = ERACE(StreamInfo(num_classes=6)).active_classes(self.labels, self.seen)
        assert active_classes.tolist() == [False, False, True, True, True, True]

    def test_in_the_authors_code_only_ids_below_the_batch_size_do(self) -> None:
        method = ERACE(StreamInfo(num_classes=6), unseen="first_batch_ids")
        active_classes = method.active_classes(self.labels, self.seen)
        assert active_classes.tolist() == [False, False, True, True, False, False]

    def test_the_authors_rule_looks_at_the_ids_of_the_data_set(self) -> None:
        stream = StreamInfo(num_classes=6, class_ids=(5, 4, 3, 2, 1, 0))
        active_classes = ERACE(stream, unseen="first_batch_ids").active_classes(
            self.labels, self.seen
        )
        assert active_classes.tolist() == [False, False, True, True, True, True]


class TestFeedbackCounts:
    labels = torch.tensor([0, 1, 1, 3, 0, 3, 1, 0])
    z1 = F.normalize(torch.sin(0.8 * torch.arange(48)).reshape(8, 6), dim=1)
    z2 = F.normalize(torch.cos(0.5 * torch.arange(48)).reshape(8, 6), dim=1)
    prototypes = (class_means(z1, labels, 4) + class_means(z2, labels, 4)) / 2

    def test_they_equal_the_authors(self) -> None:
        rng = torch.Generator()
        assert pair_counts(self.prototypes, 16, rng) == [(0, 1, 3), (0, 3, 3), (1, 3, 10)]

    def test_rounding_is_evened_out_to_the_total(self) -> None:
        rng = torch.Generator().manual_seed(0)
        for total in range(1, 40):
            assert sum(n for *_, n in pair_counts(self.prototypes, total, rng)) == total

    def test_one_class_makes_no_pair(self) -> None:
        assert pair_counts(torch.eye(4)[:, :1] * torch.ones(4, 6), 16, torch.Generator()) == []
