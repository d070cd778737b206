"""Metrics along the stream, against plain loops."""

import math
import random

import pytest

from peerlearn.metrics import ALONG, Point, Prequential, summarise_points


def drawn(tasks: int = 4, inside: int = 3, classes: int = 6, seed: int = 0) -> list[Point]:
    """Points as a run has them: some inside each task, one at its end."""
    chance = random.Random(seed)
    points: list[Point] = []
    for task in range(tasks):
        for k in range(inside + 1):
            last = k == inside
            known = min(classes, 2 * task + 2)
            accuracies = [chance.random() if i < known else None for i in range(classes)]
            points.append(
                Point(
                    images=10 * (len(points) + 1),
                    grid=chance.random() < 0.7 or not last,
                    pool=chance.random(),
                    tasks=tuple(chance.random() for _ in range(task + 1)),
                    classes=tuple(accuracies) if last else None,
                )
            )
    return points


def test_the_area_is_the_mean_over_the_grid_alone() -> None:
    points, total, count = drawn(), 0.0, 0
    for point in points:
        if point.grid:
            total, count = total + (point.pool or 0.0), count + 1
    assert count < len(points)
    assert ALONG["A_AUC"].of(points) == pytest.approx(total / count)
    tasks = [sum(p.tasks) / len(p.tasks) for p in points if p.grid]
    assert ALONG["AAA"].of(points) == pytest.approx(sum(tasks) / count)


def test_ends_of_tasks_and_the_last_point() -> None:
    points = drawn()
    ends = [p.pool for p in points if p.classes is not None and p.pool is not None]
    assert len(ends) == 4
    assert ALONG["A_avg"].of(points) == pytest.approx(sum(ends) / 4)
    assert ALONG["A_last"].of(points) == points[-1].pool


def test_forgetting_is_by_class_and_counts_those_that_were_ever_right() -> None:
    ends = [(0.5, 0.0, None), (0.7, 0.0, 0.4), (0.1, 0.3, 0.6)]
    points = [Point(10 * i, classes=classes) for i, classes in enumerate(ends)]
    # the first has lost 0.6, the second was never right before, the third has won 0.2
    assert ALONG["F_last"].of(points) == pytest.approx((0.6 - 0.2) / 2)
    assert math.isnan(ALONG["F_last"].of(points[:1]))
    assert ALONG["F_last"].of([Point(1, classes=(0.0,)), Point(2, classes=(0.5,))]) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_case_is_that_of_a_plain_loop(seed: int) -> None:
    points = drawn(seed=seed)
    ends = [i for i, point in enumerate(points) if point.classes is not None]
    k = len(ends)
    worst = [min(point.tasks[task] for point in points[ends[task] :]) for task in range(k - 1)]
    expected = points[-1].tasks[-1] / k + (k - 1) / k * (sum(worst) / (k - 1))
    assert ALONG["WC"].of(points) == pytest.approx(expected)


def test_one_task_has_no_old_ones() -> None:
    assert ALONG["WC"].of([Point(5, tasks=(0.1,)), Point(9, tasks=(0.4,), classes=(0.4,))]) == 0.4


def test_prequential_accuracy_is_that_of_a_plain_list() -> None:
    chance = random.Random(0)
    batches = [[chance.random() < 0.4 for _ in range(size)] for size in (10, 10, 3, 10, 7)]
    seen, answers = Prequential(window=12), []
    assert math.isnan(seen.total)
    for batch in batches:
        seen.add(batch)
        answers += batch
        assert seen.total == sum(answers) / len(answers)
        assert seen.recent == sum(answers[-12:]) / len(answers[-12:])


def test_only_what_was_asked_for_is_summed_up() -> None:
    assert summarise_points([]) == {}
    counted = [Point(100, prequential=0.2, recent=0.1), Point(200, prequential=0.3, recent=0.4)]
    assert summarise_points(counted) == {"prequential": 0.3}
    assert summarise_points(drawn()).keys() == ALONG.keys() - {"prequential"}
