"""Answers while a step is under way: of one state, at once, and without a trace."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from conftest import Build, same, tensors
from torch import Tensor, nn

from peerlearn import ClassStream, OnlineLearner, StreamInfo, UserError, WithHead
from peerlearn.distill import distillation_of
from peerlearn.memory.reservoir import Reservoir
from peerlearn.methods import ER
from peerlearn.methods.interface import Method
from peerlearn.nets import small_net

PATIENCE = 60  # seconds; nothing here takes one


class Halted:
    """A moment within a step at which it waits to be told to go on."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.calls = 0

    def wait(self) -> None:
        self.reached.set()
        assert self.go_on.wait(PATIENCE)


@pytest.fixture
def halted() -> Iterator[Halted]:
    moment = Halted()
    yield moment
    moment.go_on.set()  # whatever was asserted, nobody is left waiting


def halting(method: Method[Any], moment: Halted, call: int) -> None:
    """Let a method wait after its loss has been computed for the so manieth time from now on."""
    loss = method.loss

    def waiting(peer: Any, draw: Any) -> Any:
        outcome = loss(peer, draw)
        moment.calls += 1
        if moment.calls == call:
            moment.wait()
        return outcome

    method.loss = waiting  # type: ignore[method-assign]


def everything(learner: OnlineLearner, x: Tensor) -> list[Tensor]:
    """All that can be asked."""
    said = [learner.logits(x), learner.features(x), learner.predict_ncm(x)]
    for who in learner.sources:
        answers = learner.snapshot(who).outputs(x)
        assert answers.features is not None
        said += [*answers.logits, answers.features, learner.predict(x, who)]
    return said


def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize(
    ("name", "updates", "call"),
    [
        ("er", 1, 1),
        ("er+ccldc", 1, 2),  # one peer has computed, the other is about to
        ("er+ema-chain", 1, 1),
        ("er+gwm", 1, 2),
        ("derpp+mkd", 1, 1),
        ("onpro", 1, 1),
        ("er+ema", 3, 3),  # weights have moved twice
    ],
)
def test_a_step_that_takes_long_keeps_nobody_waiting(
    name: str, updates: int, call: int, asked_before: bool, halted: Halted,
    build: Build, stream: ClassStream,
) -> None:  # fmt: skip
    learner, twin = (build(name, updates=updates, memory=30) for _ in range(2))
    x, batches = stream.test_sets[0].x[:8], list(stream.tasks[0])[:4]
    for batch in batches[:3]:
        learner.learn(*batch)
        twin.learn(*batch)
    before = everything(twin, x)
    if asked_before:
        everything(learner, x)
    halting(learner.method, halted, call)
    step = threading.Thread(target=learner.learn, args=batches[3])
    step.start()
    assert halted.reached.wait(PATIENCE)
    assert equal(everything(learner, x), before)  # this thread is not the one that learns
    halted.go_on.set()
    step.join(PATIENCE)
    twin.learn(*batches[3])
    assert equal(everything(learner, x), everything(twin, x))
    assert not equal(everything(learner, x), before)
    assert same(tensors(learner), tensors(twin))
    assert learner.cost == twin.cost


def test_the_end_of_a_task_keeps_nobody_waiting(
    halted: Halted, build: Build, stream: ClassStream
) -> None:
    learner, x = build("ocm"), stream.test_sets[0].x[:8]
    for batch in list(stream.tasks[0])[:2]:
        learner.learn(*batch)
    before = everything(learner, x)
    end_task = learner.method.end_task

    def waiting(peer: Any) -> None:
        end_task(peer)
        with torch.no_grad():
            next(peer.model.parameters()).mul_(2)
        halted.wait()

    learner.method.end_task = waiting  # type: ignore[method-assign]
    step = threading.Thread(target=learner.end_task)
    step.start()
    assert halted.reached.wait(PATIENCE)
    assert equal(everything(learner, x), before)
    halted.go_on.set()
    step.join(PATIENCE)
    assert not equal(everything(learner, x), before)


def test_a_copy_stays_what_it_was_while_learning_goes_on(build: Build, stream: ClassStream) -> None:
    learner, x = build("er+ccldc", memory=30), stream.test_sets[0].x[:8]
    batches = list(stream.tasks[0])[:6]
    learner.learn(*batches[0])
    frozen = learner.snapshot(memory=True)
    before = [frozen.logits(x), frozen.features(x)]
    for batch in batches[1:]:
        learner.learn(*batch)
    assert equal([frozen.logits(x), frozen.features(x)], before)
    assert frozen.class_means().means.isfinite().all()  # of the memory of then
    assert len(frozen.memory_features().labels) == len(batches[0].y)
    assert learner.snapshot() is not frozen
    with pytest.raises(UserError, match=r"take learner\.snapshot\(memory=True\)"):
        learner.snapshot().class_means()


