"""RiverClassifier learns images one by one, with River and without."""

import pickle
import runpy
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from peerlearn import UserError, toy_images
from peerlearn.adapters import RiverClassifier
from peerlearn.adapters import river as adapter

TOY = toy_images()
X = np.moveaxis(TOY.train.x.numpy(), 1, -1)  # (200, 8, 8, 3)
NAMES = ["fox", "ant", "cow", "bee"]
Y = [NAMES[k] for k in TOY.train.y]
new = partial(RiverClassifier, name="er", net="small", memory=40, settings={"lr": 1e-2})


def taught(model: Any, start: int, end: int) -> Any:
    for x, y in zip(X[start:end], Y[start:end], strict=True):
        model.learn_one(x, y)
    return model


# ---- learning


def test_images_wait_until_they_make_a_batch() -> None:
    model = new(batch=4)
    taught(model, 0, 3)
    assert model.predict_one(X[0]) is None
    assert model.predict_proba_one(X[0]) == {}
    assert model.predict_many(X[:2]) == [None, None]
    assert model.predict_proba_many(X[:2]) == [{}, {}]
    taught(model, 3, 4)
    assert model.learner.classes == NAMES
    before = model.predict_proba_one(X[0])
    taught(model, 4, 7)
    assert model.predict_proba_one(X[0]) == before
    taught(model, 7, 8)
    assert model.predict_proba_one(X[0]) != before


def test_one_by_one_is_learnt_as_batches_are() -> None:
    (
        single,
        many,
    ) = taught(new(batch=10), 0, 40), new(batch=3)
    for start in range(0, 40, 10):
        many.learn_many(X[start : start + 10], Y[start : start + 10])
    assert single.predict_proba_many(X[:20]) == many.predict_proba_many(X[:20])


def test_flush_learns_what_waits_and_then_nothing() -> None:
    model, other = taught(new(batch=10), 0, 14), new()
    model.flush()
    other.learn_many(X[:10], Y[:10])
    other.learn_many(X[10:14], Y[10:14])
    assert model.predict_proba_many(X[:20]) == other.predict_proba_many(X[:20])
    model.flush()
    assert model.learner.learner.progress.batches == 2


def test_a_batch_is_learnt_after_those_that_wait() -> None:
    model = taught(new(batch=10), 0, 14)
    model.learn_many(X[14:20], Y[14:20])
    assert model.learner.learner.progress.batches == 3
    model.flush()
    assert model.learner.learner.progress.batches == 3


def test_an_image_that_waits_is_a_copy() -> None:
    model, camera = new(batch=10), np.empty((1, 3, 8, 8), np.uint8)
    for x, y in zip(X[:10], Y[:10], strict=True):
        camera[0] = np.moveaxis(x, -1, 0)  # nothing to convert: its memory could be kept
        model.learn_one(camera, y)
    assert model.learner.learner.memory["x"].float().std(dim=0).max() > 0
    wanted = taught(new(batch=10), 0, 10)
    assert model.predict_proba_many(X[:20]) == wanted.predict_proba_many(X[:20])


def test_what_is_refused_does_not_wait() -> None:
    model = taught(new(batch=3), 0, 2)
    for x, y in ((X[0] * 2.0, "fox"), (X[0], {"fox"}), (X[0], float("nan")), ({"img": 1}, "fox")):
        with pytest.raises(UserError):
            model.learn_one(x, y)
    assert not model.learner.classes
    taught(model, 2, 3)
    assert model.learner.learner.memory["y"].tolist() == [0, 1, 2]


