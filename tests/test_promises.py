"""What every method promises, alone and in company."""

from collections.abc import Callable

import pytest
import torch
from conftest import Build, learn_some, same, weights

from peerlearn import METHODS, ClassStream
from peerlearn.learner import PRESETS

Promise = Callable[[str, Build, ClassStream], None]


def same_seed_same_weights(name: str, build: Build, stream: ClassStream) -> None:
    one, two = build(name), build(name)
    assert learn_some(one, stream) == learn_some(two, stream)
    assert same(weights(one), weights(two))


def another_seed_other_weights(name: str, build: Build, stream: ClassStream) -> None:
    one, two = build(name), build(name, seed=1)
    learn_some(one, stream, 2)
    learn_some(two, stream, 2)
    assert not same(weights(one), weights(two))


def global_generators_are_left_alone(name: str, build: Build, stream: ClassStream) -> None:
    before = torch.random.get_rng_state()
    learn_some(build(name), stream, 3)
    assert torch.equal(torch.random.get_rng_state(), before)


def global_generators_decide_nothing(name: str, build: Build, stream: ClassStream) -> None:
    one = build(name)
    learn_some(one, stream, 3)
    with torch.random.fork_rng():
        torch.manual_seed(123)
        two = build(name)
        torch.rand(7)
        learn_some(two, stream, 3)
    assert same(weights(one), weights(two))


def peers_start_different_and_all_learn(name: str, build: Build, stream: ClassStream) -> None:
    learner = build(name)
    before = [weights(learner, i) for i in range(len(learner.peers))]
    learn_some(learner, stream, 3)
    for i, start in enumerate(before):
        assert not same(start, weights(learner, i))
        assert all(not same(weights(learner, i), weights(learner, j)) for j in range(i))


def input_is_left_untouched(name: str, build: Build, stream: ClassStream) -> None:
    batch = next(iter(stream.tasks[0]))
    x, y = batch.x.clone(), batch.y.clone()
    learner = build(name)
    for _ in range(3):
        learner.learn(*batch)
    assert torch.equal(batch.x, x)
    assert torch.equal(batch.y, y)


def a_single_image_is_enough(name: str, build: Build, stream: ClassStream) -> None:
    learner = build(name)
    for batch in stream.tasks[0].batches():
        learner.learn(batch.x[:1], batch.y[:1])
    learner.end_task()
    for batch in stream.tasks[1].batches():
        losses = learner.learn(batch.x[:1], batch.y[:1])
    assert losses


def no_replay_learns_from_the_stream_alone(name: str, build: Build, stream: ClassStream) -> None:
    learner = build(name, memory=0)
    assert all(learn_some(learner, stream, 3))
    assert len(learner.memory) == 0


def prediction_changes_nothing(name: str, build: Build, stream: ClassStream) -> None:
    one, two = build(name), build(name)
    for batch in stream.tasks[0].batches():
        one.learn(*batch)
        two.learn(*batch)
        two.predict(stream.test_sets[0].x)
        two.predict_ncm(stream.test_sets[0].x)
    assert same(weights(one), weights(two))
    assert one.cost == two.cost


def floats_and_bytes_are_the_same_images(name: str, build: Build, stream: ClassStream) -> None:
    one, two = build(name), build(name)
    for batch in list(stream.tasks[0])[:3]:
        one.learn(batch.x, batch.y)
        two.learn((batch.x.float() / 255).numpy(), batch.y.numpy())
    assert same(weights(one), weights(two))


PROMISES = [
    same_seed_same_weights,
    another_seed_other_weights,
    global_generators_are_left_alone,
    global_generators_decide_nothing,
    peers_start_different_and_all_learn,
    input_is_left_untouched,
    a_single_image_is_enough,
    no_replay_learns_from_the_stream_alone,
    prediction_changes_nothing,
    floats_and_bytes_are_the_same_images,
]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
@pytest.mark.parametrize("name", [m + c for m in METHODS for c in ("", "+ccldc")])
def test_every_method_keeps_every_promise(
    name: str, promise: Promise, build: Build, stream: ClassStream
) -> None:
    promise(name, build, stream)


@pytest.mark.parametrize("name", [f"{m}+{c}" for m in METHODS for c in PRESETS])
def test_every_method_runs_in_every_collaboration(
    name: str, build: Build, stream: ClassStream
) -> None:
    learner = build(name)
    losses = learn_some(learner, stream, 3)[-1]
    assert losses["base"] > 0
    assert len(learner.peers) == (2 if "ccl" in name else 1)