def test_between_two_steps_all_answers_come_from_one_copy(
    build: Build, stream: ClassStream
) -> None:
    learner, x = build("er"), stream.test_sets[0].x[:4]
    learner.learn(*next(iter(stream.tasks[0])))
    frozen = learner.snapshot()
    learner.predict(x)
    learner.state_dict()
    assert learner.snapshot() is frozen


@pytest.mark.parametrize("asked_before", [False, True])
def test_after_a_step_that_broke_off_while_weights_moved_the_state_before_it_predicts(
    asked_before: bool, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, twin, x = build("er+ccldc"), build("er+ccldc"), stream.test_sets[0].x[:4]
    batches = list(stream.tasks[0])
    for batch in batches[:2]:
        learner.learn(*batch)
        twin.learn(*batch)
    before = twin.logits(x)
    if asked_before:
        assert torch.equal(learner.logits(x), before)

    def breaks() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner.peers[1], "step", breaks)  # the first has moved
    with pytest.raises(KeyboardInterrupt):
        learner.learn(*batches[2])
    assert torch.equal(learner.logits(x), before)


class Asking(ER):
    """Asks its own learner while it learns."""

    name = "asking"
    ask: Callable[[], object] = staticmethod(lambda: None)

    def loss(self, peer: Any, draw: Any) -> Any:
        self.ask()
        return super().loss(peer, draw)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_method_that_asks_its_own_learner_gets_the_state_before_the_step(
    at_once: int, stream: ClassStream
) -> None:
    method = Asking(StreamInfo(num_classes=4))
    chain = distillation_of("ccldc", "er")
    learner = OnlineLearner(
        method, lambda: small_net(4, width=4), chain, memory=20, peers_at_once=at_once
    )
    x, said = stream.test_sets[0].x[:4], list[Tensor]()
    batches = list(stream.tasks[0])
    learner.learn(*batches[0])
    before = learner.logits(x)
    Asking.ask = staticmethod(lambda: said.append(learner.logits(x)))
    try:
        learner.learn(*batches[1])
    finally:
        Asking.ask = staticmethod(lambda: None)
    assert said
    assert all(torch.equal(one, before) for one in said)


class Keeping(nn.Module):
    """An encoder that keeps its last result, and returns what it kept."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x.mean(dim=(2, 3)))
        time.sleep(0.001)
        return self.last


def test_networks_that_keep_results_answer_several_threads_at_once(
    build: Build, stream: ClassStream
) -> None:
    learner = build("er", net=lambda: WithHead(Keeping(), 3, 4))
    learner.learn(*next(iter(stream.tasks[0])))
    parts = stream.test_sets[0].x.split(10)
    expected = [learner.logits(part) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(10):
            assert equal([*pool.map(learner.logits, parts)], expected)


def test_a_memory_that_asks_its_learner_gets_the_state_before_the_step(
    stream: ClassStream,
) -> None:
    x, said = stream.test_sets[0].x[:4], list[Tensor]()

    class Curious(Reservoir):
        name = "curious"

        def slots(self, rows: Any, rng: Any) -> list[int]:
            if self.seen:
                said.append(learner.logits(x))
            return super().slots(rows, rng)

    info = StreamInfo(num_classes=4)
    learner = OnlineLearner(ER(info), lambda: small_net(4, width=4), memory=Curious(20))
    first, second = list(stream.tasks[0])[:2]
    learner.learn(*first)
    before = learner.logits(x)
    learner.learn(*second)
    assert torch.equal(said[0], before)
    assert not torch.equal(learner.logits(x), before)


def test_a_thousand_answers_while_it_learns(build: Build, stream: ClassStream) -> None:
    """None is mixed, none is lost, and what is learnt is the same to the bit."""
    alone, watched = build("er+ccldc", memory=30), build("er+ccldc", memory=30)
    x, batches = stream.test_sets[0].x[:2], list(stream.tasks[0])
    states = [alone.logits(x)]
    for batch in batches:
        alone.learn(*batch)
        states.append(alone.logits(x))
    said: list[list[Tensor]] = [[] for _ in range(8)]
    learning = threading.Event()

    def ask(own: list[Tensor]) -> None:
        assert learning.wait(PATIENCE)
        own += [watched.logits(x) for _ in range(125)]

    threads = [threading.Thread(target=ask, args=(own,)) for own in said]
    for thread in threads:
        thread.start()
    for number, batch in enumerate(batches):
        watched.learn(*batch)
        if number == 0:
            learning.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert [len(own) for own in said] == [125] * 8
    for own in said:  # each thread sees time go forward
        seen = [next(i for i, s in enumerate(states) if torch.equal(one, s)) for one in own]
        assert seen == sorted(seen)
    assert same(tensors(alone), tensors(watched))
    assert alone.cost == watched.cost
