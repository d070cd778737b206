"""Evaluation inside tasks, and predictions before learning, against plain loops."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from command import command, mini, run_small
from conftest import Build, same, tensors

from peerlearn import ClassStream, build_learner, small_net, toy_images
from peerlearn.data.images import ImageSet
from peerlearn.devices import generator
from peerlearn.experiment import run as running
from peerlearn.experiment.curve import Curve, sample
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.run import make_learner
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


def test_the_curve_of_a_run_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    flags = {"net": "small", "batch": 3, "evaluate_every": 5, "probe": 2, "prequential": 20}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    assert run_small(tmp_path, *words, method="er") == 0
    small = {"memory": 20, "width": 1, "train_per_class": 10, "test_per_class": 5}
    given = [Given(name, value, "flag", name) for name, value in (small | flags).items()]
    resolved = resolve("er", given)
    stream = resolved.stream.stream(mini(), 0)
    learner, rng = make_learner(resolved, stream), generator(0, "evaluation")
    probe = [sample(test, 2, rng) for test in stream.test_sets]
    answers: list[bool] = []
    met: set[int] = set()
    expected = []
    for task in stream.tasks:
        for number, (x, y) in enumerate(task.batches(), 1):
            before = len(answers)
            answers += (learner.predict(x) == y).tolist()
            learner.learn(x, y)
            met |= set(y.tolist())
            if len(answers) // 5 > before // 5 and number < len(task):
                recent = mean(answers[-20:])
                expected.append(
                    (len(answers), mean(right(learner, probe, met)), mean(answers), recent)
                )
        learner.end_task()
    points = [point for point in read_run(place_of(tmp_path)).points if point.classes is None]
    assert [(p.images, p.pool, p.prequential, p.recent) for p in points] == expected
    assert len(expected) > 10


@pytest.mark.parametrize("words", [("--realtime",), ("--budget", "2e7")])
def test_a_run_that_dies_goes_on_to_the_same_curve_and_cost(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (*ALONG, *words)
    assert run_small(tmp_path / "whole", *given, method="er+mkd") == 0
    save, calls = running.OnlineLearner.save, []

    def dies(learner, *rest):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) % 5 == 0:
            raise SystemExit(9)
        save(learner, *rest)

    monkeypatch.setattr(running.OnlineLearner, "save", dies)
    for _ in range(3):
        with pytest.raises(SystemExit):
            run_small(tmp_path / "killed", *given, method="er+mkd")
    monkeypatch.undo()
    assert run_small(tmp_path / "killed", *given, method="er+mkd") == 0
    whole, killed = (place_of(tmp_path / name) for name in ("whole", "killed"))
    for name in ("accuracy.json", "probes.jsonl"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    costs = [read_run(place).cost for place in (whole, killed)]
    for name in ("flops", "relative", "updates_per_image", "forward_per_image", "image_flops"):
        assert getattr(costs[0], name) == getattr(costs[1], name)
    assert costs[0].updates_per_image is not None
    assert 0 < costs[0].updates_per_image < 0.09
    if words[0] == "--budget":
        assert costs[0].flops is not None
        assert 1e7 < costs[0].flops <= 2e7


def test_what_is_asked_before_a_step_is_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Curve, "before", lambda *_: time.sleep(0.1))
    assert run_small(tmp_path, "--net", "small", method="er") == 0
    cost = read_run(place_of(tmp_path)).cost
    assert cost.eval_seconds is not None
    assert cost.train_seconds is not None
    assert cost.eval_seconds > 1.0 > cost.train_seconds


def test_a_curve_of_which_some_is_lost_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learn, steps = running.OnlineLearner.learn, []

    def interrupted(*given, **named):  # type: ignore[no-untyped-def]
        steps.append(1)
        if len(steps) == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return learn(*given, **named)

    monkeypatch.setattr(running.OnlineLearner, "learn", interrupted)
    assert run_small(tmp_path, *ALONG) == 130
    monkeypatch.undo()
    (place_of(tmp_path) / "probes.jsonl").unlink()
    assert run_small(tmp_path, *ALONG) == 2
    assert "probes.jsonl" in (said := capsys.readouterr().err)
    assert "0 of 3 points are there" in said


def test_several_passes_have_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--realtime"], ["--budget", "1e9"], ["--evaluate-every", "10"]):
        assert command("run", "er", "--epochs", "2", *words) == 2
        assert f"{words[0]}: is for images that pass once" in capsys.readouterr().err


def test_an_old_name_of_a_metric_is_understood(tmp_path: Path) -> None:
    assert run_small(tmp_path, "--net", "small", method="er") == 0
    path = place_of(tmp_path) / "summary.json"
    path.write_text(path.read_text().replace('"AIA"', '"anytime"'))
    assert read_run(path.parent).metrics["AIA"] is not None
