"""Every method and every wrapper keeps its devices apart, with the numbers of the CPU."""

import re
from pathlib import Path

import pretend
import pytest
import torch
from torch import nn

from devices.learners import NAMES, ONE, PEERS, STREAM, TWO, build, differences, taught, teach
from peerlearn import METHODS, UserError, small_net
from peerlearn.distill import WRAPPERS
from peerlearn.methods import ER
from peerlearn.methods.interface import StepOutput

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"

# for how many values of the device the host waits in a step, at most; docs/devices.md has the same
WAITS = {"er": 1, "derpp": 1, "er_ace": 1, "ocm": 1, "gsa": 1, "onpro": 2, "pcr": 1, "mir": 1}
WAITS |= {"rar": 1, "finetune": 1, "joint": 1}


@pytest.mark.parametrize("name", NAMES)
def test_an_accelerator_has_the_numbers_of_the_cpu(name: str) -> None:
    there, here = taught(name, ONE), taught(name)
    assert there.losses == here.losses
    assert differences(there.learner, here.learner) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_step_waits_for_its_losses_and_for_what_decides_what_is_drawn(name: str) -> None:
    assert taught(name, ONE).waits == WAITS[name.partition("+")[0]]


def test_the_waits_of_every_method_are_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: int(waits) for name, waits in rows} == WAITS
    assert WAITS.keys() == {*METHODS}
    assert max(WAITS.values()) <= 2


@pytest.mark.parametrize("name", ["er", "derpp"])
def test_the_memory_is_on_the_device_as_bytes_and_its_labels_on_the_cpu(name: str) -> None:
    memory = taught(name, ONE).learner.memory
    places = {column: str(memory[column].device) for column in memory.columns}
    assert places.pop("y") == "cpu"
    assert {*places.values()} == {ONE}
    assert memory["x"].dtype == torch.uint8


@pytest.mark.parametrize("policy", ["reservoir", "class_balanced"])
def test_every_policy_draws_alike_on_all_devices(policy: str) -> None:
    there, here = (teach(build("gsa", d, memory_policy=policy)) for d in (ONE, "cpu"))
    assert there.waits == WAITS["gsa"]
    assert differences(there.learner, here.learner) == []


@pytest.mark.parametrize("name", [*PEERS, "er+untrained"])
def test_peers_on_two_devices_learn_as_on_one(name: str) -> None:
    there, here = taught(name, TWO), taught(name)
    places = [
        {str(tensor.device) for tensor in [*peer.model.parameters(), *peer.buffers.values()]}
        for peer in there.learner.peers
    ]
    assert places == [{"pretend:0"}, {"pretend:1"}]
    assert there.losses == here.losses
    assert differences(there.learner, here.learner) == []
    assert there.waits == WAITS[name.partition("+")[0]]


def test_peers_side_by_side_on_two_devices_learn_and_answer_as_in_turn() -> None:
    there, here = teach(build("onpro+ccldc", TWO, peers_at_once=2)).learner, taught("onpro+ccldc")
    assert there.pool.count == 2
    assert differences(there, here.learner) == []
    x = STREAM.test_sets[0].x
    assert torch.equal(there.predict_proba(x).cpu(), here.learner.predict_proba(x))


def test_a_third_peer_shares_the_first_of_two_devices() -> None:
    there, here = (teach(build("er+ccldc", d, peers=3)) for d in (["pretend:1", ONE], "cpu"))
    assert [str(p.device) for p in there.learner.peers] == ["pretend:1", "pretend:0", "pretend:1"]
    assert differences(there.learner, here.learner) == []


def test_batches_may_come_from_a_device() -> None:
    learner = build("er", "pretend:1")
    for batch in list(STREAM.tasks[0])[:2]:
        learner.learn(batch.x.to(ONE), batch.y.to(ONE))
    again = build("er")
    for batch in list(STREAM.tasks[0])[:2]:
        again.learn(*batch)
    assert differences(learner, again) == []


def test_a_step_that_fails_leaves_both_devices_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, again = (teach(build("er+ccldc", d)).learner for d in (TWO, "cpu"))
    batch = list(STREAM.tasks[1])[3]

    def broken(_method: object, peer: object, draw: object) -> StepOutput:
        outcome = usual(learner.method, peer, draw)  # type: ignore[arg-type]
        return outcome._replace(loss=outcome.loss * float("nan"))

    usual = ER.loss
    monkeypatch.setattr(ER, "loss", broken)
    with pytest.raises(UserError, match="not finite"):
        learner.learn(*batch)
    monkeypatch.undo()
    assert differences(learner, again) == []
    assert learner.learn(*batch) == again.learn(*batch)


def test_networks_that_share_parts_must_be_on_one_device() -> None:
    shared = nn.Conv2d(3, 3, 1)

    def net() -> nn.Module:
        made = small_net(4, width=4)
        made.encoder.insert(0, shared)  # type: ignore[operator]
        return made

    with pytest.raises(UserError, match=r"share parts.*take device='pretend:0'"):
        build("er+ccldc", TWO, net=net)


@pytest.mark.parametrize("device", ["pretend:0,pretend:7", "pretend:0,,", "", []])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(UserError, match="device"):
        build("er+ccldc", device)


def test_wrappers_are_all_tried() -> None:
    assert {name.partition("+")[2] for name in NAMES} == {"", *WRAPPERS}
    assert pretend.COUNT == 2
