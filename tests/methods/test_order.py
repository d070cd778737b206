"""The order in which batches go forward: no loss depends on it, running statistics do."""

from typing import Any

import pytest
from conftest import Build

from peerlearn import ClassStream


def forwards(learner: Any, monkeypatch: pytest.MonkeyPatch, batch: Any) -> list[tuple[str, int]]:
    """What the first peer's model is asked in a step: logits or features, and of how many."""
    asked: list[tuple[str, int]] = []
    model = learner.peers[0].model
    for name in ("logits", "features"):
        answer = getattr(model, name)

        def noting(x: Any, name: str = name, answer: Any = answer) -> Any:
            asked.append((name, len(x)))
            return answer(x)

        monkeypatch.setattr(model, name, noting)
    learner.learn(*batch)
    return asked


def test_derpp_stream_then_logits_then_labels(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("derpp", alpha=1.0)
    batches = list(stream.tasks[0])
    learner.learn(*batches[0])
    shown: list[float] = []
    answer = learner.peers[0].model.logits

    def noting(x: Any) -> Any:
        shown.append(float(x.sum()))
        return answer(x)

    draws: list[Any] = []
    draw = learner.method.draw
    monkeypatch.setattr(learner.method, "draw", lambda *a: draws.append(draw(*a)) or draws[0])
    monkeypatch.setattr(learner.peers[0].model, "logits", noting)
    learner.learn(*batches[1])
    dark = draws[0]
    expected = [dark.stream.x, dark.dark_x, dark.memory.x]
    assert shown == [float(x.sum()) for x in expected]


def test_onpro_prototypes_before_the_answer_in_the_first_task_and_after_it_later(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("onpro")
    first, second = (list(task) for task in stream.tasks)
    learner.learn(*first[0])
    asked = forwards(learner, monkeypatch, first[1])
    assert asked == [("features", 320), ("features", 20), ("logits", 10)]
    monkeypatch.undo()
    learner.end_task()
    learner.learn(*second[0])
    asked = forwards(learner, monkeypatch, second[1])
    assert [name for name, _ in asked] == ["features", "logits", "features"]


def test_gsa_does_not_count_the_classes_of_a_batch_that_it_skips(
    build: Build, stream: ClassStream
) -> None:
    learner = build("gsa")
    batches = list(stream.tasks[0])
    assert learner.learn(*batches[0]) == {}
    assert not learner.progress.seen.any()
    learner.learn(*batches[1])
    assert learner.progress.seen.any()
