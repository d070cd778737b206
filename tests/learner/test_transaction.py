"""A call that fails leaves no trace: the same call again does what it would have done at first."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import Build, learn_some, same, tensors

import peerlearn
from peerlearn import METHODS, ClassStream, OnlineLearner, StreamInfo, UserError, build_learner
from peerlearn.learner.parallel import FairLock
from peerlearn.learner.transaction import Transaction
from peerlearn.memory import Reservoir
from peerlearn.methods import ER
from peerlearn.nets import ResNet18, small_net

PACKAGE = str(Path(peerlearn.__file__).parent) + os.sep  # its own files, wherever they lie
NAMES = [m + c for m in METHODS for c in ("", "+ccldc")] + ["er+untrained", "derpp+sdc"]


def whole(learner: OnlineLearner) -> dict[str, Any]:
    """Everything that it keeps: a copy of the tensors, and the numbers."""
    others = {k: v for k, v in learner.state_dict().items() if not isinstance(v, torch.Tensor)}
    return {"tensors": tensors(learner), "others": others, "cost": learner.cost}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (
        same(a["tensors"], b["tensors"])
        and a["others"].keys() == b["others"].keys()
        and a["others"] == b["others"]
        and a["cost"] == b["cost"]
    )


@pytest.mark.parametrize(
    ("name", "updates"), [*((name, 1) for name in NAMES), ("er+ccldc", 2), ("gsa", 2), ("ocm", 2)]
)
def test_a_loss_that_is_not_finite_leaves_no_trace(
    name: str, updates: int, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, broken = build(name, updates=updates), build(name, updates=updates)
    learn_some(unbroken, stream, batches=2)
    learn_some(broken, stream, batches=2)
    batch = list(stream.tasks[1])[-1]
    for learner in (unbroken, broken):
        learner.progress = replace(learner.progress, task=1, step=2)  # as if it had not ended
    before = whole(broken)
    loss, calls = broken.method.loss, []

    def poisoned(peer: Any, draw: Any) -> Any:
        calls.append(peer)
        outcome = loss(peer, draw)
        last = len(calls) == updates * len(broken.peers)  # all that could move has moved
        return outcome._replace(loss=outcome.loss * float("nan")) if last else outcome

    monkeypatch.setattr(broken.method, "loss", poisoned)
    with pytest.raises(UserError, match="not finite any more"):
        broken.learn(*batch)
    assert len(calls) == updates * len(broken.peers)
    assert equal(whole(broken), before)
    monkeypatch.undo()
    assert broken.learn(*batch) == unbroken.learn(*batch)
    assert equal(whole(broken), whole(unbroken))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_middle_of_a_step_leaves_no_trace(
    error: type[BaseException],
    build: Build,
    stream: ClassStream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unbroken, broken = build("gsa+ccldc"), build("gsa+ccldc")
    first, second, third = list(stream.tasks[0])[:3]
    for learner in (unbroken, broken):
        learner.learn(*first)
        learner.learn(*second)
    before = whole(broken)

    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(broken.peers[1], "backward", fails)
    with pytest.raises(error):
        broken.learn(*third)
    monkeypatch.undo()
    assert equal(whole(broken), before)
    assert all(p.grad is None for peer in broken.peers for p in peer.model.parameters())
    assert broken.learn(*third) == unbroken.learn(*third)
    assert equal(whole(broken), whole(unbroken))


def test_a_step_that_broke_off_between_two_peers_must_be_mended_by_a_checkpoint(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    learner = build("er+ccldc")
    first, second, third = list(stream.tasks[0])[:3]
    learner.learn(*first)
    learner.learn(*second)
    learner.save(tmp_path)

    def fails() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner.peers[1], "step", fails)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(*third)
    monkeypatch.undo()
    for call in (lambda: learner.learn(*third), lambda: learner.save(tmp_path), learner.end_task):
        with pytest.raises(UserError, match=r"some have and some have not: load\(\) the last"):
            call()
    learner.load(tmp_path)
    assert learner.learn(*third)


def test_with_several_steps_per_batch_nothing_is_torn(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("er+ccldc", updates=2)
    first, second = list(stream.tasks[0])[:2]
    learner.learn(*first)
    before = whole(learner)

    def fails() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner.peers[1], "step", fails)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(*second)
    assert equal(whole(learner), before)


def test_a_step_that_broke_off_while_images_were_stored_must_be_mended_too(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    learner = build("er+ccldc", updates=2)
    first, second = list(stream.tasks[0])[:2]
    learner.learn(*first)
    learner.save(tmp_path)
    keep = learner.memory.keep

    def fails(*rows: Any) -> None:
        keep(*rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(learner.memory, "keep", fails)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(*second)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"while it moved images.*load\(\)"):
        learner.learn(*second)
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="no state"):
        learner.load(tmp_path / "other")
    with pytest.raises(UserError, match="while it moved images"):
        learner.save(tmp_path)
    learner.load(tmp_path)
    assert learner.learn(*second)


def test_a_load_that_fails_does_not_mend_what_is_torn(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    learner = build("er")
    for batch in list(stream.tasks[0])[:2]:
        learner.learn(*batch)
    learner.save(tmp_path)
    learner.changing = "weights"
    load, calls = learner.memory.load_state_dict, []

    def fails_once(*state: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError
        load(*state)

    monkeypatch.setattr(learner.memory, "load_state_dict", fails_once)
    with pytest.raises(UserError, match=r"does not fit \(RuntimeError\)"):
        learner.load(tmp_path)
    assert learner.changing == "weights"
    learner.load(tmp_path)
    assert learner.changing == ""


def test_an_end_of_a_task_that_fails_leaves_no_trace(
    build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("ocm+ccldc")
    for batch in list(stream.tasks[0])[:2]:
        learner.learn(*batch)
    before = whole(learner)

    def fails() -> None:
        raise RuntimeError

    monkeypatch.setattr(learner.peers[1], "keep_previous", fails)
    with pytest.raises(RuntimeError):
        learner.end_task()
    assert equal(whole(learner), before)


def test_a_memory_that_fails_at_the_first_batch_leaves_no_trace(
    stream: ClassStream, tmp_path: Any
) -> None:
    class Moody(Reservoir):
        name = "moody"
        well = False

        def slots(self, rows: Any, rng: Any) -> list[int]:
            slots = super().slots(rows, rng)
            if not self.well:
                raise RuntimeError
            return slots

    memory = Moody(5)
    learner = OnlineLearner(ER(stream.info), lambda: small_net(4), memory=memory)
    batch = next(iter(stream.tasks[0]))
    before = whole(learner)
    with pytest.raises(RuntimeError):
        learner.learn(*batch)
    assert equal(whole(learner), before)
    learner.save(tmp_path)
    learner.load(tmp_path)
    memory.well = True
    learner.learn(*batch)
    assert len(memory) == 5


def test_a_memory_for_which_there_is_no_room_is_refused_before_the_step(build: Build) -> None:
    learner = build("derpp", memory=10**13)
    before = whole(learner)
    with pytest.raises(UserError, match=r"10000000000000 rows .* GB, .*smaller memory"):
        learner.learn(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.tensor([0, 1]))
    assert equal(whole(learner), before)


def test_one_image_that_batch_norm_cannot_take_is_refused_in_words() -> None:
    learner = build_learner(
        "derpp", StreamInfo(num_classes=4), lambda: ResNet18(4, width=4), memory=10
    )
    x, y = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1])
    before = whole(learner)
    with pytest.raises(UserError, match=r"batch of one image of \(3, 8, 8\).*two images or more"):
        learner.learn(x[:1], y[:1])
    assert equal(whole(learner), before)
    learner.learn(x, y)
    before = whole(learner)
    with pytest.raises(UserError, match="a batch of one image"):
        learner.learn(x[:1], y[:1])
    assert equal(whole(learner), before)


def test_what_a_method_stores_without_saying_so_is_refused(stream: ClassStream) -> None:
    class Silent(ER):
        name = "silent"

        def loss(self, peer: Any, draw: Any) -> Any:
            return super().loss(peer, draw)._replace(store={"age": torch.zeros(10)})

    class Wrong(Silent):
        name = "wrong"
        stores: ClassVar[Any] = {"age": (3,)}

    learner = OnlineLearner(Silent(stream.info), lambda: small_net(4), memory=5)
    batches = list(stream.tasks[0])
    learner.learn(*batches[0])
    with pytest.raises(UserError, match=r"silent: stores \['age'\], its `stores` says \[\]"):
        learner.learn(*batches[1])
    learner = OnlineLearner(Wrong(stream.info), lambda: small_net(4), memory=0)
    with pytest.raises(UserError, match=r"'age' should be floats \(10, 3\) and is .*\(10,\)"):
        learner.learn(*batches[0])


def test_an_interrupt_at_any_moment_leaves_all_or_nothing_or_says_so(
    build: Build, stream: ClassStream, tmp_path: Any
) -> None:
    """Ctrl-C after every so many lines of the package itself, as a signal would come."""
    first, second = list(stream.tasks[0])[:2]
    learner, reference = build("er"), build("er")
    learner.learn(*first)
    learner.save(tmp_path)
    for one in (learner, reference):
        one.load(tmp_path)
    before = whole(learner)
    reference.learn(*second)
    after = whole(reference)
    torn = done = 0
    for stop in range(1, 10_000):
        lines = 0

        def count(_frame: Any, event: str, _arg: Any, stop: int = stop) -> Any:
            nonlocal lines
            if event == "line" and _frame.f_code.co_filename.startswith(PACKAGE):
                lines += 1
                if lines == stop:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return count

        sys.settrace(count)
        try:
            learner.learn(*second)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        if learner.changing:
            torn += 1
        elif learner.progress.batches == 2:
            done += 1
            assert equal(whole(learner), after), f"half of a step after line {stop}"
        else:
            assert equal(whole(learner), before), f"not taken back after line {stop}"
        learner._turns = FairLock()  # a lock may be left taken
        learner.load(tmp_path)
    assert stop > 300
    assert torn < stop / 3
    assert equal(whole(learner), after)


def test_a_frozen_weight_that_a_forward_moves_and_lists_of_a_memory_are_taken_back(
    stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moving(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net(4)
            self.feature_dim = self.net.feature_dim
            self.mean = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

        def features(self, x: torch.Tensor) -> torch.Tensor:
            self.mean += 1
            return self.net.features(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net.head(self.features(x))

    class Listing(Reservoir):
        name = "listing"

        def __init__(self, capacity: int) -> None:
            super().__init__(capacity)
            self.sizes: list[int] = []

        def slots(self, rows: Any, rng: Any) -> list[int]:
            self.sizes.append(len(rows["y"]))
            return super().slots(rows, rng)

        def state_dict(self) -> dict[str, Any]:
            return super().state_dict() | {"sizes": self.sizes}

        def load_state_dict(self, state: Any, device: Any) -> None:
            super().load_state_dict(state, device)
            self.sizes = list(state["sizes"])

    learner = OnlineLearner(ER(stream.info), Moving, memory=Listing(9), updates=2)
    batches = list(stream.tasks[0])
    learner.learn(*batches[0])
    before = whole(learner)
    before["others"]["memory.sizes"] = list(before["others"]["memory.sizes"])

    def fails(*_: Any) -> None:
        learner.memory.sizes.append(0)
        raise RuntimeError

    monkeypatch.setattr(learner.memory, "choose", fails)
    with pytest.raises(RuntimeError):
        learner.learn(*batches[1])
    assert equal(whole(learner), before)


def test_learning_works_where_gradients_are_switched_off(build: Build, stream: ClassStream) -> None:
    learner = build("er_ace")
    with torch.no_grad():
        assert learner.learn(*next(iter(stream.tasks[0])))


def test_a_first_snapshot_at_an_end_of_a_task_that_fails_is_taken_back(
    stream: ClassStream,
) -> None:
    class Late(ER):
        name = "late"

        def end_task(self, peer: Any) -> None:
            peer.keep_previous()
            raise RuntimeError("of the method")

    learner = OnlineLearner(Late(stream.info), lambda: small_net(4), memory=5)
    learner.learn(*next(iter(stream.tasks[0])))
    before = whole(learner)
    with pytest.raises(RuntimeError, match="of the method"):
        learner.end_task()
    assert equal(whole(learner), before)


def test_a_step_that_was_taken_is_not_taken_back_by_what_comes_after_it(
    build: Build, stream: ClassStream
) -> None:
    learner, twin = build("er"), build("er")
    batch = next(iter(stream.tasks[0]))

    def learn_and_break_off() -> None:
        with Transaction(learner, "weights"):
            learner.learn(*batch)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_and_break_off()
    twin.learn(*batch)
    assert equal(whole(learner), whole(twin))


def test_an_undo_that_is_interrupted_is_finished_by_the_next_call(
    stream: ClassStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of growth: whatever was put back already is put back once more."""

    def made() -> OnlineLearner:
        learner = build_learner("er+ccldc", StreamInfo(), partial(small_net, width=4), memory=20)
        for x, y in list(stream.tasks[0])[:2]:
            learner.learn(x, y % 2)
        return learner

    learner, twin = made(), made()
    x, y = list(stream.tasks[0])[2]
    before, load, calls = whole(learner), learner.load_state_dict, []

    def fails(*_: Any) -> None:
        raise RuntimeError

    def interrupted(state: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise KeyboardInterrupt
        load(state)

    with monkeypatch.context() as patch:
        patch.setattr(learner.memory, "choose", fails)
        patch.setattr(learner, "load_state_dict", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                learner.learn(x, y + 2)
        assert torch.equal(learner.logits(x), twin.logits(x))  # of the state before
        with pytest.raises(RuntimeError):
            learner.learn(x, y + 2)
    assert equal(whole(learner), before)
    assert learner.learn(x, y + 2) == twin.learn(x, y + 2)
    assert equal(whole(learner), whole(twin))


def test_gradients_that_no_step_has_followed_do_not_outlive_a_load(
    build: Build, stream: ClassStream, tmp_path: Any
) -> None:
    learner, twin = build("er+ccldc"), build("er+ccldc")
    first, second = list(stream.tasks[0])[:2]
    for one in (learner, twin):
        one.learn(*first)
    learner.save(tmp_path)
    learner.peers[0].backward(learner.peers[0].logits(torch.rand(4, 3, 8, 8)).square().mean())
    learner.load(tmp_path)
    assert learner.learn(*second) == twin.learn(*second)
    assert same(tensors(learner), tensors(twin))


@pytest.mark.parametrize("call", ["save", "learn", "load", "rehearse"])
def test_a_learner_takes_no_step_and_no_checkpoint_within_its_own_step(
    call: str, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    learner = build("er")
    first, second = list(stream.tasks[0])[:2]
    learner.learn(*first)
    learner.save(tmp_path)
    calls = {
        "save": lambda: learner.save(tmp_path),
        "load": lambda: learner.load(tmp_path),
        "learn": lambda: learner.learn(*second),
        "rehearse": learner.rehearse,
    }
    before = whole(learner)
    monkeypatch.setattr(learner.method, "loss", lambda *_: calls[call]())
    with pytest.raises(UserError, match="from within its own step"):
        learner.learn(*second)
    assert equal(whole(learner), before)