def test_a_batch_that_fails_leaves_those_before_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    model = taught(new(batch=3), 0, 2)

    def fails(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(model.learner, "learn", fails)
        with pytest.raises(MemoryError):
            taught(model, 2, 3)
    taught(model, 2, 3)
    assert model.learner.learner.memory.seen == 3


# ---- images and answers


def test_an_image_may_come_as_a_dict_or_as_itself_in_any_kind() -> None:
    model = taught(new(), 0, 30)
    wanted = model.predict_proba_one(X[0])
    kinds = (X[0] / 255, Image.fromarray(X[0]), TOY.train.x[0])
    for image in (X[0], *kinds):
        assert model.predict_proba_one(image) == wanted
        assert model.predict_proba_one({"image": image, "id": 7}) == wanted
    assert model.predict_proba_many([{"image": image} for image in kinds]) == [wanted] * 3
    assert model.predict_proba_many({"image": X[:1]}) == [wanted]


def test_a_table_has_its_images_in_a_column() -> None:
    pandas = pytest.importorskip("pandas")
    table, y = pandas.DataFrame({"image": [*X[:20]], "id": range(20)}), pandas.Series(Y[:20])
    model, other = new(), new()
    model.learn_many(table, y)
    other.learn_many(X[:20], Y[:20])
    assert model.predict_many(table) == other.predict_many(X[:20])


def test_features_that_are_no_image_are_refused() -> None:
    for call in (new().predict_one, new().predict_proba_one):
        with pytest.raises(UserError, match=r"without 'image', it has 0, 1; give {'image': image}"):
            call({0: 0.5, 1: 0.25})


def test_probabilities_are_of_every_label_and_the_likeliest_is_the_answer() -> None:
    model = taught(new(batch=5), 0, 200)
    assert [*model.predict_proba_one(X[0])] == NAMES
    found = model.predict_proba_many(X)
    assert all(sum(row.values()) == pytest.approx(1) for row in found)
    assert [max(row, key=row.__getitem__) for row in found] == model.predict_many(X)
    assert np.mean(np.array(model.predict_many(X)) == Y) > 0.8


def test_another_thread_predicts() -> None:
    model, found = taught(new(), 0, 30), []
    thread = threading.Thread(target=lambda: found.append(model.predict_one(X[0])))
    thread.start()
    thread.join()
    assert found == [model.predict_one(X[0])]


def test_a_pickle_goes_on_exactly_with_what_waits() -> None:
    for count in (0, 3, 27):
        model = taught(new(batch=5), 0, count)
        copy = pickle.loads(pickle.dumps(model))
        for one in (model, copy):
            taught(one, count, 41)
        assert copy.predict_proba_many(X[:20]) == model.predict_proba_many(X[:20])
        copy.flush()
        assert copy.predict_proba_many(X[:20]) != model.predict_proba_many(X[:20])


def test_a_window_is_a_setting_and_there_is_none_by_itself() -> None:
    settings = {"lr": 1e-2, "window": 20}
    assert taught(new(batch=5, settings=settings), 0, 40).learner.recent >= 0
    assert np.isnan(taught(new(batch=5), 0, 40).learner.recent)


@pytest.mark.parametrize("settings", [{"memory": 5}, {"window": -5}, {"leanr": 1}, 5])
def test_settings_are_refused_at_once(settings: Any) -> None:
    with pytest.raises(UserError):
        new(settings=settings)
    with pytest.raises(UserError, match="batch"):
        new(batch=0)


# ---- River itself


def test_without_river_all_but_its_base_class_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.base", None)
    alone = runpy.run_path(adapter.__file__)["RiverClassifier"]
    assert alone.__mro__[1:] == (object,)
    model = taught(alone("er", net="small", memory=40, batch=5), 0, 20)
    assert model.predict_one(X[0]) in NAMES


def test_river_knows_it_for_a_classifier_of_many_classes() -> None:
    base = pytest.importorskip("river.base")
    model = new()
    assert isinstance(model, base.Classifier)
    assert isinstance(model, base.MiniBatchClassifier)
    assert model._multiclass
    assert "er" in repr(model)


@pytest.mark.parametrize("as_dict", [True, False])
def test_river_evaluates_it_progressively(as_dict: bool) -> None:
    pytest.importorskip("river")
    from river import evaluate, metrics

    stream = [({"image": x} if as_dict else x, y) for x, y in zip(X[:100], Y[:100], strict=True)]
    model = new(batch=5)
    metric = evaluate.progressive_val_score(stream, model, metrics.Accuracy())
    assert metric.cm.n_samples == 95  # there is no answer before the first batch
    assert metric.get() > 0.5
    assert evaluate.progressive_val_score(stream[:20], model, metrics.CrossEntropy()).get() < 1


def test_a_river_clone_has_the_parameters_and_has_learnt_nothing() -> None:
    pytest.importorskip("river")
    model = taught(new(batch=5), 0, 20)
    fresh = model.clone()
    assert fresh.predict_one(X[0]) is None
    assert fresh._get_params() == model._get_params()
    assert taught(fresh, 0, 20).predict_proba_one(X[0]) == model.predict_proba_one(X[0])
    whole = model.clone(include_attributes=True)
    assert whole.predict_proba_one(X[0]) == model.predict_proba_one(X[0])


def test_river_counts_the_memory_of_tensors() -> None:
    pytest.importorskip("river")
    model = taught(new(batch=10), 0, 30)
    empty = model._raw_memory_usage
    assert empty >= 30 * 192
    taught(model, 30, 34)
    assert model._raw_memory_usage == empty + 4 * 192
