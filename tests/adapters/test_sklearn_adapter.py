"""PeerClassifier is what scikit-learn calls a classifier, and what we call a learner."""

import pickle
import runpy
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from peerlearn import UserError, small_net, toy_images

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from peerlearn.adapters import PeerClassifier  # noqa: E402
from peerlearn.adapters import sklearn as adapter  # noqa: E402

TOY = toy_images()
X, Y = TOY.train.x.numpy(), TOY.train.y.numpy()  # classes 0 to 3 take turns
TEST_X, TEST_Y = TOY.test.x.numpy(), TOY.test.y.numpy()
NAMES = np.array(["fox", "ant", "cow", "bee"])
new = partial(PeerClassifier, name="er", net="small", memory=40, settings={"width": 4})
fast = partial(new, batch=5, settings={"lr": 1e-2})  # enough to know toy images in one pass

# ---- the checks of scikit-learn

any_pixels = adapter.as_images


@parametrize_with_checks([new(memory=20, settings={"width": 2})])
def test_scikit_learn_finds_nothing_wrong(
    estimator: PeerClassifier, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows have any length and any range: here, and only here, they are read as pixels."""

    def squashed(rows: Any, _: Any) -> Any:
        return any_pixels(np.tanh(np.asarray(rows, float)), (1, rows.shape[1]))

    monkeypatch.setattr(adapter, "as_images", squashed)
    check(estimator)


# ---- learning


def test_one_pass_over_toy_images_is_enough_to_know_them() -> None:
    assert fast().fit(X, Y).score(TEST_X, TEST_Y) > 0.8


def test_parts_are_learnt_as_the_whole_if_batches_fall_the_same() -> None:
    whole = new().fit(X[:70], Y[:70])
    parts = new()
    for start, end in ((0, 10), (10, 40), (40, 70)):
        parts.partial_fit(X[start:end], Y[start:end])
    assert np.array_equal(whole.predict_proba(TEST_X), parts.predict_proba(TEST_X))
    parts.partial_fit(X[70:], Y[70:])
    assert not np.array_equal(whole.predict_proba(TEST_X), parts.predict_proba(TEST_X))


def test_batches_that_fall_otherwise_are_learnt_otherwise() -> None:
    one = new().fit(X[:60], Y[:60]).predict_proba(TEST_X)
    assert not np.array_equal(one, new(batch=20).fit(X[:60], Y[:60]).predict_proba(TEST_X))
    assert not np.array_equal(one, new(seed=1).fit(X[:60], Y[:60]).predict_proba(TEST_X))


def test_fit_forgets_what_was_learnt_before() -> None:
    twice = new().fit(X[::-1], NAMES[Y[::-1]]).fit(X[:50], Y[:50])
    assert twice.classes_.tolist() == [0, 1, 2, 3]
    once = new().fit(X[:50], Y[:50])
    assert np.array_equal(twice.predict_proba(TEST_X), once.predict_proba(TEST_X))


def test_partial_fit_goes_on_after_fit() -> None:
    after = new().fit(X[:40], Y[:40]).partial_fit(X[40:60], Y[40:60])
    whole = new().fit(X[:60], Y[:60])
    assert np.array_equal(after.predict_proba(TEST_X), whole.predict_proba(TEST_X))


def test_a_fit_that_fails_leaves_the_old_learner() -> None:
    model = new().fit(X[:30], Y[:30])
    before = model.predict_proba(TEST_X)
    with pytest.raises(UserError, match="has no setting 'widht'; did you mean width"):
        model.set_params(settings={"widht": 4}).fit(X[:30], Y[:30])
    assert np.array_equal(model.predict_proba(TEST_X), before)


SMALL = X[:30, :, ::2, ::2]  # of another shape


@pytest.mark.parametrize(
    ("x", "y", "wrong"),
    [
        (SMALL * 2.0, Y[:30], {}),
        (SMALL, Y[:30] / 7, {}),
        (SMALL, Y[:30], {"settings": {"widht": 4}}),
        (SMALL, Y[:30], {"batch": 0}),
    ],
    ids=["values", "labels", "settings", "batch"],
)
def test_a_fit_of_another_shape_that_fails_leaves_all_that_was_fitted(
    x: Any, y: Any, wrong: dict[str, Any]
) -> None:
    model = new().fit(X[:30], Y[:30])
    fitted, answers = dict(vars(model)), model.predict_proba(TEST_X)
    with pytest.raises(ValueError, match=r"pixels|label type|widht|batch"):
        model.set_params(**wrong).fit(x, y)
    assert vars(model) == {**fitted, **wrong}
    assert np.array_equal(model.predict_proba(TEST_X), answers)
    model.set_params(settings={"width": 4}, batch=10).partial_fit(X[30:60], Y[30:60])


def test_a_window_shows_the_accuracy_before_learning() -> None:
    assert new(window=20).fit(X[:60], Y[:60]).learner_.recent >= 0
    assert np.isnan(new().fit(X[:60], Y[:60]).learner_.recent)


# ---- images


def test_the_same_images_in_other_shapes_are_the_same() -> None:
    wanted = new().fit(X[:50], Y[:50]).predict_proba(TEST_X)
    last = np.moveaxis(X, 1, -1)
    rows = X.reshape(len(X), -1)
    for model, x, test in (
        (new(), last, np.moveaxis(TEST_X, 1, -1)),
        (new(image_shape=(3, 8, 8)), rows, TEST_X),
        (new(image_shape=(8, 8, 3)), last.reshape(len(X), -1), np.moveaxis(TEST_X, 1, -1)),
        (new(), X / 255, TEST_X.reshape(len(TEST_X), -1)),
        (new(), TOY.train.x, TOY.test.x),
    ):
        model.fit(x[:50], Y[:50])
        assert np.array_equal(model.predict_proba(test), wanted)
        assert model.n_features_in_ == 192


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("shape", [(8, 8), (8, 3), (8, 1)])
def test_rows_with_two_sides_are_grey_however_many_and_narrow(
    count: int, shape: tuple[int, int]
) -> None:
    grey = np.random.default_rng(0).random((count, *shape))
    model = new().fit(grey, np.arange(count) % 2)
    assert model.learner_.size == shape
    flat = new(image_shape=shape).fit(grey.reshape(count, -1), np.arange(count) % 2)
    assert np.array_equal(model.predict_proba(grey), flat.predict_proba(grey))


def test_digits_are_learnt_once_they_are_divided_by_16() -> None:
    x, y = load_digits(return_X_y=True)
    model = new(image_shape=(8, 8))
    with pytest.raises(UserError, match=r"got up to 16; divide by .* such as X / 16"):
        model.fit(x, y)
    assert model.fit(x[:100] / 16, y[:100]).predict(x[:5] / 16).shape == (5,)
    with pytest.raises(UserError, match="X / 16"):
        model.predict(x)


def test_a_scaler_to_0_and_1_may_stand_before_it() -> None:
    x = np.random.default_rng(1).normal(size=(200, 64))
    assert MinMaxScaler().fit_transform(x).max() > 1  # by a rounding
    pipe = make_pipeline(MinMaxScaler(), new(image_shape=(8, 8))).fit(x, Y)
    assert pipe.predict(x).shape == (200,)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X.reshape(200, -1), r"give image_shape, such as \(3, 8, 8\)"),
        (X[:, 0].reshape(200, -1), r"give image_shape, such as \(8, 8\)"),
        (X * 1.0, r"divide by .* such as X / 255"),
        (X / 255 * 1.000004, r"got up to 1\.000004; divide by"),
        (X / 255 - 0.5, "Negative values in data, from -0.5; .* before they were normalised"),
        (X.astype(int), r'got int64 up to 255; .* give X.astype\("uint8"\)'),
        (np.where(X > 9, np.nan, 0.5), "NaN"),
        (X[0, 0, 0], "Reshape your data"),
        (X[None], "dim 5"),
        (X[:0], "0 sample"),
    ],
)
def test_what_is_no_image_is_refused(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        new().fit(x, Y[: len(x)])


@pytest.mark.parametrize("shape", [(8, 9), (4, 48, 1, 1), 192, "8x8", (8.0, 24), (-8, -24), ()])
def test_an_image_shape_that_does_not_fit_is_refused(shape: Any) -> None:
    for x in (X.reshape(200, -1), X):
        with pytest.raises(UserError, match="image_shape"):
            new(image_shape=shape).fit(x, Y)


def test_images_of_another_shape_are_refused_not_resized() -> None:
    model = new().fit(X[:20], Y[:20])
    with pytest.raises(ValueError, match="X has 48 features, but PeerClassifier is expecting 192"):
        model.predict(TEST_X[:, :, ::2, ::2])
    with pytest.raises(UserError, match=r"\(8, 8, 3\), and should have \(3, 8, 8\)"):
        model.partial_fit(np.moveaxis(X, 1, -1), Y)


def test_who_wants_images_resized_says_so() -> None:
    assert new(settings={"width": 4, "size": 16}).fit(X[:20], Y[:20]).learner_.size == (16, 16)


# ---- labels


def test_columns_of_probabilities_are_in_the_order_of_the_sorted_classes() -> None:
    numbers, names = new().fit(X, Y), new().fit(X, NAMES[Y])
    assert names.learner_.classes == NAMES.tolist()  # as they arrived
    assert names.classes_.tolist() == ["ant", "bee", "cow", "fox"]
    by_number, by_name = numbers.predict_proba(TEST_X), names.predict_proba(TEST_X)
    assert np.array_equal(by_name, by_number[:, np.argsort(NAMES)])
    assert np.array_equal(names.classes_[by_name.argmax(axis=1)], names.predict(TEST_X))
    assert np.array_equal(names.predict(TEST_X), NAMES[numbers.predict(TEST_X)])
    assert np.allclose(by_name.sum(axis=1), 1, rtol=1e-12)


def test_classes_that_appear_later_are_learnt() -> None:
    old, late = Y < 2, Y >= 2
    model = fast().partial_fit(X[old], NAMES[Y[old]])
    assert model.classes_.tolist() == ["ant", "fox"]
    assert model.predict_proba(TEST_X).shape == (80, 2)
    model.partial_fit(X[late], NAMES[Y[late]])
    assert model.classes_.tolist() == ["ant", "bee", "cow", "fox"]
    assert model.predict_proba(TEST_X).shape == (80, 4)
    new_ones = TEST_Y >= 2
    assert model.score(TEST_X[new_ones], NAMES[TEST_Y[new_ones]]) > 0.4  # it was 0


def test_classes_that_are_announced_have_columns_from_the_first_call_on() -> None:
    model = new().partial_fit(X[:20], Y[:20] % 2, classes=[3, 2, 1, 0])
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.predict_proba(TEST_X).shape == (80, 4)


def test_classes_may_be_told_again_with_those_of_the_batch_but_no_others() -> None:
    model = new().partial_fit(X[:20], Y[:20] % 2, classes=[0, 1])
    model.partial_fit(X[:20], Y[:20] % 2 + 1, classes=[0, 1, 2])
    before = model.predict_proba(TEST_X)
    with pytest.raises(UserError, match="classes: 9 was not there at the first call"):
        model.partial_fit(X[:20], Y[:20] % 2, classes=[0, 1, 9])
    assert np.array_equal(model.predict_proba(TEST_X), before)


def test_labels_without_an_order_are_refused_and_nothing_is_learnt() -> None:
    model = new().fit(X[:20], Y[:20])
    before = model.predict_proba(TEST_X)
    with pytest.raises(UserError, match=r"without an order \(int, str\)"):
        model.partial_fit(X[:20], NAMES[Y[:20]])
    assert np.array_equal(model.predict_proba(TEST_X), before)


# ---- as an estimator


def test_a_clone_has_the_parameters_and_nothing_else() -> None:
    model = new(image_shape=(3, 8, 8), batch=5).fit(X[:20], Y[:20])
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.settings is not model.settings
    with pytest.raises(NotFittedError):
        copy.predict(TEST_X)
    copy.settings["width"] = 2
    assert model.settings == {"width": 4}


def test_a_search_tries_settings() -> None:
    grid = {"settings": [{"width": 2}, {"width": 4, "lr": 1e-2}], "batch": [20]}
    search = GridSearchCV(new(), grid, cv=2, error_score="raise").fit(X[:80], NAMES[Y[:80]])
    assert len(search.cv_results_["params"]) == 2
    assert {*search.predict(TEST_X)} <= {*NAMES}


@pytest.mark.parametrize("net", ["small", small_net])
def test_a_pickle_goes_on_exactly_as_the_original(net: Any) -> None:
    settings = {"peers_at_once": 2}
    model = new(name="er+ccldc", net=net, settings=settings).fit(X[:30], NAMES[Y[:30]])
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model))))
    assert np.array_equal(copy.predict_proba(TEST_X), model.predict_proba(TEST_X))
    for one in (model, copy):
        one.partial_fit(X[30:60], NAMES[Y[30:60]])
    assert np.array_equal(copy.predict_proba(TEST_X), model.predict_proba(TEST_X))
    assert copy.get_params() == model.get_params()
    assert copy.learner_.learner.pool.count == model.learner_.learner.pool.count


def test_other_threads_predict_while_it_learns_new_classes() -> None:
    model = new().partial_fit(X[Y < 2], Y[Y < 2])
    found: list[Any] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            found.append((model.predict_proba(TEST_X[:5]), model.predict(TEST_X[:5])))

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(3):
        model.partial_fit(X, Y)
    ended.set()
    thread.join()
    assert found
    assert {probabilities.shape[1] for probabilities, _ in found} <= {2, 4}
    assert all(np.allclose(probabilities.sum(axis=1), 1) for probabilities, _ in found)
    assert {label for _, labels in found for label in labels} <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch": 0}, "batch: must be a whole number of images from 1 on, got 0"),
        ({"batch": 2.5}, "batch: must be"),
        ({"settings": {"memory": 5}}, "settings: memory does not belong there"),
        (
            {"settings": {"labels": [1]}},
            "labels does not belong there; take partial_fit's classes=",
        ),
        ({"settings": "lr"}, "settings: need a dict"),
        ({"name": "err"}, "did you mean er"),
    ],
)
def test_parameters_are_refused_when_they_are_used(
    parameters: dict[str, Any], message: str
) -> None:
    model = PeerClassifier(**parameters)  # as scikit-learn wants it
    with pytest.raises(UserError, match=message):
        model.fit(X[:20], Y[:20])


def test_without_scikit_learn_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(UserError, match=r"pip install 'peerlearn\[analysis\]'"):
        runpy.run_path(adapter.__file__)
