"""Evaluation inside tasks, and predictions before learning, against plain loops."""

import json
from pathlib import Path

import pytest
import torch
from command import run_small
from conftest import Build, same, tensors

from peerlearn import ClassStream, build_learner, small_net, toy_images
from peerlearn.data.images import ImageSet
from peerlearn.experiment.curve import Curve
from peerlearn.experiment.settings import EvaluationSettings
from peerlearn.metrics import Point
from peerlearn.records.read import read_run, read_runs
from peerlearn.records.schema import SavedCurve
from peerlearn.results.compare import compare
from peerlearn.stream.iblurry import IBlurryStream

ALONG = ("--net", "small", "--evaluate-every", "20", "--probe", "3", "--prequential", "25")


def place_of(out: Path) -> Path:
    (found,) = out.rglob("seed0")
    return found


def right(learner, tests: list[ImageSet], wanted: set[int]) -> list[bool]:  # type: ignore[no-untyped-def]
    """Whether each test image of these classes is predicted, one at a time."""
    return [
        int(learner.predict(x[None])) == int(y)
        for test in tests
        for x, y in zip(test.x, test.y, strict=True)
        if int(y) in wanted
    ]


def mean(values: list[bool]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("kind", [ClassStream, IBlurryStream])
def test_points_and_predictions_are_those_of_a_plain_loop(kind: type) -> None:
    stream = kind(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=1)
    learner = build_learner("er_ace", stream.info, memory=20, net=lambda: small_net(4, width=4))
    settings = EvaluationSettings(evaluate_every=25, probe=10**6)
    curve = Curve(settings, learner, stream.test_sets, window=30)
    met: set[int] = set()
    answers: list[bool] = []
    expected: list[Point] = []
    for task in stream:
        for number, batch in enumerate(task, 1):
            answers += [
                int(a) == int(b) for a, b in zip(learner.predict(batch.x), batch.y, strict=True)
            ]
            curve.before(batch)
            learner.learn(*batch)
            met |= set(batch.y.tolist())
            last, due = number == len(task), len(answers) // 25 > (len(answers) - 10) // 25
            if last:
                tests = torch.cat([test.x for test in stream.test_sets[: task.index + 1]])
                curve.at_end(task.index, learner.predict(tests))
            else:
                curve.inside(task.index)
            if last or due:
                tasks = tuple(
                    mean(right(learner, [t], set(range(4))))
                    for t in stream.test_sets[: task.index + 1]
                )
                classes = tuple(
                    mean(right(learner, stream.test_sets, {k})) if k in met else None
                    for k in range(4)
                )
                expected.append(
                    Point(
                        images=len(answers),
                        grid=due,
                        pool=mean(right(learner, stream.test_sets, met)),
                        tasks=tasks,
                        classes=classes if last else None,
                        prequential=mean(answers),
                        recent=mean(answers[-30:]),
                    )
                )
    assert curve.points == expected
    assert {point.grid for point in expected} == {True}
    assert curve.how == {"every": 25, "probe": 10**6, "window": 30}


def test_asking_moves_nothing_of_the_learner(build: Build, stream: ClassStream) -> None:
    learner = build("er+ccldc")
    curve = Curve(EvaluationSettings(evaluate_every=10), learner, stream.test_sets, window=10)
    batch = next(iter(stream.tasks[0]))
    learner.learn(*batch)
    before, chance, cost = tensors(learner), torch.get_rng_state(), learner.cost
    curve.before(batch)
    assert curve.inside(0)
    assert same(tensors(learner), before)
    assert torch.equal(torch.get_rng_state(), chance)
    assert learner.cost == cost


def test_the_probe_is_the_same_for_all_methods_and_a_smaller_one_is_part_of_it(
    build: Build, stream: ClassStream
) -> None:
    def pixels(name: str, probe: int) -> set[bytes]:
        settings = EvaluationSettings(evaluate_every=10, probe=probe)
        curve = Curve(settings, build(name), stream.test_sets, window=0)
        return {x.numpy().tobytes() for test in curve._sample for x in test.x}

    assert pixels("er", 4) == pixels("er_ace+ccldc", 4)
    assert pixels("er", 2) < pixels("er", 4)
    assert len(pixels("er", 2)) == 8


def test_its_state_is_all_of_it(build: Build, stream: ClassStream) -> None:
    learner, settings = build("er"), EvaluationSettings(evaluate_every=30)
    one, other = (Curve(settings, learner, stream.test_sets, window=15) for _ in range(2))
    for number, batch in enumerate(stream.tasks[0]):
        if number == 5:
            other.restore(SavedCurve(**one.state()), one.points)
        one.before(batch)
        one.inside(0)
        if number >= 5:
            other.before(batch)
            other.inside(0)
    assert other.points == one.points
    assert other.state() == one.state()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("along")
    assert run_small(out, *ALONG) == 0
    return out


class TestARunThatIsEvaluatedInsideTasks:
    def test_learns_the_same_bytes_as_one_that_is_not(self, asked: Path, tmp_path: Path) -> None:
        assert run_small(tmp_path, "--net", "small") == 0
        one, two = place_of(asked), place_of(tmp_path)
        assert one.relative_to(asked) == two.relative_to(tmp_path)
        assert (one / "accuracy.json").read_bytes() == (two / "accuracy.json").read_bytes()
        states = [json.loads((p / "checkpoint/state.json").read_text()) for p in (one, two)]
        assert states[0]["sha256"] == states[1]["sha256"]
        (group,) = compare(read_runs([asked, tmp_path]))
        assert len(group.series) == 1

    def test_has_points_where_they_are_due_and_their_metrics(self, asked: Path) -> None:
        run = read_run(place_of(asked))
        assert [point.images for point in run.points] == [20, 40, 60, 80, 100]
        assert all(point.classes is not None for point in run.points)  # each ends a task
        assert run.summary.along == {"every": 20, "probe": 3, "window": 25}
        pools = [point.pool for point in run.points if point.pool is not None]
        assert run.metrics["A_AUC"] == run.metrics["A_avg"] == pytest.approx(sum(pools) / 5)
        assert run.metrics["A_last"] == pools[-1] == pytest.approx(run.metrics["AA"])
        assert run.metrics["prequential"] == run.points[-1].prequential

    def test_cannot_be_evaluated_otherwise_afterwards(
        self, asked: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_small(asked, *ALONG[:-1], "50") == 2
        assert "--prequential:" in (said := capsys.readouterr().err)
        assert "holds this run with 25; choose another --out" in said
        assert run_small(asked, "--net", "small") == 0  # who asks for nothing is content
        assert "was done before" in capsys.readouterr().err


def test_an_old_name_of_a_metric_is_understood(tmp_path: Path) -> None:
    assert run_small(tmp_path, "--net", "small", method="er") == 0
    path = place_of(tmp_path) / "summary.json"
    path.write_text(path.read_text().replace('"AIA"', '"anytime"'))
    assert read_run(path.parent).metrics["AIA"] is not None
