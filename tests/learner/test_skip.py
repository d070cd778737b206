"""A batch that passes without a step."""

import json
from itertools import islice
from pathlib import Path

import pytest
import torch
from conftest import Build, same, tensors

from peerlearn import ClassStream
from peerlearn.errors import UserError


def test_nothing_is_learnt_kept_or_drawn_and_the_next_step_is_that_of_the_batch_after(
    build: Build, stream: ClassStream
) -> None:
    one, other = build("er_ace+ccldc"), build("er_ace+ccldc")
    first, second, third, fourth = islice(stream.tasks[0], 4)
    for learner in (one, other):
        learner.learn(*first)
        learner.learn(*second)
    before = tensors(one)
    one.skip(*third)
    assert same(tensors(one), before)
    assert (one.progress.batches, one.progress.step, one.progress.skipped) == (3, 2, 1)
    assert one.cost == other.cost
    assert one.learn(*fourth) == other.learn(*fourth)
    assert same(tensors(one), tensors(other))


def test_its_images_may_be_kept_all_the_same(build: Build, stream: ClassStream) -> None:
    learner = build("er", memory=100)
    batches = [*islice(stream.tasks[1], 3)]
    learner.learn(*batches[0])
    weights = {name: t.clone() for name, t in tensors(learner).items() if name.startswith("peer")}
    for batch in batches[1:]:
        learner.skip(*batch, remember=True)
    assert len(learner.memory) == learner.cost["stream_images"] == 30
    assert torch.equal(learner.memory["y"], torch.cat([batch.y for batch in batches]))
    assert learner.progress.seen[torch.cat([batch.y for batch in batches])].all()
    assert all(torch.equal(tensors(learner)[name], t) for name, t in weights.items())


def test_what_cannot_be_is_refused_and_changes_nothing(build: Build, stream: ClassStream) -> None:
    batch = next(iter(stream.tasks[0]))
    learner = build("derpp")
    with pytest.raises(UserError, match=r"learn\(\) the first batch"):
        learner.skip(*batch)
    learner.learn(*batch)
    before = tensors(learner)
    with pytest.raises(UserError, match=r"derpp keeps logits .* take remember=False"):
        learner.skip(*batch, remember=True)
    with pytest.raises(UserError):
        learner.skip(batch.x, batch.y + 4)
    assert same(tensors(learner), before)
    assert learner.progress.batches == 1


def test_a_task_of_which_nothing_was_learnt_ends_like_any_other(
    build: Build, stream: ClassStream
) -> None:
    learner = build("gsa")
    learner.learn(*next(iter(stream.tasks[0])))
    learner.end_task()
    with pytest.raises(UserError, match="has had no batch yet"):
        learner.end_task()
    for batch in stream.tasks[1]:
        learner.skip(*batch)
    learner.end_task()
    assert (learner.progress.task, learner.progress.step, learner.progress.skipped) == (2, 0, 0)


def test_a_checkpoint_knows_of_it_and_one_of_before_does_not_need_to(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er")
    batches = iter(stream.tasks[0])
    learner.learn(*next(batches))
    learner.skip(*next(batches))
    learner.save(tmp_path / "new")
    loaded = build("er")
    loaded.load(tmp_path / "new")
    assert loaded.progress.skipped == 1
    state = json.loads((tmp_path / "new" / "state.json").read_text())
    del state["state"]["progress.skipped"]
    (tmp_path / "new" / "state.json").write_text(json.dumps(state))
    loaded.load(tmp_path / "new")
    assert (loaded.progress.batches, loaded.progress.skipped) == (2, 0)
