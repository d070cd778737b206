"""Labels of any kind: numbered in order of arrival, refused if a checkpoint could not hold them."""

import enum
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_streams import batches, new

from peerlearn import OpenLearner, UserError
from peerlearn.live import LabelMap
from peerlearn.live.labels import DEEPEST, PAIRED, as_list, plain

X = batches(1, rows=6)[0][0]


class Series:
    """What pandas calls so: a column with an index, of which iterating is slow."""

    ndim = 1

    def __init__(self, values: list[Any]) -> None:
        self.values, self.shape = values, (len(values),)

    def to_list(self) -> list[Any]:
        return list(self.values)

    def tolist(self) -> list[Any]:
        return list(self.values)


class PolarsSeries:
    """Has no `tolist`, which NumPy and pandas have."""

    def to_list(self) -> list[Any]:
        return ["cat", None, "dog"]


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    TWO = 2


class Point(NamedTuple):
    x: int
    y: str


class TestEveryKind:
    @pytest.mark.parametrize(
        ("given_as", "labels"),
        [
            (["cat", "dog", "cat"], ["cat", "dog"]),
            (("cat", "dog", "cat"), ["cat", "dog"]),
            (np.array(["cat", "dog"]), ["cat", "dog"]),
            (np.array(["cat", None], dtype=object), ["cat", None]),
            ([np.str_("cat"), np.int8(3), np.float32(0.5), np.bool_(False)], ["cat", 3, 0.5, 0]),
            (np.array([3, 1, 3], np.uint8), [3, 1]),
            (torch.tensor([3, 1, 3]), [3, 1]),
            (torch.tensor([True, False]), [True, False]),
            (torch.tensor([0.5, 2.0], dtype=torch.bfloat16, requires_grad=True), [0.5, 2.0]),
            ([torch.tensor(3), 1], [3, 1]),
            ([("a", 1), ("a", np.int64(2))], [("a", 1), ("a", 2)]),
            ([("a", (None, ())), ()], [("a", (None, ())), ()]),
            ([None, "None"], [None, "None"]),
            ([Colour.RED, Number.TWO, Point(1, "b")], ["red", 2, (1, "b")]),
            (Series(["cat", np.int64(1)]), ["cat", 1]),
            (PolarsSeries(), ["cat", None, "dog"]),
            ("cat", ["cat"]),
            (7, [7]),
            (None, [None]),
            (np.array("cat"), ["cat"]),
            (torch.tensor(7), [7]),
            (["cat", 1, 2.5, None, ("cat", 1), "1"], ["cat", 1, 2.5, None, ("cat", 1), "1"]),
        ],
    )
    def test_becomes_pythons_own_in_order_of_arrival(
        self, given_as: Any, labels: list[Any]
    ) -> None:
        known, numbers = LabelMap().numbered(given_as)
        assert list(known) == labels
        assert {type(one) for one in known} <= {str, int, float, bool, type(None), tuple}
        assert [known[n] for n in numbers.tolist()] == [plain(one) for one in as_list(given_as)]

    def test_one_number_is_one_label_however_it_is_written(self) -> None:
        known, numbers = LabelMap().numbered([1, 1.0, True, np.int64(1), torch.tensor(1.0)])
        assert repr(list(known)) == "[1]"  # as it came first
        assert numbers.tolist() == [0] * 5
        known, numbers = known.numbered([(1, "a"), (True, "a"), 0, False, -0.0, "1"])
        assert repr(list(known)) == "[1, (1, 'a'), 0, '1']"
        assert numbers.tolist() == [1, 1, 2, 2, 2, 3]

    def test_a_number_once_given_stays_and_no_map_ever_changes(self) -> None:
        first, _ = LabelMap().numbered(["b", "a"])
        second, numbers = first.numbered(["c", "a"])
        assert list(first) == ["b", "a"]
        assert list(second) == ["b", "a", "c"]
        assert numbers.tolist() == [2, 1]
        assert second.numbered(["a"])[0] is second


