"""bf16 on a CPU: tried in a child process first, and as reliable as fp32 from then on."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Build, learn_some, same, tensors

from peerlearn import ClassStream, UserError
from peerlearn.nets import processor
from peerlearn.nets.processor import bf16_trial

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def pretend(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the child process be one that runs this code."""
    monkeypatch.setattr(processor, "COMMAND", (sys.executable, "-S", "-c", code))
    monkeypatch.setattr(processor, "_trials", {})


@pytest.fixture(scope="module")
def low() -> dict[str, Any]:
    """What makes a learner in bf16."""
    if fault := bf16_trial().fault:
        pytest.skip(f"bf16 on this machine: a trial {fault}")
    return {"precision": "bf16"}


class TestTheChild:
    @pytest.mark.parametrize(
        ("code", "says"),
        [
            (DIES, "was ended by SIGILL"),
            ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
            ("raise RuntimeError('no such\\nprimitive')", r"failed \(primitive\)"),
            ("raise SystemExit(3)", r"failed \(exit code 3\)"),
            ("print('a warning')", r"failed \(exit code 0\)"),
            ("print('{}')", r"failed \(exit code 0\)"),
            ("import sys; print(sys.stdin.read()); raise ValueError('eof')", "ValueError: eof"),
        ],
    )  # fmt: skip
    def test_that_does_not_end_well_is_a_refusal(
        self, code: str, says: str, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pretend(code, monkeypatch)
        with pytest.raises(UserError, match=rf"^precision bf16 cannot .*{says}.*; take .*fp32'$"):
            build("er", precision="bf16")

    def test_that_hangs_is_ended(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        pretend("import time; time.sleep(60)", monkeypatch)
        monkeypatch.setattr(processor, "TIMEOUT", 0.2)
        with pytest.raises(UserError, match=r"did not end within 0\.2 s"):
            build("er", precision="bf16")

    def test_that_cannot_be_started_is_a_refusal(
        self, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pretend("", monkeypatch)
        monkeypatch.setattr(processor, "COMMAND", ("/nowhere/python",))
        with pytest.raises(UserError, match="could not be started"):
            build("er", precision="bf16")

    def test_is_asked_once_in_a_process(
        self, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = tmp_path / "asked"
        code = f"open({str(asked)!r}, 'a').write('x'); print('{{\"fp32\": 3, \"bf16\": 2}}')"
        pretend(code, monkeypatch)
        assert bf16_trial(16) == ("", 1.5)
        assert bf16_trial() == bf16_trial(16) == ("", 1.5)  # any will do
        build("er", precision="bf16")
        assert asked.read_text() == "x"

    def test_is_asked_nothing_for_fp32(
        self, build: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pretend(DIES, monkeypatch)
        build("er")
        assert not processor._trials

    def test_really_runs(self) -> None:
        fault, gain = bf16_trial()
        assert gain > 0 or fault.startswith(("was ended by SIG", "failed (ArithmeticError"))


def test_a_layer_that_computes_nonsense_in_bf16_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = processor._pass

    def wrong(layer: Any, x: Any, precision: str) -> list[torch.Tensor]:
        found = honest(layer, x, "fp32")
        return [2 * t for t in found] if precision == "bf16" else found

    monkeypatch.setattr(processor, "_pass", wrong)
    with pytest.raises(ArithmeticError, match=r"^Conv2d.* is wrong in bf16 by 100%$"):
        processor._compare(torch.nn.Conv2d(3, 4, 3), torch.rand(2, 3, 8, 8), torch.channels_last)


@pytest.mark.parametrize("name", ["er+ccldc", "derpp", "mir", "gsa", "onpro", "ocm"])
def test_in_bf16_a_loaded_learner_goes_on_bit_for_bit(
    name: str, low: dict[str, Any], build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    unbroken, broken, resumed = (build(name, **low, lr=1e-3) for _ in range(3))
    learn_some(unbroken, stream, batches=3)
    for batch in list(stream.tasks[0])[:3]:
        broken.learn(*batch)
    broken.end_task()
    broken.learn(*next(iter(stream.tasks[1])))
    broken.save(tmp_path)
    resumed.load(tmp_path)
    learn_some(resumed, stream, batches=3, start=4)
    assert same(tensors(unbroken), tensors(resumed))
    x = stream.test_sets[-1].x
    assert torch.equal(unbroken.logits(x), resumed.logits(x))
    assert torch.equal(unbroken.predict_ncm(x), resumed.predict_ncm(x))


def test_in_bf16_peers_side_by_side_learn_what_they_learn_in_turn(
    low: dict[str, Any], build: Build, stream: ClassStream
) -> None:
    in_turn, beside = (build("er+ccldc", **low, peers_at_once=n) for n in (1, 2))
    assert learn_some(in_turn, stream, 3) == learn_some(beside, stream, 3)
    assert same(tensors(in_turn), tensors(beside))


def test_only_the_arithmetic_of_networks_is_in_bf16(
    low: dict[str, Any], build: Build, stream: ClassStream
) -> None:
    learner, plain = build("derpp+ccldc", **low), build("derpp+ccldc")
    losses, as_before = learn_some(learner, stream, 2), learn_some(plain, stream, 2)
    assert losses != as_before
    for name, kept in tensors(learner).items():
        assert not kept.is_floating_point() or kept.dtype == torch.float32, name
    assert not any(peer.scaler.is_enabled() for peer in learner.peers)


def test_answers_in_bf16_are_close_to_those_in_fp32_and_given_in_fp32(
    low: dict[str, Any], build: Build, stream: ClassStream
) -> None:
    learner, plain = build("er", **low), build("er")  # equal weights
    x = stream.test_sets[-1].x
    for found, exact in [
        (learner.logits(x), plain.logits(x)),
        (learner.features(x), plain.features(x)),
    ]:
        assert found.dtype == torch.float32
        assert not torch.equal(found, exact)
        assert torch.allclose(found, exact, atol=0.02 * float(exact.abs().max()))


def test_a_checkpoint_of_another_precision_is_refused(
    low: dict[str, Any], build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er", **low)
    learn_some(learner, stream, 1)
    learner.save(tmp_path)
    with pytest.raises(UserError, match="precision 'bf16' there, 'fp32' here"):
        build("er").load(tmp_path)
