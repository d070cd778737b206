"""How far answers can be trusted: details against plain loops, and all of one state."""

import math
import threading
from itertools import combinations
from typing import Any

import pytest
import torch
from open_streams import batches, learnt, new
from torch import Tensor

from peerlearn import UserError
from peerlearn.live import Details, disagreement
from peerlearn.live.signals import entropy

PATIENCE = 60  # seconds; nothing here takes one
X = batches(1, rows=5, seed=7)[0][0]


def plain_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    powers = [math.exp(one - top) for one in logits]
    return [power / sum(powers) for power in powers]


def plain_entropy(probabilities: list[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def plain_disagreement(networks: list[list[float]]) -> float:
    said = [plain_softmax(logits) for logits in networks]
    pairs = [
        sum(p * q for i, p in enumerate(a) for j, q in enumerate(b) if i != j)
        for a, b in combinations(said, 2)
    ]
    return sum(pairs) / len(pairs) if pairs else 0.0


def networks_of(learner: Any) -> list[Tensor]:
    """The logits of every network that learns or follows, each asked by itself."""
    inner = learner.learner
    said = [inner.snapshot("peers").logits(X, peer) for peer in range(len(inner.peers))]
    if "ema" in inner.sources:
        shadow = inner.snapshot("ema")
        said += [shadow.logits(X, number) for number in range(len(shadow.models))]
    return said


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("name", ["er", "er+ccldc", "er+ema-chain", "er+ccldc-ema"])
def test_details_are_what_plain_loops_find(name: str, temperature: float) -> None:
    learner = learnt(name)
    learner.temperature = temperature
    found = learner.predict(X, details=True)
    logits, everyone = learner.learner.logits(X), networks_of(learner)
    assert found.classes == learner.classes
    assert found.labels == learner.predict(X)
    assert torch.equal(found.probabilities, learner.predict_proba(X))
    for row in range(len(X)):
        expected = plain_softmax([one / temperature for one in logits[row].tolist()])
        assert found.probabilities[row].tolist() == pytest.approx(expected, abs=1e-6)
        assert found.labels[row] == learner.classes[expected.index(max(expected))]
        assert float(found.probability[row]) == pytest.approx(max(expected), abs=1e-6)
        assert float(found.entropy[row]) == pytest.approx(plain_entropy(expected), abs=1e-5)
        differ = plain_disagreement([(one[row] / temperature).tolist() for one in everyone])
        assert float(found.disagreement[row]) == pytest.approx(differ, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "networks"), [("er", 1), ("er+ccldc", 2), ("er+ema-chain", 2), ("er+ccldc-ema", 4)]
)
def test_who_is_compared(name: str, networks: int) -> None:
    learner = learnt(name)
    assert len(networks_of(learner)) == networks
    found = learner.predict(X, details=True).disagreement
    if networks == 1:
        assert not found.any()
    else:
        assert (found > 0).all()
        assert (found < 1).all()


@pytest.mark.parametrize("source", ["peers", "ema", "average", "ncm"])
def test_the_source_asked_for_predicts_and_all_networks_are_compared(source: Any) -> None:
    learner = learnt("er+ema-chain")
    found = learner.predict(X, predict_with=source, details=True)
    logits = learner.learner.snapshot(source).logits(X)
    torch.testing.assert_close(found.probabilities, logits.softmax(dim=1))
    assert found.labels == learner.predict(X, predict_with=source)
    assert torch.equal(found.probabilities, learner.predict_proba(X, predict_with=source))
    usual = learner.predict(X, details=True)
    assert torch.equal(found.disagreement, usual.disagreement)


def test_one_known_class_is_certain() -> None:
    learner = new()
    learner.learn(X, ["cat"] * 5)
    found = learner.predict(X, details=True)
    assert found.labels == ["cat"] * 5
    assert found.probability.tolist() == [1.0] * 5
    assert not found.entropy.any()
    assert not found.disagreement.any()


class TestFunctions:
    def test_the_entropy_of_what_is_certain_and_of_what_is_not(self) -> None:
        rows = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25] * 4])
        assert entropy(rows).tolist() == pytest.approx([0, math.log(4)])

    @pytest.mark.parametrize("networks", [1, 2, 3, 5])
    def test_disagreement_is_the_chance_that_two_draws_differ(self, networks: int) -> None:
        said = [torch.randn(50, 6) * 10 for _ in range(networks)]
        found = disagreement(said)
        expected = [
            plain_disagreement([one[row].double().tolist() for one in said]) for row in range(50)
        ]
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
        assert ((found >= 0) & (found <= 1)).all()

    def test_large_logits_do_no_harm(self) -> None:
        sure = torch.tensor([[1e4, -1e4, 0.0]])
        assert disagreement([sure, sure]).tolist() == [0.0]
        assert disagreement([sure, sure.roll(1, 1)]).tolist() == [1.0]


class TestRefused:
    def test_before_anything_is_learnt(self) -> None:
        for ask in (new().predict, new().predict_proba):
            with pytest.raises(UserError, match="nothing has been learnt yet"):
                ask(X)
        with pytest.raises(UserError, match="nothing has been learnt yet"):
            new().predict(X, details=True)

    def test_somebody_who_is_not_there(self) -> None:
        with pytest.raises(UserError, match="no EMA copies; choose peers or ncm"):
            learnt().predict(X, predict_with="ema", details=True)


def equal(ours: Details, theirs: Details) -> bool:
    tensors = ("probability", "entropy", "disagreement", "probabilities")
    return (ours.labels, ours.classes) == (theirs.labels, theirs.classes) and all(
        torch.equal(getattr(ours, name), getattr(theirs, name)) for name in tensors
    )


@pytest.mark.parametrize("name", ["er+ccldc", "er+ema-chain"])
def test_all_of_an_answer_is_of_one_state_while_another_thread_learns(name: str) -> None:
    stream = batches(9)
    known = [f"class {k}" for k in range(3)]
    alone, watched = new(name, labels=known), new(name, labels=known)
    states = [alone.predict(X, details=True)]
    for batch in stream:
        alone.learn(*batch)
        states.append(alone.predict(X, details=True))
    said: list[Details] = [watched.predict(X, details=True)]
    over = threading.Event()

    def learn() -> None:
        try:
            for batch in stream:
                watched.learn(*batch)
        finally:
            over.set()

    thread = threading.Thread(target=learn)
    thread.start()
    while not over.is_set():
        said.append(watched.predict(X, details=True))
    thread.join(PATIENCE)
    said.append(watched.predict(X, details=True))
    seen = [next(i for i, state in enumerate(states) if equal(one, state)) for one in said]
    assert seen == sorted(seen)
    assert seen[-1] == len(stream)
