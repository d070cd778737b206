"""Hints at drift and temperatures of answers, each against a plain twin."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from open_streams import arriving, batches, learnt, new
from torch import Tensor

from peerlearn import OpenLearner, UserError
from peerlearn.learner.snapshot import Snapshot
from peerlearn.metrics.calibration import TEMPERATURES, RecentSureness, reliability
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


def synthetic(
    count: int, temperature: float, seed: int = 0, classes: int = 5
) -> tuple[Tensor, Tensor]:
    """Logits of which the labels are drawn once they are divided by a temperature."""
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, classes, generator=rng)
    y = (logits / temperature).softmax(1).multinomial(1, generator=rng)[:, 0]
    return logits, y


def plain_fit(answers: list[tuple[Tensor, int]], window: int) -> tuple[float, float, float]:
    """Temperature, error before and after, from all answers, weighed anew; with 15 bins."""
    weights = [(1 - 1 / window) ** (len(answers) - 1 - k) for k in range(len(answers))]

    def loss(temperature: float) -> float:
        each = [-(z.double() / temperature).log_softmax(0)[y] for z, y in answers]
        return float(sum(w * one for w, one in zip(weights, each, strict=True)))

    def error(temperature: float) -> float:
        off = [0.0] * 15
        for w, (z, y) in zip(weights, answers, strict=True):
            p = (z.double() / temperature).softmax(0)
            sure, right = float(p.max()), float(p.argmax() == y)
            off[math.ceil(sure * 15) - 1] += w * (right - sure)
        return sum(map(abs, off)) / sum(weights)

    best = min(TEMPERATURES, key=loss)
    return best, error(1.0), error(best)


class TestTemperature:
    @pytest.mark.parametrize("window", [1, 5, 1000])
    def test_a_plain_twin_that_keeps_all_answers_finds_the_same(self, window: int) -> None:
        logits, y = synthetic(60, 2.0)
        recent, given = RecentSureness(window), list[tuple[Tensor, int]]()
        for start, end in ((0, 1), (1, 1), (1, 20), (20, 23), (23, 60)):  # batches of any size
            recent.add(logits[start:end], y[start:end])
            given += zip(logits[start:end], y[start:end].tolist(), strict=True)
            found = recent.fit()
            assert (found.temperature, found.before, found.after) == pytest.approx(
                plain_fit(given, window)
            )
        assert found.images == round(sum((1 - 1 / window) ** k for k in range(60)))

    def test_classes_may_come_on_the_way(self) -> None:
        recent, given = RecentSureness(100), list[tuple[Tensor, int]]()
        for classes in (1, 2, 5, 9):
            logits, y = synthetic(30, 3.0, classes=classes)
            recent.add(logits, y)
            given += zip(logits, y.tolist(), strict=True)
        assert recent.fit()[:3] == pytest.approx(plain_fit(given, 100))

    @pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 6.0])
    def test_a_known_one_is_found_again(self, temperature: float) -> None:
        recent = RecentSureness(20_000)
        recent.add(*synthetic(20_000, temperature))
        assert recent.fit().temperature == pytest.approx(temperature, rel=0.15)

    @pytest.mark.parametrize("temperature", [0.4, 3.0, 6.0])
    def test_answers_to_other_images_are_as_often_right_as_they_are_sure(
        self, temperature: float
    ) -> None:
        recent = RecentSureness(5000)
        recent.add(*synthetic(5000, temperature))
        logits, y = synthetic(5000, temperature, seed=1)
        before = reliability(logits.softmax(1), y).error
        after = reliability((logits / recent.fit().temperature).softmax(1), y).error
        assert after < before / 3
        assert after < 0.03

    def test_what_was_long_ago_is_forgotten(self) -> None:
        recent = RecentSureness(200)
        for temperature in (6.0, 0.4):
            recent.add(*synthetic(3000, temperature))
        assert recent.fit().temperature == pytest.approx(0.4, rel=0.2)

    def test_all_right_is_as_cold_as_it_gets_and_all_wrong_as_hot(self) -> None:
        logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
        for label, expected in ((0, TEMPERATURES[0]), (1, TEMPERATURES[-1])):
            recent = RecentSureness(10)
            recent.add(logits, torch.tensor([label, label]))
            assert recent.fit().temperature == expected

    @pytest.mark.parametrize("logits", [torch.randn(6, 1), torch.zeros(6, 3), torch.zeros(0, 3)])
    def test_where_none_is_better_it_is_one(self, logits: Tensor) -> None:
        recent = RecentSureness(10)
        recent.add(logits, torch.zeros(len(logits), dtype=torch.int64))
        assert recent.fit().temperature == 1.0

    def test_half_precision_is_enough_to_ask(self) -> None:
        logits, y = synthetic(2000, 2.0)
        half, whole = RecentSureness(2000), RecentSureness(2000)
        half.add(logits.bfloat16(), y)
        whole.add(logits, y)
        assert half.fit().temperature == whole.fit().temperature


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
    def test_fits_what_was_answered_before_it_was_learnt(self) -> None:
        learner, plain = new(window=200), RecentSureness(200)
        for x, labels in arriving(40):
            if learner.classes:
                rows = [k for k, label in enumerate(labels) if label in learner.classes]
                y = torch.tensor([learner.classes.index(labels[k]) for k in rows])
                plain.add(learner.learner.logits(x)[rows], y)
            learner.learn(x, labels)
        found = learner.calibrate()
        assert found == plain.fit()
        assert found.temperature == learner.temperature != 1

    def test_asks_each_image_only_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        learner, asked, logits = learnt(), list[int](), Snapshot.logits

        def counted(own: Snapshot, x: Tensor, *rest: Any) -> Tensor:
            asked.append(len(x))
            return logits(own, x, *rest)

        monkeypatch.setattr(Snapshot, "logits", counted)
        learner.learn(*batches(1)[0])
        assert asked == [6]

    def test_answers_that_are_not_finite_count_for_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner, before = learnt(count=20), learnt(count=20).calibrate()
        with monkeypatch.context() as patch:
            nothing = lambda _, x, *_rest: torch.full((len(x), 3), math.nan)  # noqa: E731
            patch.setattr(Snapshot, "logits", nothing)
            learner.learn(*batches(1)[0])
        assert learner.calibrate() == before

    def test_changes_how_sure_answers_are_and_neither_which_nor_what_is_learnt(self) -> None:
        plain, learner = learnt(count=20), learnt(count=20)
        x, labels = batches(1, seed=5)[0]
        learner.calibrate()
        assert learner.temperature != 1
        assert learner.predict(x) == plain.predict(x)
        logits = plain.learner.logits(x)
        expected = (logits / learner.temperature).softmax(1)
        torch.testing.assert_close(learner.predict_proba(x), expected)
        assert learner.learn(x, labels) == plain.learn(x, labels)

    def test_a_second_time_begins_from_the_logits_and_not_from_the_first(self) -> None:
        learner = learnt(count=20)
        assert learner.calibrate() == learner.calibrate()

    def test_a_single_class_leaves_answers_as_they_are(self) -> None:
        learner = new()
        for x, _ in batches(20):
            learner.learn(x, ["cat"] * 6)
        assert learner.calibrate().temperature == 1.0

    def test_is_refused_before_there_is_something_to_fit(self) -> None:
        with pytest.raises(UserError, match="nothing has been learnt yet"):
            new().calibrate()
        with pytest.raises(UserError, match=r"answers to 6 images .* until there are 100"):
            learnt(count=2).calibrate()
        with pytest.raises(UserError, match=r"with a window of as many or more"):
            learnt(count=30, window=99).calibrate()
        with pytest.raises(UserError, match="window=0 no image is predicted"):
            learnt(window=0).calibrate()
