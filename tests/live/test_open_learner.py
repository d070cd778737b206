"""A learner for a stream of one's own: any images, any labels, classes that nobody announced."""

import json
import math
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import same, tensors
from open_streams import arriving, batches, differences, everything, killed_savers, learnt, new
from PIL import Image
from torch import Tensor, nn

from peerlearn import (
    OnlineLearner,
    OpenLearner,
    StreamInfo,
    UserError,
    WithHead,
    build_learner,
    small_net,
)
from peerlearn.data.pictures import pictures
from peerlearn.learner.transaction import Transaction
from peerlearn.live import learner as module

PATIENCE = 60  # seconds; nothing here takes one
# A server that has imported torch once forks every worker: a fresh process at no cost.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["peerlearn.learner.build"])


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: no power is cut here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class BrokenError(RuntimeError):
    """What a test lets go wrong."""


def break_learning(learner: OpenLearner, patch: pytest.MonkeyPatch) -> None:
    """Let every step fail when all has been computed and before weights move."""

    def fails(*_: Any) -> None:
        raise BrokenError

    patch.setattr(learner.learner.memory, "choose", fails)


# --- images


PIXELS = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
KINDS = {  # one image each
    "grey": PIXELS[:, :, 0],
    "grey batch": PIXELS[None, :, :, 0],
    "rgba": np.concatenate([PIXELS, PIXELS[:, :, :1]], axis=2),
    "pil": Image.fromarray(PIXELS),
    "pil palette": Image.fromarray(PIXELS).convert("P"),
    "path": Path("one.png"),
    "string": "one.png",
    "floats": torch.from_numpy(PIXELS).permute(2, 0, 1)[None] / 255,
    "other size": Image.fromarray(PIXELS).resize((20, 11)),
    "list": [PIXELS[:, :, 0]],
}