class TestRefused:
    @pytest.mark.parametrize(
        ("labels", "words"),
        [
            ([float("nan")] * 6, "nan is no label; drop those images"),
            ([np.float32("inf")] * 6, "inf is no label"),
            (np.array([1, np.nan] * 3), "nan is no label"),
            ([("a", float("nan"))] * 6, "nan is no label"),
            ([["a"]] * 6, r"\['a'\] is a list"),
            ([("a", ["b"])] * 6, "is a list"),
            ([{"a"}] * 6, "is a set"),
            ([b"cat"] * 6, "is a bytes"),
            ([1j] * 6, "is a complex"),
            ([np.datetime64("2026-01-01")] * 6, "is a date"),
            ([torch.tensor([1])] * 6, "is a Tensor"),
            (iter("abcdef"), "iterator"),
            (torch.eye(6), r"got shape \(6, 6\); of one-hot rows take y.argmax\(1\)"),
            (np.zeros((6, 1)), r"got shape \(6, 1\); take y\[:, 0\]"),
            (torch.zeros(6, device="meta"), "a plain tensor"),
            (torch.ones(6).to_sparse(), "a plain tensor"),
            (["a"] * 5, "5 for 6 images"),
            (["a"] * 7, "7 for 6 images"),
            ("cat", "1 for 6 images"),
            ([], "0 for 6 images"),
            ([10**300] * 6, "over 300 digits"),
            ([-(10**5000)] * 6, "over 300 digits"),
            (["\ud83d\ude00"] * 6, "halves of a character"),
        ],
    )
    def test_and_nothing_is_learnt(self, labels: Any, words: str) -> None:
        learner = new()
        with pytest.raises(UserError, match=words):
            learner.learn(X, labels)
        assert not learner.classes
        assert learner.learner.progress.batches == 0
        assert learner.size is None

    def test_one_bad_label_leaves_no_trace_of_the_good_ones_beside_it(self) -> None:
        learner = new()
        learner.learn(X[:2], ["a", "b"])
        with pytest.raises(UserError, match="is no label"):
            learner.learn(X[:2], ["c", float("nan")])
        assert learner.classes == ["a", "b"]

    def test_tuples_deeper_than_a_checkpoint_can_hold(self) -> None:
        label: Any = "a"
        for _ in range(DEEPEST):
            label = (label,)
        assert plain(label) == label
        with pytest.raises(UserError, match="flatter"):
            plain((label,))
        for _ in range(10_000):
            label = (label,)
        with pytest.raises(UserError, match="flatter"):
            plain(label)

    @pytest.mark.parametrize("labels", ["cat", None, 5])
    def test_announced_labels_that_are_no_list(self, labels: Any) -> None:
        with pytest.raises(UserError, match="need a list of those that are known"):
            OpenLearner("er", net="small", labels=labels)

    @pytest.mark.parametrize("labels", [["a", "b", "a"], [1, True], [(1, 2), (1.0, 2.0)]])
    def test_announced_labels_that_are_there_twice(self, labels: list[Any]) -> None:
        with pytest.raises(UserError, match="twice"):
            LabelMap(labels)


LEAVES = st.one_of(
    st.text(st.characters(), max_size=4).filter(lambda text: not PAIRED.search(text)),
    st.integers(-(10**299), 10**299),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)
LABELS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6
).filter(lambda label: _depth(label) <= DEEPEST)


def _depth(label: Any) -> int:
    return 1 + max(map(_depth, label), default=0) if isinstance(label, tuple) else 0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(LABELS, unique=True, max_size=6))
def test_json_gives_every_label_back_as_it_was(labels: list[Any]) -> None:
    known = LabelMap(labels)
    again = LabelMap.from_json(json.loads(json.dumps(known.to_json())))
    assert repr(list(again)) == repr(labels)  # repr tells 1, 1.0 and True apart
    assert known.numbered(labels)[1].tolist() == list(range(len(labels)))


def test_a_label_as_deep_as_it_may_be_fits_into_a_checkpoint(tmp_path: Any) -> None:
    deep: Any = 10**299
    for _ in range(DEEPEST):
        deep = (deep, "caf\udce9", None, True, 1.5)  # of a file name that is not UTF-8
    learner = new()
    learner.learn(X, [deep, "b"] * 3)
    learner.save(tmp_path)
    assert OpenLearner.restore(tmp_path).classes == [deep, "b"]


@pytest.mark.parametrize(
    "found",
    [[{"a": 1}], [[1]], [{"tuple": 3}], [{"tuple": [{"b": 1}]}], ["a", "a"], [float("nan")]],
)
def test_what_is_no_label_is_not_read_as_one(found: list[Any]) -> None:
    with pytest.raises(UserError, match="labels"):
        LabelMap.from_json(found)


def test_a_map_is_a_sequence() -> None:
    labels = LabelMap(iter(["a", ("b", 1)]))
    assert isinstance(iter(labels), Iterator)
    assert ("b", 1) in labels
    assert labels.index(("b", 1)) == 1
    assert labels[-1] == ("b", 1)
    with pytest.raises(IndexError):
        labels[2]
