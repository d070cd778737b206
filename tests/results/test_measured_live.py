"""What was measured on a stream of one's own: records in the repository, a page made of them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from peerlearn.data import ImageSet

HOME = Path(__file__).parents[2]
PLACE = HOME / "docs" / "results"
sys.path.insert(0, str(HOME / "scripts"))

import live_page  # noqa: E402
import measure_live  # noqa: E402


@pytest.fixture(scope="module")
def records() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = json.loads((PLACE / "live.json").read_text(encoding="utf-8"))
    return found


def test_the_page_has_the_tables_of_the_records(records: dict[str, list[Any]]) -> None:
    page = (PLACE / "live.md").read_text(encoding="utf-8")
    for name, table in live_page.tables(records).items():
        assert table in page, name


def test_every_learner_has_three_seeds_and_was_killed_twice_without_a_difference(
    records: dict[str, list[Any]],
) -> None:
    seeds = {(one["learner"], one["seed"]) for one in records["streams"]}
    killed = {one["learner"]: (one["kills"], one["same"]) for one in records["killed"]}
    for name in measure_live.LEARNERS:
        assert {(name, seed) for seed in range(3)} <= seeds
        assert killed[name] == (2, True)


def test_no_answer_was_a_mixture_and_exports_agree(records: dict[str, list[Any]]) -> None:
    assert {one["learner"] for one in records["answers"]} == {*measure_live.LEARNERS}
    for one in records["answers"]:
        asked, exported = one["while_learning"], one["exported"]
        assert (asked["asked"], asked["of_no_state"], asked["same_bytes"]) == (1000, 0, True)
        assert exported["images"] == 1000
        assert max(exported["largest_difference"].values()) < 1e-4


def test_half_of_the_classes_come_each_at_a_moment_of_its_own() -> None:
    y = torch.arange(100).repeat_interleave(150)
    x = torch.zeros(len(y), 3, 1, 1, dtype=torch.uint8)
    train = ImageSet(x, y, tuple(f"class {k}" for k in range(100)))
    classes, rows = measure_live.stream(train, seed=0)
    labels = y[rows].tolist()
    assert len(classes) == 50
    assert sorted(labels) == sorted(classes * 120)
    assert len(rows.unique()) == 6000
    firsts = sorted(labels.index(label) for label in classes)
    assert firsts[0] == 0
    assert firsts[-1] > 4000
    assert not torch.equal(rows, measure_live.stream(train, seed=1)[1])
