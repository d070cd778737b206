"""Hints at drift against a plain twin, and temperatures against a search of every one."""

import random
from pathlib import Path

import pytest
import torch
from open_streams import batches, learnt, new
from torch import Tensor
from torch.nn import functional as F

from peerlearn import OpenLearner, UserError
from peerlearn.metrics.calibration import COLDEST, HOTTEST, fitted_temperature, reliability
from peerlearn.metrics.drift import MARGIN, THRESHOLD, DriftHint


def answers(chance_of_error: float, count: int, rng: random.Random) -> list[bool]:
    return [rng.random() >= chance_of_error for _ in range(count)]


def plain_hints(right: list[bool]) -> list[int]:
    """Page and Hinkley's test with all sums taken anew for each image."""
    hints, errors = list[int](), list[float]()
    means, excess = list[float](), list[float]()
    for number, one in enumerate(right, start=1):
        errors.append(float(not one))
        means.append(sum(errors) / len(errors))
        excess.append(sum(e - m - MARGIN for e, m in zip(errors, means, strict=True)))
        if excess[-1] - min([0.0, *excess]) > THRESHOLD:
            hints.append(number)
            errors, means, excess = [], [], []
    return hints


class TestDrift:
    @pytest.mark.parametrize("seed", range(3))
    def test_a_plain_twin_gives_the_same_hints(self, seed: int) -> None:
        rng = random.Random(seed)
        phases = ((0.2, 200), (0.9, 80), (0.1, 500), (0.8, 200), (0.3, 100))
        right = [one for chance, count in phases for one in answers(chance, count, rng)]
        hint = DriftHint()
        rest = right
        while rest:  # in batches of any size
            count = rng.randint(1, 40)
            hint.add(rest[:count])
            rest = rest[count:]
        assert hint.at == plain_hints(right)
        assert len(hint.at) >= 2
        assert hint.seen == len(right)

    @pytest.mark.parametrize("chance", [0.1, 0.3, 0.5, 0.7])
    def test_a_steady_stream_has_no_hint(self, chance: float) -> None:
        for seed in range(20):
            hint = DriftHint()
            hint.add(answers(chance, 5000, random.Random(seed)))
            assert hint.at == [], seed

    @pytest.mark.parametrize(("before", "after", "within"), [(0.3, 0.6, 220), (0.1, 0.9, 80)])
    def test_a_jump_of_errors_has_one_soon(self, before: float, after: float, within: int) -> None:
        for seed in range(20):
            rng, hint = random.Random(seed), DriftHint()
            hint.add(answers(before, 2000, rng))
            hint.add(answers(after, within, rng))
            assert len(hint.at) == 1, seed
            assert 2000 < hint.at[0] <= 2000 + within

    def test_fewer_errors_are_none(self) -> None:
        hint, rng = DriftHint(), random.Random(0)
        hint.add(answers(0.9, 1000, rng))
        hint.add(answers(0.1, 4000, rng))
        assert hint.at == []

    def test_it_begins_anew_after_a_hint(self) -> None:
        hint, fresh = DriftHint(), DriftHint()
        hint.add([True] * 100)
        hint.add([False] * 50)
        (at,) = hint.at
        for one in (hint, fresh):
            one.add([False] * (150 - at) if one is fresh else [])
            one.add(answers(0.4, 300, random.Random(1)))
        assert (hint.count, hint.mean, hint.sum) == (fresh.count, fresh.mean, fresh.sum)

    def test_a_learner_counts_what_was_predicted_before_it_was_learnt(self, tmp_path: Path) -> None:
        learner, plain = new(), DriftHint()
        stream = [*batches(12, seed=1), *batches(12, classes=9, seed=2)]  # the world changes
        for number, (x, labels) in enumerate(stream):
            said = learner.predict(x) if learner.classes else [object()] * len(labels)
            learner.learn(x, labels)
            plain.add([one == label for one, label in zip(said, labels, strict=True)])
            if number in (5, 12, 17):
                learner.save(tmp_path)
                learner = OpenLearner.restore(tmp_path)
            assert vars(learner._drift) == vars(plain)
        assert learner.drift_hints == plain.at
        learner.drift_hints.append(-1)  # a list of the caller's own
        assert learner.drift_hints == plain.at

    def test_hints_outlive_a_checkpoint(self, tmp_path: Path) -> None:
        learner = learnt()
        learner._prequential.add([True] * 200 + [False] * 60)
        learner._drift.add([True] * 200 + [False] * 60)
        assert len(learner.drift_hints) == 1
        learner.save(tmp_path)
        assert OpenLearner.restore(tmp_path).drift_hints == learner.drift_hints


