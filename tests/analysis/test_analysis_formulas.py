"""The formulas of the analyses, each beside a plainer twin or a number made by hand."""

import base64
import io
import math

import pytest
import torch
from PIL import Image

from peerlearn.analysis.confusion import confusion
from peerlearn.analysis.entropy import entropy
from peerlearn.analysis.pictures import one_per_class, overlay, png
from peerlearn.analysis.tsne import same_class_neighbours
from peerlearn.metrics.calibration import reliability


class TestEntropy:
    def test_two_classes_alike_are_log_two(self) -> None:
        assert entropy(torch.zeros(1, 2)).item() == pytest.approx(math.log(2))

    def test_probabilities_of_a_half_a_quarter_and_a_quarter_by_hand(self) -> None:
        logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
        assert entropy(logits).item() == pytest.approx(1.5 * math.log(2))

    def test_certainty_has_none_and_is_a_number(self) -> None:
        assert entropy(torch.tensor([[1e4, -1e4]])).item() == 0.0


def plain_ece(probabilities: torch.Tensor, y: torch.Tensor, bins: int) -> float:
    """As a text book has it: bin by bin, image by image."""
    total = 0.0
    for k in range(bins):
        low, high, sure, right, count = k / bins, (k + 1) / bins, 0.0, 0, 0
        for row, label in zip(probabilities.tolist(), y.tolist(), strict=True):
            confidence = max(row)
            if low < confidence <= high:
                sure, count = sure + confidence, count + 1
                right += row.index(confidence) == label
        if count:
            total += count / len(y) * abs(right / count - sure / count)
    return total


class TestCalibration:
    @pytest.mark.parametrize("seed", range(5))
    def test_ece_is_that_of_a_plain_loop(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        said = torch.randn(200, 4, generator=rng, dtype=torch.float64).mul(2).softmax(dim=1)
        y = torch.randint(4, (200,), generator=rng)
        assert reliability(said, y).error == pytest.approx(plain_ece(said, y, 15), abs=1e-12)

    def test_answers_that_are_always_sure_and_half_wrong_have_one_half(self) -> None:
        said = torch.tensor([[1.0, 0.0]] * 4)
        found = reliability(said, torch.tensor([0, 0, 1, 1]))
        assert found.error == 0.5
        assert found.share.tolist() == [0.0] * 14 + [1.0]

    def test_shares_are_of_all_images_and_an_edge_belongs_to_the_bin_below(self) -> None:
        found = reliability(torch.tensor([[0.5, 0.5], [0.6, 0.4]]), torch.tensor([0, 0]), bins=2)
        assert found.share.tolist() == [0.5, 0.5]


def test_a_confusion_matrix_is_that_of_a_plain_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    y, said = (torch.randint(5, (300,), generator=rng) for _ in range(2))
    found = confusion(y, said, 6)
    for true in range(6):
        row = [s for t, s in zip(y.tolist(), said.tolist(), strict=True) if t == true]
        assert found[true].tolist() == [row.count(k) / max(len(row), 1) for k in range(6)]


def test_neighbours_are_those_of_a_plain_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    features, y = torch.randn(30, 4, generator=rng), torch.randint(3, (30,), generator=rng)
    shares = []
    for i in range(30):
        others = sorted((math.dist(features[i], features[j]), j) for j in range(30) if j != i)
        shares += [int(y[j] == y[i]) for _, j in others[:10]]
    assert same_class_neighbours(features, y) == pytest.approx(sum(shares) / len(shares))


class TestPictures:
    def test_a_picture_comes_back_from_its_text(self) -> None:
        image = torch.randint(256, (3, 5, 7), generator=torch.Generator().manual_seed(0))
        back = Image.open(io.BytesIO(base64.b64decode(png(image / 255))))
        assert back.size == (7, 5)
        assert [*back.getpixel((6, 4))] == image[:, 4, 6].tolist()

    def test_an_overlay_is_red_where_it_is_hot_and_blue_where_not(self) -> None:
        found = overlay(torch.zeros(3, 1, 2), torch.tensor([[0.1, 0.9]]))
        assert found.argmax(dim=0).tolist() == [[2, 0]]

    def test_each_class_is_shown_once(self) -> None:
        y = torch.tensor([3, 3, 1, 0, 1, 2])
        assert y[one_per_class(y, most=10)].tolist() == [3, 1, 0, 2]