class TestImages:
    @pytest.mark.parametrize("kind", KINDS)
    def test_of_any_kind_are_learnt_as_the_same_pixels_given_as_a_tensor(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Image.fromarray(PIXELS).save("one.png")
        image = KINDS[kind]
        learner, plain = learnt(), learnt()
        x = pictures(image, (8, 8))
        assert learner.predict(image) == plain.predict(x)
        assert learner.learn(image, "class 1") == plain.learn(x, ["class 1"])
        assert differences(learner, plain) == []

    def test_the_first_batch_decides_the_size_and_later_ones_are_resized(self) -> None:
        learner, rng = new(), np.random.default_rng(0)
        assert learner.size is None
        images = rng.integers(0, 256, (2, 12, 9, 3), dtype=np.uint8)
        learner.learn(images, ["a", "b"])
        assert learner.size == (12, 9)
        large = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        learner.learn([large, images[0], large[:, :, 0]], ["b", "a", "c"])
        assert learner.learner.memory["x"].shape == (5, 3, 12, 9)
        assert torch.equal(learner.learner.memory["x"][2:3], pictures(large, (12, 9)))
        assert learner.predict(large) == learner.predict(pictures(large, (12, 9)))

    def test_a_first_batch_of_many_sizes_becomes_64_by_64(self) -> None:
        learner = new()
        learner.learn([np.zeros((8, 8), np.uint8), np.zeros((9, 7, 3), np.uint8)], ["a", "b"])
        assert learner.size == (64, 64)

    @pytest.mark.parametrize(
        ("size", "sides"), [(16, (16, 16)), ((16, 8), (16, 8)), (np.int64(16), (16, 16))]
    )
    def test_a_size_that_was_asked_for_is_kept(self, size: Any, sides: tuple[int, int]) -> None:
        learner = new(size=size)
        learner.learn(*batches(1)[0])
        assert learner.size == sides
        assert learner.learner.image_shape == (3, *sides)

    @pytest.mark.parametrize("size", [0, -8, 10**6, "big", (8,), (8, 8, 3), 8.5, (8, None)])
    def test_a_size_that_cannot_be_is_refused_before_anything_is_built(self, size: Any) -> None:
        with pytest.raises(UserError, match="size"):
            new(size=size)

    def test_a_batch_of_one_all_along(self) -> None:
        learner = new()
        for x, labels in batches(6, rows=1):
            learner.learn(x, labels[0])
        assert learner.learner.memory.seen == 6
        assert learner.predict(batches(1, rows=1)[0][0])[0] in learner.classes

    def test_what_is_no_image_changes_nothing(self) -> None:
        learner, twin = learnt(), learnt()
        empty, unclear, five = torch.zeros(0, 3, 8, 8), torch.rand(3, 8, 8), torch.rand(2, 5, 8, 8)
        for images in ([], empty, unclear, five, "nowhere.png", 7):
            with pytest.raises(UserError):
                learner.learn(images, ["new", "newer"])  # type: ignore[arg-type]
            with pytest.raises(UserError):
                learner.predict(images)  # type: ignore[arg-type]
        assert differences(learner, twin) == []

    @pytest.mark.parametrize("details", [False, True, None])
    def test_a_first_batch_may_end_while_others_are_read(
        self, details: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner, read = new(labels=["a", "b"]), module.pictures
        x = torch.randint(256, (2, 3, 20, 20), dtype=torch.uint8)

        def slowly(images: Any, size: Any) -> Tensor:
            monkeypatch.undo()
            learner.learn(x[:, :, :8, :8], ["a", "b"])
            return read(images, size)

        monkeypatch.setattr(module, "pictures", slowly)
        if details is None:
            assert learner.predict_proba(x).shape == (2, 2)
        else:
            assert learner.predict(x, details=details)
        assert learner.size == (8, 8)


class FixedSize(WithHead):
    """Takes images of 16 by 16 and no others."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), 4, num_classes)


@pytest.mark.parametrize("labels", [[], ["a"]])
def test_images_that_the_network_cannot_take_are_refused_as_such(labels: list[str]) -> None:
    learner = OpenLearner("er", memory=5, net=FixedSize, labels=labels)
    with pytest.raises(UserError, match=r"network: does not take images of \(3, 8, 8\)"):
        learner.learn(*batches(1)[0])
    assert learner.classes == labels
    assert learner.size is None
    larger = batches(1, side=16)[0]
    learner.learn(*larger)
    assert learner.size == (16, 16)


# --- growing


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["er", "er+ema-chain", "derpp+ccldc"])
def test_labels_of_any_kind_are_learnt_as_their_numbers_are(name: str, seed: int) -> None:
    rng = random.Random(seed)
    pool: list[Any] = ["cat", ("big", "cat"), 7, 2.5, None, "dog", False, "7"]
    rng.shuffle(pool)
    learner = new(name, seed=seed)
    plain = build_learner(name, StreamInfo(), "small", memory=20, width=4, seed=seed)
    met: list[Any] = []
    for number, (x, _) in enumerate(batches(7, seed=seed)):
        labels = [rng.choice(pool[: number + 2]) for _ in range(len(x))]
        met += [label for label in dict.fromkeys(labels) if label not in met]
        losses = learner.learn(x, labels)
        assert losses == plain.learn(x, torch.tensor([met.index(label) for label in labels]))
        assert learner.classes == met
        said = [met[n] for n in plain.predict(x).tolist()]
        assert learner.predict(x) == said
        assert same(_comparable(learner.learner), _comparable(plain))


def _comparable(learner: OnlineLearner) -> dict[str, Tensor]:
    return {name: tensor.nan_to_num(-1e9) for name, tensor in tensors(learner).items()}


def test_announced_labels_have_their_numbers_before_the_first_batch() -> None:
    known = ["class 2", "class 0", ("never", 1)]
    learner = new(labels=known)
    told = StreamInfo(num_classes=3, grows=True)
    plain = build_learner("er", told, "small", memory=20, width=4)
    numbers = {"class 2": 0, "class 0": 1, "class 1": 3}
    assert learner.classes == known
    assert {*learner.predict(batches(1)[0][0])} <= {*known}
    for x, labels in batches(4):
        assert learner.learn(x, labels) == plain.learn(
            x, torch.tensor([numbers[k] for k in labels])
        )
    assert learner.classes == [*known, "class 1"]
    assert same(tensors(learner.learner), tensors(plain))


def test_two_hundred_classes_one_at_a_time_do_not_take_for_ever() -> None:
    learner = OpenLearner("er", memory=20, net="small")
    x = batches(1, rows=2)[0][0]
    took = []
    for number in range(200):
        began = time.thread_time()
        learner.learn(x, [f"class {number}", f"class {number // 2}"])
        took.append(time.thread_time() - began)
    assert learner.learner.num_classes == 200
    assert sorted(took[150:])[25] < 4 * sorted(took[10:60])[25]  # medians


# --- tasks


class TestBoundaries:
    @pytest.mark.parametrize("name", ["ocm", "gsa", "onpro", "ocm+ccldc"])
    def test_methods_that_need_them_say_what_to_do(self, name: str) -> None:
        words = 'take boundaries="new classes", or boundaries="told" and call end_task'
        with pytest.raises(UserError, match=words):
            new(name)

    def test_others_that_do_not_exist(self) -> None:
        for wrong in ("some", None, True):
            with pytest.raises(UserError, match="boundaries: must be one of"):
                new(boundaries=wrong)

    @pytest.mark.parametrize("name", ["er", "ocm", "gsa", "onpro"])
    def test_new_classes_begin_tasks_but_for_those_of_the_first_batch(self, name: str) -> None:
        learner = new(name, boundaries="new classes")
        x = batches(1)[0][0]
        stream = ["aabbab", "aaaaaa", "aacccc", "abcabc", "dddddd", "edaeda", "abcdea"]
        tasks = []
        for labels in stream:
            learner.learn(x, list(labels))
            tasks.append(learner.learner.progress.task)
        assert tasks == [0, 0, 1, 1, 2, 3, 3]
        assert learner.classes == list("abcde")
        with pytest.raises(UserError, match='built with boundaries="new classes"'):
            learner.end_task()

    def test_announced_classes_begin_none(self) -> None:
        learner = new(boundaries="new classes", labels=["a", "b"])
        x = batches(1, rows=1)[0][0]
        for label, task in (("a", 0), ("b", 0), ("c", 1)):
            learner.learn(x, label)
            assert learner.learner.progress.task == task

    @pytest.mark.parametrize("name", ["er", "gsa"])
    def test_told_ones_are_where_they_are_told(self, name: str) -> None:
        learner = new(name, boundaries="told")
        with pytest.raises(UserError, match="has had no batch yet"):
            learner.end_task()
        for number, batch in enumerate(arriving(4)):
            learner.learn(*batch)
            assert learner.learner.progress.task == number // 2
            if number % 2:
                learner.end_task()
        with pytest.raises(UserError, match="has had no batch yet"):
            learner.end_task()

    def test_without_them_none_can_be_told(self) -> None:
        learner = learnt()
        with pytest.raises(UserError, match='build it with boundaries="told"'):
            learner.end_task()
        assert learner.learner.progress.task == 0


# --- all or nothing


@pytest.mark.parametrize("begun", [0, 3])
@pytest.mark.parametrize(
    ("name", "boundaries"),
    [
        ("er", "none"),
        ("er+ema-chain", "none"),
        ("er", "new classes"),
        ("ocm+ccldc", "new classes"),
        ("gsa", "new classes"),
        ("onpro", "new classes"),
    ],
)
def test_a_batch_that_cannot_be_learnt_changes_nothing(
    name: str, boundaries: Any, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, twin = (learnt(name, begun, boundaries=boundaries) for _ in range(2))
    x, labels = batches(1, seed=9)[0]
    labels = ["new", *labels[1:]]
    with monkeypatch.context() as patch:
        break_learning(learner, patch)
        for _ in range(2):
            with pytest.raises(BrokenError):
                learner.learn(x, labels)
    assert learner.learner.progress.task == twin.learner.progress.task
    assert differences(learner, twin) == []
    for more in ((x, ["class 0"] * 6), (x, labels)):  # of known classes: the old task goes on
        assert learner.learn(*more) == twin.learn(*more)
    assert differences(learner, twin) == []
    if begun:
        assert learner.predict(x) == twin.predict(x)


@pytest.mark.parametrize("boundaries", ["none", "new classes"])
def test_a_step_that_was_taken_has_its_labels_though_an_interrupt_came(
    boundaries: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learner, twin = (learnt(boundaries=boundaries) for _ in range(2))
    x, commit = batches(1, seed=9)[0][0], Transaction.commit

    def interrupted(transaction: Transaction) -> None:
        commit(transaction)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(x, ["new"] * 6)
    twin.learn(x, ["new"] * 6)
    assert learner.classes[-1] == "new"
    assert differences(learner, twin) == []
    learner.save(tmp_path)
    assert differences(OpenLearner.restore(tmp_path), twin) == []


def test_weights_that_were_left_half_moved_are_not_saved_and_not_learnt_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learner = learnt("er+ccldc")
    learner.save(tmp_path)
    before = everything(learner)
    x = batches(1)[0][0]

    def breaks() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learner.learner.peers[1], "step", breaks)
        with pytest.raises(KeyboardInterrupt):
            learner.learn(x, ["new"] * 6)
    assert "new" not in learner.classes
    for act in (partial(learner.learn, x, ["class 0"] * 6), partial(learner.save, tmp_path)):
        with pytest.raises(UserError, match="broke off while it moved weights"):
            act()
    assert everything(OpenLearner.restore(tmp_path)) == before


def test_weights_that_were_left_half_moved_at_the_start_of_a_task_are_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = learnt("er+ccldc", boundaries="new classes")
    before, x = everything(learner), batches(1)[0][0]

    def breaks() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner.learner.peers[1], "step", breaks)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(x, ["new"] * 6)
    assert everything(learner) == before


# --- a rule of the method's own


RULE = """
from peerlearn.methods import ER

class Nearest(ER):
    name = "nearest"

    def predict(self, answers, x):
        return answers.nearest_mean(x)
"""


def test_a_method_with_a_rule_of_its_own_predicts_by_it(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    learner = new(f"{tmp_path / 'rule.py'}:Nearest")
    right = []
    for x, labels in batches(6):
        if learner.classes:
            said = [learner.classes[n] for n in learner.learner.predict_ncm(x).tolist()]
            assert learner.predict(x) == said
            right += [one == label for one, label in zip(said, labels, strict=True)]
        learner.learn(x, labels)
    x = torch.cat([x for x, _ in batches(4, seed=5)])
    by_logits = learner.learner.logits(x).argmax(1)
    assert [learner.labels[n] for n in by_logits.tolist()] != learner.predict(x)
    assert learner.prequential == sum(right) / (len(right) + 6)  # nothing was known at first


def test_a_class_that_came_while_it_was_asked_is_not_of_that_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    learner = new(f"{tmp_path / 'rule.py'}:Nearest")
    x = batches(1)[0][0]
    learner.learn(x[:1], "old")
    read = learner._read

    def slowly(*given: Any) -> Tensor:
        monkeypatch.undo()
        learner.learn(255 - x[1:2], "new")
        return read(*given)

    monkeypatch.setattr(learner, "_read", slowly)
    both = [x[0], 255 - x[1]]
    assert learner.predict(both) == ["old", "old"]
    assert learner.predict(both) == ["old", "new"]


# --- before it is learnt


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_prequential_accuracy_is_that_of_predicting_first(window: int) -> None:
    learner, twin, silent = new(window=window), new(window=0), new(window=0)
    right: list[bool] = []
    assert math.isnan(learner.prequential)
    assert math.isnan(learner.recent)
    for x, labels in arriving(10):
        said = twin.predict(x) if twin.classes else [None] * len(x)
        right += [one == label for one, label in zip(said, labels, strict=True)]
        losses = learner.learn(x, labels)
        assert losses == twin.learn(x, labels) == silent.learn(x, labels)
        assert learner.prequential == sum(right) / len(right)
        assert learner.recent == sum(right[-window:]) / len(right[-window:])
    assert any(right)
    assert not all(right)
    assert same(tensors(learner.learner), tensors(silent.learner))  # to the bit
    assert same(tensors(twin.learner), tensors(silent.learner))
    assert learner.learner.cost == silent.learner.cost
    assert math.isnan(silent.prequential)
    assert silent.drift_hints == []


def test_a_stream_of_another_learner_is_refused() -> None:
    with pytest.raises(UserError, match="give boundaries= and labels="):
        new(stream=StreamInfo())


@pytest.mark.parametrize("window", [-1, 1.5, "all", None, True, 10**7, 10**40])
def test_a_window_that_cannot_be_is_refused(window: Any) -> None:
    with pytest.raises(UserError, match="window"):
        new(window=window)


# --- keeping


@pytest.mark.parametrize(
    ("name", "boundaries"),
    [("er+ema-chain", "none"), ("derpp+ccldc", "none"), ("ocm", "new classes")],
)
def test_at_every_moment_of_a_stream_a_restored_learner_goes_on_bit_for_bit(
    name: str, boundaries: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerlearn.live.learner.LEAST", 10)
    settings = {"boundaries": boundaries, "window": 20, "labels": ["announced"], "size": 8}
    unbroken, broken = new(name, **settings), new(name, **settings)
    for number, (x, labels) in enumerate(arriving(12)):
        extra = {"number": number, "more": [None, "x", 1.5]}
        broken.save(tmp_path, extra)
        broken = OpenLearner.restore(tmp_path)
        assert broken.extra == extra
        assert differences(broken, unbroken) == []
        if number == 8:
            assert broken.calibrate() == unbroken.calibrate()
        assert broken.learn(x, labels) == unbroken.learn(x, labels)
        assert differences(broken, unbroken) == []
        assert broken.predict(x) == unbroken.predict(x)
    assert len(unbroken.classes) == 7
    assert unbroken.temperature != 1


def test_labels_and_network_of_ones_own_come_back(tmp_path: Path) -> None:
    net = partial(small_net, width=4)
    learner = OpenLearner("er", memory=10, net=net)
    labels = ["cat", ("big", 1), None, 2.5, True, "ü"]
    learner.learn(batches(1)[0][0], labels)
    learner.save(tmp_path)
    with pytest.raises(UserError, match="give net="):
        OpenLearner.restore(tmp_path)
    again = OpenLearner.restore(tmp_path, net=net)
    assert repr(again.classes) == repr(labels)
    assert differences(again, learner) == []


def test_what_json_cannot_hold_is_not_saved_in_place_of_what_it_can(tmp_path: Path) -> None:
    learner = learnt()
    learner.save(tmp_path, {"good": True})
    for extra in ({1, 2}, object(), 10**400, torch.zeros(1)):
        with pytest.raises(UserError, match="extra: cannot be kept as JSON"):
            learner.save(tmp_path, extra)
    assert OpenLearner.restore(tmp_path).extra == {"good": True}


def test_the_checkpoint_of_another_learner_is_refused(tmp_path: Path) -> None:
    plain = build_learner("er", StreamInfo(), "small", memory=20, width=4)
    plain.learn(batches(1)[0][0], torch.arange(6))
    for extra in (None, 3, "open", [1], {"other": 1}, {"open": 1}, {"open": {}}):
        plain.save(tmp_path, extra)
        words = r"was not written by an OpenLearner.*OnlineLearner\.restore takes the others"
        with pytest.raises(UserError, match=words):
            OpenLearner.restore(tmp_path)
    assert OnlineLearner.restore(tmp_path).num_classes == 6


def test_there_is_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UserError, match=r"there is no state\.json"):
            OpenLearner.restore(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    learnt(window=10).save(folder)
    return folder


def doctored(folder: Path, change: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Change the record of a checkpoint; returns what puts it back."""
    path = folder / "state.json"
    text = path.read_text()
    state = json.loads(text)
    change(state["extra"]["open"])
    path.write_text(json.dumps(state))
    return lambda: path.write_text(text) and None


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["a", "b"]},
        {"labels": [f"{k}" for k in range(50)]},
        {"labels": ["a", "a", "b"]},
        {"labels": ["a", "b", {"c": 1}]},
        {"labels": ["a", "b", float("nan")]},
        {"labels": ["a", "b", ["c"]]},
        {"labels": "abc"},
        {"labels": None},
        {"labels": {"a": 0, "b": 1, "c": 2}},
        {"size": None},
        {"size": [8]},
        {"size": [8, 8, 8]},
        {"size": [16, 16]},
        {"size": [8.0, 8]},
        {"size": ["8", "8"]},
        {"size": [-8, -8]},
        {"size": 8},
        {"boundaries": "sometimes"},
        {"boundaries": "told"},
        {"boundaries": "new classes"},
        {"window": -1},
        {"window": 10**18},
        {"window": 10**40},
        {"window": "10"},
        {"window": 10.5},
        {"window": 9},  # ten answers are there
        {"right": -1},
        {"right": 25},
        {"right": 2.5},
        {"right": 0, "last": [True] * 10},
        {"count": -1},
        {"count": 23},
        {"count": True},
        {"last": [1] * 10},
        {"last": [True] * 11},
        {"last": []},
        {"last": None},
        {"drift": None},
        {"drift": {}},
        {"drift": {"seen": 24}},
        {"sureness": None},
        {"sureness": []},
        {"sureness": [[0.0] * 46] * 20},
        {"sureness": [[0.0] * 45] * 21},
        {"sureness": [[-1.0] * 46] * 21},
        {"sureness": [[float("nan")] * 46] * 21},
        {"temperature": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "1"},
        {"temperature": None},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_doctored_record_is_refused(change: dict[str, Any], saved: Path) -> None:
    undo = doctored(saved, lambda record: record.update(change))
    try:
        with pytest.raises(UserError, match=r"checkpoint .*is damaged"):
            OpenLearner.restore(saved)
    finally:
        undo()


@pytest.mark.parametrize(
    "change",
    [
        {"seen": -1},
        {"seen": 25},
        {"at": 3},
        {"at": ["3"]},
        {"at": [-3]},
        {"at": [25]},
        {"count": 25},
        {"count": -1},
        {"mean": float("nan")},
        {"mean": 2.0},
        {"sum": float("inf")},
        {"lowest": "0"},
        {"more": 0},
    ],
    ids=str,
)
def test_a_doctored_hint_is_refused(change: dict[str, Any], saved: Path) -> None:
    undo = doctored(saved, lambda record: record["drift"].update(change))
    try:
        with pytest.raises(UserError, match=r"checkpoint .*is damaged"):
            OpenLearner.restore(saved)
    finally:
        undo()


def test_every_part_of_a_record_is_needed_but_what_a_user_adds(saved: Path) -> None:
    names = json.loads((saved / "state.json").read_text())["extra"]["open"]
    for name in names.keys() - {"extra"}:
        undo = doctored(saved, lambda record, name=name: record.pop(name))  # type: ignore[misc]
        try:
            with pytest.raises(UserError, match="is damaged"):
                OpenLearner.restore(saved)
        finally:
            undo()
    assert OpenLearner.restore(saved).learner.num_classes == 3  # all is put back


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it forks")
def test_a_learner_that_is_killed_while_it_saves_is_restored(tmp_path: Path) -> None:
    process = PROCESSES.Process(target=killed_savers, args=(tmp_path, 5))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    stream = batches(5, classes=8)
    for folder in tmp_path.iterdir():
        learner, twin = OpenLearner.restore(folder), new(memory=10)
        for number in range(learner.extra["batches"]):
            twin.learn(*stream[number % 5])
        assert differences(learner, twin) == []
        assert learner.learn(*stream[0]) == twin.learn(*stream[0])
    assert len([*tmp_path.iterdir()]) == 5


# --- threads


def test_four_threads_ask_while_a_fifth_learns_new_classes_all_the_time() -> None:
    learner, twin = (new("er+ema-chain", boundaries="new classes") for _ in range(2))
    x = batches(1, seed=3)[0][0]
    stream = [(b, [f"class {k}", *labels[1:]]) for k, (b, labels) in enumerate(batches(9, seed=4))]
    given: list[str] = []
    learner.learn(*stream[0])
    given += stream[0][1]
    over, faults, asked = threading.Event(), list[BaseException](), [0] * 4

    def ask(number: int) -> None:
        known = 0
        try:
            while not over.is_set():
                before = len(learner.classes)
                said = learner.predict(x, details=True) if number % 2 else None
                labels = learner.predict(x) if said is None else said.labels
                classes = learner.classes if said is None else said.classes
                assert {*labels} <= {*classes} <= {*given}
                assert before >= known  # classes come and do not go
                assert len(classes) >= before
                if said is not None:
                    assert said.probabilities.shape == (len(x), len(classes))
                    torch.testing.assert_close(said.probabilities.sum(1), torch.ones(len(x)))
                known = before
                asked[number] += 1
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for batch in stream[1:]:
        given += batch[1]
        learner.learn(*batch)
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert faults == []
    assert all(asked)
    for batch in stream:
        twin.learn(*batch)
    assert differences(learner, twin) == []


def test_a_class_that_is_being_learnt_is_no_answer_yet() -> None:
    learner = learnt()
    x = batches(1)[0][0]
    before = learner.predict(x, details=True)
    reached, go_on = threading.Event(), threading.Event()
    loss = learner.learner.method.loss

    def waiting(peer: Any, draw: Any) -> Any:
        outcome = loss(peer, draw)
        reached.set()
        assert go_on.wait(PATIENCE)
        return outcome

    learner.learner.method.loss = waiting  # type: ignore[method-assign]
    step = threading.Thread(target=learner.learn, args=(x, ["new"] * 6))
    step.start()
    try:
        assert reached.wait(PATIENCE)
        assert learner.learner.num_classes == 4  # it has its place already
        assert "new" not in learner.classes
        during = learner.predict(x, details=True)
        assert during.classes == before.classes
        torch.testing.assert_close(during.probabilities, before.probabilities)
        assert learner.predict(x) == before.labels
        assert learner.predict_proba(x).shape == (6, 3)
    finally:
        go_on.set()
        step.join(PATIENCE)
    assert learner.classes[-1] == "new"
    assert learner.predict_proba(x).shape == (6, 4)


@pytest.mark.parametrize("announced", [["class 1"], ["x", "class 0"]])
def test_within_the_first_batch_only_what_was_announced_is_an_answer(announced: list[str]) -> None:
    learner = new(size=8, labels=announced)
    x, labels = batches(1, classes=6)[0]
    before, said = learner.predict_proba(x), list[Any]()
    step = learner.learner._step
    compute = step.gradients

    def asking(*given: Any) -> Any:
        thread = threading.Thread(target=lambda: said.append(learner.predict(x, details=True)))
        thread.start()
        thread.join(PATIENCE)
        return compute(*given)

    step.gradients = asking  # type: ignore[method-assign]
    learner.learn(x, labels)
    assert said[0].classes == announced
    torch.testing.assert_close(said[0].probabilities, before)
    assert {*said[0].labels} <= {*announced}


def test_steps_that_fail_trouble_nobody_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learnt(boundaries="new classes", window=0)
    x = batches(1)[0][0]
    expected, over = learner.predict_proba(x), threading.Event()
    said, faults = list[Tensor](), list[BaseException]()
    break_learning(learner, monkeypatch)

    def ask() -> None:
        try:
            while not over.is_set():
                said.append(learner.predict_proba(x))
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    thread = threading.Thread(target=ask)
    thread.start()
    for number in range(12):
        with pytest.raises(BrokenError):
            learner.learn(x, [f"new {number}"] * 6)
    over.set()
    thread.join(PATIENCE)
    assert faults == []
    assert len(said) > 5
    for one in said:
        torch.testing.assert_close(one, expected)
    assert learner.learner.progress.task == 0


def test_savers_and_learners_take_turns(tmp_path: Path) -> None:
    learner, faults = new(), list[BaseException]()
    over = threading.Event()

    def save() -> None:
        try:
            while not over.is_set():
                learner.save(tmp_path)
                again = OpenLearner.restore(tmp_path)
                assert again._prequential.count == again.learner.memory.seen
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    thread = threading.Thread(target=save)
    thread.start()
    for batch in arriving(16):
        learner.learn(*batch)
    over.set()
    thread.join(PATIENCE)
    assert faults == []


def test_labels_of_a_batch_that_failed_are_forgotten_though_it_rehearsed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learner = learnt("er")
    known, x = learner.classes, batches(1)[0][0]

    def fails(*_: Any, **__: Any) -> Any:
        learner.rehearse()  # as another thread does
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(learner.learner, "learn", fails)
        with pytest.raises(RuntimeError):
            learner.learn(x, ["new"] * 6)
    assert learner.classes == known == list(learner.labels)
    learner.save(tmp_path)
    assert OpenLearner.restore(tmp_path).classes == known