def synthetic(count: int, temperature: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits of which the labels are drawn once they are divided by a temperature."""
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, 5, generator=rng)
    y = (logits / temperature).softmax(1).multinomial(1, generator=rng)[:, 0]
    return logits, y


class TestTemperature:
    @pytest.mark.parametrize("seed", range(4))
    def test_a_fine_grid_finds_no_better_one(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        logits = 5 * torch.rand(1, generator=rng) * torch.randn(40, 3 + seed, generator=rng)
        y = torch.randint(3 + seed, (40,), generator=rng)
        y[::2] = logits[::2].argmax(1)
        grid = torch.linspace(1 / HOTTEST, 1 / COLDEST, 20_001, dtype=torch.float64)
        losses = [float(F.cross_entropy(f * logits.double(), y)) for f in grid[::20].tolist()]
        near = grid[::20][losses.index(min(losses))]
        fine = [f for f in grid.tolist() if abs(f - near) <= 0.03]
        by_factor = {f: float(F.cross_entropy(f * logits.double(), y)) for f in fine}
        best = min(by_factor, key=by_factor.__getitem__)
        found = fitted_temperature(logits, y)
        assert 1 / found == pytest.approx(best, abs=2e-3)
        assert float(F.cross_entropy(logits.double() / found, y)) <= by_factor[best] + 1e-9

    @pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 6.0])
    def test_a_known_one_is_found_again(self, temperature: float) -> None:
        logits, y = synthetic(20_000, temperature)
        assert fitted_temperature(logits, y) == pytest.approx(temperature, rel=0.05)

    @pytest.mark.parametrize("temperature", [0.4, 3.0, 6.0])
    def test_answers_to_other_images_are_as_often_right_as_they_are_sure(
        self, temperature: float
    ) -> None:
        fitted = fitted_temperature(*synthetic(5000, temperature))
        logits, y = synthetic(5000, temperature, seed=1)
        before = reliability(logits.softmax(1), y).error
        after = reliability((logits / fitted).softmax(1), y).error
        assert after < before / 3
        assert after < 0.03

    def test_all_right_is_as_cold_as_it_gets_and_all_wrong_as_hot(self) -> None:
        logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
        assert fitted_temperature(logits, torch.tensor([0, 0])) == pytest.approx(COLDEST)
        assert fitted_temperature(logits, torch.tensor([1, 1])) == pytest.approx(HOTTEST)

    @pytest.mark.parametrize("logits", [torch.randn(6, 1), torch.zeros(6, 3)])
    def test_where_none_is_better_it_is_one(self, logits: Tensor) -> None:
        assert fitted_temperature(logits, torch.zeros(6, dtype=torch.int64)) == 1.0

    def test_half_precision_is_enough_to_ask(self) -> None:
        logits, y = synthetic(2000, 2.0)
        found = fitted_temperature(logits.bfloat16(), y)
        assert found == pytest.approx(fitted_temperature(logits, y), rel=0.01)


def test_the_calibration_error_is_that_of_a_plain_loop() -> None:
    logits, y = synthetic(500, 2.0)
    probabilities = logits.softmax(1)
    total = 0.0
    for number in range(15):
        inside = [
            (max(row), row.index(max(row)) == label)
            for row, label in zip(probabilities.double().tolist(), y.tolist(), strict=True)
            if number / 15 < max(row) <= (number + 1) / 15
        ]
        if inside:
            sure = sum(confidence for confidence, _ in inside) / len(inside)
            right = sum(said for _, said in inside) / len(inside)
            total += len(inside) / 500 * abs(right - sure)
    assert reliability(probabilities, y).error == pytest.approx(total)


class TestCalibrate:
    def test_fits_half_of_the_memory_and_judges_the_rest(self) -> None:
        learner = learnt(count=8)
        memory = learner.learner.memory
        logits, y = learner.learner.logits(memory["x"]), memory["y"]
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        logits, y = logits[order], y[order]
        found = learner.calibrate()
        assert found.temperature == fitted_temperature(logits[::2], y[::2]) == learner.temperature
        assert found.images == len(y[::2]) == 10
        held, labels = logits[1::2], y[1::2]
        assert found.before == reliability(held.softmax(1), labels).error
        assert found.after == reliability((held / found.temperature).softmax(1), labels).error

    def test_changes_how_sure_answers_are_and_neither_which_nor_what_is_learnt(self) -> None:
        plain, learner = learnt(), learnt()
        x, labels = batches(1, seed=5)[0]
        learner.calibrate()
        assert learner.temperature != 1
        assert learner.predict(x) == plain.predict(x)
        logits = plain.learner.logits(x)
        expected = (logits / learner.temperature).softmax(1)
        torch.testing.assert_close(learner.predict_proba(x), expected)
        assert learner.learn(x, labels) == plain.learn(x, labels)

    def test_a_second_time_begins_from_the_logits_and_not_from_the_first(self) -> None:
        learner = learnt()
        assert learner.calibrate() == learner.calibrate()

    def test_a_single_class_leaves_answers_as_they_are(self) -> None:
        learner = new()
        learner.learn(batches(1)[0][0], ["cat"] * 6)
        assert learner.calibrate().temperature == 1.0

    def test_is_refused_before_there_is_something_to_fit(self) -> None:
        with pytest.raises(UserError, match="nothing has been learnt yet"):
            new().calibrate()
        empty = new(memory=0)
        empty.learn(*batches(1)[0])
        with pytest.raises(UserError, match="too few images"):
            empty.calibrate()
