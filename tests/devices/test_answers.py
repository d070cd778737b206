"""What a learner on an accelerator says, keeps and goes on from."""

from pathlib import Path

import pretend
import pytest
import torch
from torch import Tensor

from devices.learners import NAMES, ONE, PEERS, STREAM, TWO, build, differences, taught
from peerlearn import OnlineLearner
from peerlearn.experiment.evaluate import Scores

X = STREAM.test_sets[0].x


def answers(learner: OnlineLearner) -> dict[str, Tensor]:
    asked = [learner.predict, learner.predict_proba, learner.features]
    asked += [learner.predict_ncm] if len(learner.memory) else []
    return {function.__name__: function(X) for function in asked} | {
        f"peer {i}": learner.logits(X, peer=i) for i in range(len(learner.peers))
    }


@pytest.mark.parametrize(
    ("name", "device"), [*((name, ONE) for name in NAMES), *((name, TWO) for name in PEERS)]
)
def test_answers_are_those_of_the_cpu_and_nobody_waits_for_them(name: str, device: str) -> None:
    learner = taught(name, device).learner
    pretend.waits.clear()
    there = answers(learner)
    assert pretend.waits == []
    here = answers(taught(name).learner)
    assert {str(answer.device) for answer in there.values()} == {ONE}
    assert [k for k in here if not torch.equal(there[k].cpu(), here[k])] == []


@pytest.mark.parametrize("name", ["er+ccldc", "pcr+ccldc", "er+mkd-pair"])
@pytest.mark.parametrize("device", [ONE, TWO])
def test_scores_are_those_of_the_cpu(name: str, device: str) -> None:
    tables = []
    for place in (device, "cpu"):
        learner = taught(name, place).learner
        scores = Scores(learner, ncm=True)
        scores.add(learner, STREAM.test_sets[:1])
        tables.append(scores.to_lists())
    assert tables[0] == tables[1]


@pytest.mark.parametrize("name", [*PEERS, "er+untrained"])
def test_checkpoints_go_from_any_device_to_any_other(name: str, tmp_path: Path) -> None:
    batch, here = list(STREAM.tasks[1])[5], build(name)
    taught(name, TWO).learner.save(tmp_path)
    here.load(tmp_path)
    assert differences(here, taught(name).learner) == []
    here.save(tmp_path)
    there = build(name, ["pretend:1", "pretend:0"])
    there.load(tmp_path)
    assert differences(there, here) == []
    assert there.learn(*batch) == here.learn(*batch)
    assert differences(there, here) == []
