"""Streams by their published names, each against its rule once more in plain lists."""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pytest
import torch
import yaml
from test_stream import numbered, numbers, same, uneven

from peerlearn import METHODS, build_learner, cli, small_net
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.toy import toy_images
from peerlearn.errors import UserError
from peerlearn.experiment import run as running
from peerlearn.experiment.config_file import read_file
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.settings import STREAMS, StreamName
from peerlearn.experiment.vocabulary import refuse_unused
from peerlearn.records.folder import run_path
from peerlearn.records.read import read_runs
from peerlearn.records.schema import Config
from peerlearn.results.compare import compare
from peerlearn.stream import (
    ClassStream,
    GaussianStream,
    HalfNormalStream,
    IBlurryStream,
    SiBlurryStream,
    class_order,
)
from peerlearn.stream.dataset import DatasetStream

Make = Callable[..., DatasetStream]
KINDS: dict[str, Make] = {
    "i-blurry": IBlurryStream,
    "si-blurry": SiBlurryStream,
    "half-normal": lambda *args, **own: HalfNormalStream(*args, **{"blur_scale": 25, **own}),
    "gaussian": GaussianStream,
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def passed(stream: DatasetStream) -> list[list[int]]:
    """The numbers of the images of each task, in the order in which they pass."""
    return [[n for batch in task for n in numbers(batch)] for task in stream]


def counts(stream: DatasetStream) -> list[list[int]]:
    """How many images of each label pass in each task."""
    size = stream.info.num_classes
    return [torch.cat([b.y for b in task]).bincount(minlength=size).tolist() for task in stream]


def even(classes: int, each: int) -> Dataset:
    return toy_images(num_classes=classes, train_per_class=each, test_per_class=2, size=2)


def labels_of(data: Dataset, seed: int) -> list[int]:
    order = class_order(data.train.num_classes, seed)
    return [order.index(k) for k in data.train.y.tolist()]


def shuffled(images: list[int], seed: int, task: int) -> list[int]:
    order = np.random.RandomState([seed, task]).permutation(len(images))
    return [sorted(images)[j] for j in order]


# --- the rules, plainly


def i_blurry(
    data: Dataset, kinds: list[tuple[int, int]], seed: int, percent: int, name: bytes
) -> list[list[int]]:
    """kinds: how many disjoint and blurry classes each task has."""
    y = labels_of(data, seed)
    rng = np.random.RandomState([seed, *name])
    held: list[list[int]] = []
    pool: list[int] = []
    label = 0
    for disjoint, blurry in kinds:
        alone = range(label, label + disjoint)
        shared = range(label + disjoint, label + disjoint + blurry)
        label += disjoint + blurry
        images = [i for i, k in enumerate(y) if k in shared]
        order = [images[j] for j in rng.permutation(len(images))]
        taken = order[: len(images) * percent // 100]
        pool += taken
        held.append([i for i, k in enumerate(y) if k in alone or (k in shared and i not in taken)])
    pool = [pool[j] for j in rng.permutation(len(pool))]
    m, tasks = len(pool), len(kinds)
    if name == b"si-blurry":
        ends = [*sorted(rng.randint(0, m + 1, tasks - 1)), m]
    else:
        ends = [(t + 1) * m // tasks for t in range(tasks)]
    start = 0
    for t, end in enumerate(ends):
        held[t] += pool[start:end]
        start = end
    return [shuffled(images, seed, t) for t, images in enumerate(held)]


def si_blurry_numbers(disjoint: int, blurry: int, tasks: int, seed: int) -> list[tuple[int, int]]:
    rng = np.random.RandomState([seed, *b"si-blurry sizes"])
    while True:
        numbers = []
        for size in (disjoint, blurry):
            cuts = [0, *sorted(rng.randint(0, size + 1, tasks - 1)), size]
            numbers.append([int(cuts[t + 1] - cuts[t]) for t in range(tasks)])
        found = [(numbers[0][t], numbers[1][t]) for t in range(tasks)]
        if (0, 0) not in found:
            return found


def half_normal(images: list[int], seed: int, scale: float) -> list[int]:
    rng = np.random.RandomState([seed, *b"half-normal"])
    left, found = list(images), []
    while left:
        i = int(abs(rng.normal(0, scale)))
        again = 0
        while i >= len(left) and again < 10:
            i = int(abs(rng.normal(0, scale)))
            again += 1
        if i >= len(left):
            i = 0
        found.append(left[i])
        del left[i]
    return found


def gaussian(y: list[int], classes: int, seed: int, sigma: float) -> list[int]:
    rng = np.random.RandomState([seed, *b"gaussian"])
    times: dict[int, float] = {}
    while len(times) < len(y):
        for image in [i for i in range(len(y)) if i not in times]:
            time = rng.normal(y[image] / classes, sigma)
            if 0 <= time <= 1:
                times[image] = time
    return sorted(range(len(y)), key=lambda i: (times[i], i))


def stretches(images: list[int], tasks: int) -> list[list[int]]:
    short, rest = divmod(len(images), tasks)
    found, start = [], 0
    for t in range(tasks):
        end = start + short + (t < rest)
        found.append(images[start:end])
        start = end
    return found


@pytest.mark.parametrize(("seed", "disjoint", "blur"), [(0, 50, 10), (3, 0, 40), (5, 100, 90)])
def test_i_blurry_deals_as_documented(seed: int, disjoint: int, blur: int) -> None:
    stream = IBlurryStream(uneven(), 3, seed=seed, disjoint=disjoint, blur=blur)
    kinds = [(2 * disjoint // 100, 2 - 2 * disjoint // 100)] * 3
    assert passed(stream) == i_blurry(uneven(), kinds, seed, blur, b"i-blurry")


@pytest.mark.parametrize(("seed", "disjoint", "blur"), [(0, 50, 10), (3, 0, 40), (6, 50, 90)])
def test_si_blurry_deals_as_documented(seed: int, disjoint: int, blur: int) -> None:
    stream = SiBlurryStream(uneven(), 3, seed=seed, disjoint=disjoint, blur=blur)
    kinds = si_blurry_numbers(6 * disjoint // 100, 6 - 6 * disjoint // 100, 3, seed)
    assert passed(stream) == i_blurry(uneven(), kinds, seed, blur, b"si-blurry")


@pytest.mark.parametrize(("seed", "scale"), [(0, 25), (3, 4.5), (5, 5000)])
def test_half_normal_deals_as_documented(seed: int, scale: float) -> None:
    plain = [n for task in passed(ClassStream(uneven(), 3, seed=seed)) for n in task]
    stream = HalfNormalStream(uneven(), 3, seed=seed, blur_scale=scale)
    assert passed(stream) == stretches(half_normal(plain, seed, scale), 3)


@pytest.mark.parametrize(("seed", "sigma"), [(0, 0.1), (3, 0.001), (5, 1)])
def test_gaussian_deals_as_documented(seed: int, sigma: float) -> None:
    stream = GaussianStream(uneven(), 3, seed=seed, sigma=sigma)
    found = gaussian(labels_of(uneven(), seed), 6, seed, sigma)
    assert passed(stream) == stretches(found, 3)


# --- for ever


@pytest.mark.parametrize(
    ("name", "first", "digest"),
    [
        ("i-blurry", [149, 110, 2, 92, 126, 217], "4e5fcebd57ef435d"),
        ("si-blurry", [154, 116, 2, 95, 131, 217], "a3ce084669696b82"),
        ("half-normal", [119, 224, 116, 131, 136, 134], "43254c18448c3570"),
        ("gaussian", [154, 71, 158, 219, 166, 222], "f5284e1147b28067"),
    ],
)
def test_the_stream_of_a_seed_is_the_same_for_ever(
    name: str, first: list[int], digest: str
) -> None:
    found = passed(KINDS[name](uneven(), 3, 10, 5))
    assert found[0][:6] == first
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == digest


@every_kind
def test_another_seed_deals_otherwise(make: Make) -> None:
    images = numbered([0, 1, 2, 3] * 25, 4)
    alike = [seed for seed in range(100) if class_order(4, seed) == class_order(4, 0)]
    dealt = [passed(make(Dataset(images, images, "four"), 2, 10, seed)) for seed in alike[:2]]
    assert [sorted(task) for task in dealt[0]] != [sorted(task) for task in dealt[1]]


@every_kind
def test_every_image_passes_exactly_once(make: Make) -> None:
    seen = [n for task in passed(make(uneven(), 3, 10, 1)) for n in task]
    assert sorted(seen) == list(range(len(uneven().train)))


@every_kind
def test_a_stream_can_be_read_again_and_from_any_batch(make: Make) -> None:
    for task in make(uneven(), 3, 7):
        whole = list(task)
        assert len(whole) == len(task)
        assert same(list(task), whole)
        for k in range(len(task) + 1):
            assert same(list(task.batches(start=k)), whole[k:])


@every_kind
def test_a_second_pass_shows_a_task_again_in_another_order(make: Make) -> None:
    for once, twice in zip(make(uneven(), 3), make(uneven(), 3, epochs=2), strict=True):
        batches, size = list(twice), len(once)
        assert same(batches[:size], list(once))
        passes = [
            [n for b in part for n in numbers(b)] for part in (batches[:size], batches[size:])
        ]
        assert passes[0] != passes[1]
        assert sorted(passes[0]) == sorted(passes[1])


# --- what is told, and tested


@every_kind
def test_boundaries_are_never_told(make: Make) -> None:
    info = make(uneven(), 3).info
    assert (info.boundaries, info.classes_per_task) == (False, None)


@pytest.mark.parametrize("name", ["i-blurry", "half-normal", "gaussian"])
def test_labels_and_test_sets_are_those_of_the_class_stream(name: str) -> None:
    plain, stream = ClassStream(uneven(), 3, seed=1), KINDS[name](uneven(), 3, 10, 1)
    assert stream.class_names == plain.class_names
    assert stream.info.class_ids == plain.info.class_ids
    for one, other in zip(plain.test_sets, stream.test_sets, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)


@every_kind
def test_labels_are_positions_in_the_class_order(make: Make) -> None:
    order = torch.tensor(class_order(6, seed=5))
    for task in make(uneven(), 3, 10, 5):
        for batch in task:
            assert torch.equal(order[batch.y], uneven().train.y[numbers(batch)])


@every_kind
@pytest.mark.parametrize("method", ["ocm", "gsa", "onpro"])
def test_a_method_that_needs_boundaries_is_refused(make: Make, method: str) -> None:
    assert METHODS[method].needs_boundaries
    with pytest.raises(UserError, match=f"{method} must be told where tasks end"):
        build_learner(method, make(uneven(), 3).info, lambda: small_net(6), memory=20)


# --- i-blurry and si-blurry


def test_i_blurry_50_10_has_the_published_counts() -> None:
    stream = IBlurryStream(even(10, 100), num_tasks=5)
    for t, row in enumerate(counts(stream)):
        disjoint, blurry = 2 * t, 2 * t + 1
        assert row[disjoint] == 100  # half of the classes have one task
        assert sum(row) == 200  # 10 % of the others are pooled, and come back in equal parts
        assert 90 <= row[blurry] <= 100
        assert not any(row[k] for k in range(0, 10, 2) if k != disjoint)
        assert sum(row[k] for k in range(1, 10, 2)) - 90 == 10


def test_a_part_of_the_pool_may_hold_images_of_its_own_task() -> None:
    rows = counts(IBlurryStream(even(10, 100), num_tasks=5))
    assert any(row[2 * t + 1] > 90 for t, row in enumerate(rows))


def test_percent_of_a_task_are_rounded_down_and_parts_differ_by_one_image_at_most() -> None:
    stream = IBlurryStream(uneven(), 3, seed=2, blur=15)
    sizes = [20 + 7 * k for k in class_order(6, seed=2)]
    moved = [15 * sizes[2 * t + 1] // 100 for t in range(3)]
    assert f"of the others {sum(moved)} images are dealt anew" in " ".join(stream.card().split())
    for t, task in enumerate(stream):
        part = task.num_images - (sizes[2 * t] + sizes[2 * t + 1] - moved[t])
        assert part in (sum(moved) // 3, sum(moved) // 3 + 1)


def test_all_classes_may_be_disjoint_or_blurry() -> None:
    plain = ClassStream(uneven(), 3, seed=4)
    assert passed(IBlurryStream(uneven(), 3, seed=4, disjoint=100)) == passed(plain)
    assert passed(IBlurryStream(uneven(), 3, seed=4, disjoint=0, blur=0)) == passed(plain)
    assert all(all(row) for row in counts(IBlurryStream(even(4, 50), 2, disjoint=0, blur=100)))


@pytest.mark.parametrize(
    ("classes", "tasks", "disjoint", "near", "count"),
    [(10, 5, 30, 50, 5), (10, 5, 29, 9, 0), (100, 10, 33, 30, 30), (8, 4, 80, 62, 4)],
)
def test_classes_that_would_be_lost_are_refused_with_the_nearest_percent_that_loses_none(
    classes: int, tasks: int, disjoint: int, near: int, count: int
) -> None:
    for kind in (IBlurryStream, SiBlurryStream):
        with pytest.raises(UserError) as refusal:
            kind(even(classes, 3), tasks, disjoint=disjoint)
        assert f"lose {tasks} classes; the nearest that loses none is {near}, with {count}" in str(
            refusal.value
        )
    assert len(IBlurryStream(even(classes, 3), tasks, disjoint=near)) == tasks


def test_si_blurry_tasks_differ_in_their_classes_and_none_is_empty() -> None:
    for seed in range(20):
        stream = SiBlurryStream(even(10, 20), num_tasks=5, seed=seed)
        homes = [test.y.unique().tolist() for test in stream.test_sets]
        assert all(homes)
        assert [k for home in homes for k in home] == list(range(10))  # in the class order
        for row, home in zip(counts(stream), homes, strict=True):
            assert sum(row[k] > 0 for k in home) == len(home)
    assert len({len(home) for home in homes}) > 1


def test_of_si_blurry_half_of_the_classes_have_one_task_and_the_others_lose_images() -> None:
    stream = SiBlurryStream(even(20, 50), num_tasks=5, seed=1, blur=30)
    kinds = si_blurry_numbers(10, 10, 5, seed=1)
    assert [len(test.y.unique()) for test in stream.test_sets] == [d + b for d, b in kinds]
    alone = [kind for d, b in kinds for kind in [True] * d + [False] * b]
    home = [t for t, (d, b) in enumerate(kinds) for _ in range(d + b)]
    rows, parts = counts(stream), []
    for k in range(20):
        assert (rows[home[k]][k] == 50) or not alone[k]
    for t, (d, b) in enumerate(kinds):
        parts.append(sum(rows[t]) - 50 * d - 35 * b)  # 30 % of the blurry ones were taken out
    assert sum(parts) == 10 * 15
    assert max(parts) > 2 * min(parts)  # chance says how many of them a task gets


def test_the_card_of_si_blurry_says_how_often_its_classes_were_drawn() -> None:
    cards = [" ".join(SiBlurryStream(even(10, 5), 5, 10, s).card().split()) for s in range(10)]
    assert any("classes per task drawn once" in card for card in cards)
    assert any("times, until every task had one" in card for card in cards)


def test_si_blurry_that_leaves_a_task_without_classes_whatever_is_drawn_is_refused() -> None:
    with pytest.raises(UserError, match=r"100 draws .* without a class; use fewer tasks"):
        SiBlurryStream(even(20, 2), num_tasks=20, disjoint=0)


# --- half-normal and gaussian


def fifty_thousand() -> Dataset:
    names = tuple(f"class {k}" for k in range(100))
    images = ImageSet(
        torch.zeros(50_000, 3, 1, 1, dtype=torch.uint8), torch.arange(50_000) % 100, names
    )
    return Dataset(images, images, "large")


def test_half_normal_deals_50000_images_in_well_under_a_second() -> None:
    data = fifty_thousand()
    start = time.process_time()
    HalfNormalStream(data, num_tasks=10)
    assert time.process_time() - start < 1


def test_half_normal_whose_places_are_all_beyond_the_end_leaves_the_order_alone() -> None:
    stream = HalfNormalStream(uneven(), 3, seed=2, blur_scale=1e9)
    plain = [n for task in passed(ClassStream(uneven(), 3, seed=2)) for n in task]
    assert passed(stream) == stretches(plain, 3)


def test_an_image_of_half_normal_passes_early_by_some_places_only() -> None:
    plain = [n for task in passed(ClassStream(uneven(), 3)) for n in task]
    found = [n for task in passed(HalfNormalStream(uneven(), 3, blur_scale=2)) for n in task]
    assert found != plain
    assert max(plain.index(n) - i for i, n in enumerate(found)) < 2 * 6


def test_images_of_a_gaussian_class_come_around_its_place_in_the_order() -> None:
    stream = GaussianStream(even(10, 200), num_tasks=5)
    y = torch.cat([batch.y for task in stream for batch in task])
    means = [float((y == k).nonzero().double().mean()) / len(y) for k in range(10)]
    assert means == sorted(means)
    assert abs(means[5] - 0.5) < 0.05


@pytest.mark.parametrize("make", [HalfNormalStream, GaussianStream])
def test_stretches_are_equal_and_most_of_a_class_passes_near_its_home(make: Make) -> None:
    stream = make(even(10, 1000), num_tasks=5)
    assert [task.num_images for task in stream] == [2000] * 5
    for t, row in enumerate(counts(stream)):
        assert sum(row[2 * t : 2 * t + 2]) > 1000


# --- cards and refusals


def test_the_cards_print_names_and_parameters() -> None:
    data = toy_images(num_classes=4)
    told = "revealed  4 classes and their ids; no boundaries, no task id"
    card = IBlurryStream(data, num_tasks=2).card()
    assert card == (
        "stream    toy, i-blurry, every image once, seed 0\n"
        "classes   4, in 2 tasks of 2\n"
        "images    200 to train, 80 to test, 8 x 8 pixels\n"
        "batches   20 of 10; 10 per task\n"
        "blur      disjoint 50, blur 10: 2 of 4 classes have one task; of the others 10 images "
        "are\n          dealt anew to all tasks\n"
        "order     2 3 | 1 0\n"
        f"{told}"
    )
    for stream, words in [
        (SiBlurryStream(data, 2, disjoint=100), ["si-blurry,", "disjoint 100, blur 10:"]),
        (HalfNormalStream(data, 2), ["half-normal,", "blur_scale 500:"]),
        (GaussianStream(data, 2), ["gaussian,", "sigma 0.1:"]),
    ]:
        assert all(word in stream.card() for word in [*words, told])


@pytest.mark.parametrize(
    ("make", "own", "says"),
    [
        (IBlurryStream, {"disjoint": 101}, "IBlurryStream: disjoint must be at most 100, got 101"),
        (IBlurryStream, {"blur": 0.1}, "IBlurryStream: blur must be a whole number, got 0.1"),
        (SiBlurryStream, {"blur": -1}, "SiBlurryStream: blur must be at least 0, got -1"),
        (HalfNormalStream, {"blur_scale": 0}, "HalfNormalStream: blur_scale must be above 0"),
        (GaussianStream, {"sigma": 1.5}, "GaussianStream: sigma must be at most 1, got 1.5"),
        (GaussianStream, {"sigma": 0}, "GaussianStream: sigma must be above 0, got 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make: Make, own: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make(uneven(), 3, **own)


@pytest.mark.parametrize("name", KINDS)
def test_a_task_without_training_images_is_refused(name: str) -> None:
    own = {"disjoint": 0, "blur": 0} if name.endswith("i-blurry") else {}
    train, test, _ = toy_images(num_classes=2)
    half = Dataset(train.of_classes([0]), test, "half")
    with pytest.raises(UserError, match=r"half: task \d has no training images"):
        KINDS[name](half, 2, **own)


# --- settings


def run_of(method: str = "er", **values: Any) -> Resolved:
    return resolve(method, [Given(k, v, "flag", f"--{k}") for k, v in values.items()])


def own_of(run: Resolved) -> dict[str, Any]:
    usual = {f"stream.{k}" for k in ("tasks", "batch", "epochs", "train_per_class",
                                     "test_per_class", "images", "image_size")}  # fmt: skip
    return {k[7:]: v for k, v in run.values.items() if k.startswith("stream.") and k not in usual}


def test_every_stream_has_a_name() -> None:
    assert {*STREAMS} == {*get_args(StreamName)}


@pytest.mark.parametrize(
    ("given", "own", "variant"),
    [
        ({}, {"name": "class", "blur": 0.0}, ""),
        (
            {"stream": "i-blurry"},
            {"name": "i-blurry", "disjoint": 50, "blur": 10},
            "stream=i-blurry",
        ),
        (
            {"stream": "i-blurry", "disjoint": "20", "blur": "0"},
            {"name": "i-blurry", "disjoint": 20, "blur": 0},
            "stream=i-blurry,disjoint=20,blur=0",
        ),
        (
            {"stream": "half-normal", "blur-scale": "1500"},
            {"name": "half-normal", "blur_scale": 1500},
            "stream=half-normal,blur_scale=1500",
        ),
        (
            {"stream.name": "gaussian", "stream.sigma": 0.2, "train_per_class": 5},
            {"name": "gaussian", "sigma": 0.2},
            "stream=gaussian,sigma=0.2,train_per_class=5",
        ),
    ],
)
def test_a_named_stream_has_settings_of_its_own(
    given: dict[str, Any], own: dict[str, Any], variant: str
) -> None:
    run = run_of(**given)
    assert own_of(run) == own
    levels = ["mini", "er", "m200", *([variant] if variant else []), "seed0"]
    assert run_path(Path(), run) == Path(*levels)


def test_our_own_blur_keeps_its_folder_and_its_settings() -> None:
    run = run_of(blur="0.1", tasks="2", epochs="3", train_per_class="5")
    assert run_path(Path(), run_of(blur="0.1")) == Path("mini/er/m200/blur=0.1/seed0")
    assert dict(run_of(blur="0.1").variant) == {"blur": 0.1}
    folder = "tasks=2,blur=0.1,epochs=3,train_per_class=5"
    assert run_path(Path(), run) == Path("mini/er/m200", folder, "seed0")


def test_a_record_of_before_is_one_of_the_class_stream() -> None:
    run = run_of(blur="0.1")
    new = dict(run.values)
    old = {key: value for key, value in new.items() if key != "stream.name"}
    records = [Config(data="mini", method="er", memory=200, seed=0, settings=s) for s in (new, old)]
    assert records[0].identity == records[1].identity


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"stream": "gaussian", "blur": "0.1"},
            "--blur: .*cannot use it, .*belongs to stream class",
        ),
        ({"sigma": "0.1"}, "--sigma: er cannot use it, it belongs to stream gaussian"),
        ({"disjoint": "50"}, "--disjoint: er cannot use it, it belongs to stream i-blurry"),
        ({"stream": "i-blurry", "blur_scale": "5"}, "belongs to stream half-normal"),
    ],
)
def test_a_setting_that_the_stream_does_not_read_is_refused(
    given: dict[str, str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        refuse_unused([run_of(**given)])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"blur": "10"}, "--blur: blur must be below 1, got '10'"),
        ({"stream": "i-blurry", "blur": "0.1"}, "--blur: blur must be a whole number, got '0.1'"),
        ({"stream": "iblurry"}, "--stream: name must be .*; did you mean i-blurry"),
        ({"stream": "gaussian", "sigma": "2"}, "--sigma: sigma must be at most 1, got '2'"),
    ],
)
def test_a_share_cannot_be_taken_for_a_percent(given: dict[str, str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        run_of(**given)


def test_what_a_file_says_of_another_stream_is_left_out() -> None:
    file = [
        Given("stream.name", "i-blurry", "file", "x.yaml, line 1"),
        Given("stream.disjoint", 0, "file", "x.yaml, line 2"),
        Given("stream.tasks", 2, "file", "x.yaml, line 3"),
    ]
    flag = [Given("stream", "half-normal", "flag", "--stream")]
    run = resolve("er", [*file, *flag])
    assert own_of(run) == {"name": "half-normal", "blur_scale": 500}
    assert (run.unused, run.values["stream.tasks"]) == ((), 2)
    assert own_of(resolve("er", file)) == {"name": "i-blurry", "disjoint": 0, "blur": 10}
    usual = [Given("stream.blur", 0.0, "file", "old.yaml, line 9", usual=True)]
    assert own_of(resolve("er", [*usual, *flag])) == own_of(run)


@pytest.mark.parametrize("name", KINDS)
def test_methods_that_need_boundaries_are_refused_before_a_run_begins(name: str) -> None:
    with pytest.raises(UserError, match="--stream: hides where tasks end, and gsa must be told"):
        run_of("gsa", stream=name).check()
    run_of("er", stream=name).check()


# --- by the command

SMALL = [
    *("--data", "mini", "--memory", "20", "--net", "small", "--width", "1", "--threads", "1"),
    *("--train-per-class", "10", "--test-per-class", "5"),
]
WORDS = {
    "i-blurry": ("--disjoint", "50", "--blur", "10"),
    "si-blurry": (),
    "half-normal": ("--blur-scale", "20"),
    "gaussian": ("--sigma", "0.2"),
}


def command(out: Path, *words: str) -> int:
    with patch.object(running, "CHECKPOINT_SECONDS", 0.0):
        return cli.main(["run", "er", *SMALL, *words, "--out", str(out)])


@pytest.mark.parametrize("name", KINDS)
def test_a_run_on_each_stream_goes_on_after_a_crash_to_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--stream", name, *WORDS[name])
    assert command(tmp_path / "whole", *words) == 0
    (whole,) = (tmp_path / "whole").rglob("accuracy.json")
    assert len(json.loads(whole.read_text())["ensemble"]) == 5
    summary = json.loads((whole.parent / "summary.json").read_text())
    assert {"AA", "LA"} <= summary.keys()
    learn, calls = running.OnlineLearner.learn, []

    def failing(learner: Any, *batch: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return learn(learner, *batch, **options)

    monkeypatch.setattr(running.OnlineLearner, "learn", failing)
    with suppress(KeyboardInterrupt):
        command(tmp_path / "broken", *words)
    monkeypatch.undo()
    assert command(tmp_path / "broken", *words) == 0
    assert "goes on after batch 5" in capsys.readouterr().err
    (broken,) = (tmp_path / "broken").rglob("accuracy.json")
    assert broken.read_bytes() == whole.read_bytes()


def test_a_run_of_before_streams_had_names_is_reused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "--blur", "0.1") == 0
    (file,) = tmp_path.rglob("config.yaml")
    assert file.parts[-3] == "net=small,blur=0.1,train_per_class=10,test_per_class=5,width=1"
    record = yaml.safe_load(file.read_text())
    del record["settings"]["stream"]["name"], record["origins"]["stream.name"]
    file.write_text(yaml.safe_dump(record, sort_keys=False))
    before = file.read_bytes()
    capsys.readouterr()
    assert command(tmp_path, "--blur", "0.1") == 0
    assert "was done before" in capsys.readouterr().err
    assert (len([*tmp_path.rglob("summary.json")]), file.read_bytes()) == (1, before)
    found = resolve("er", read_file(file))
    assert own_of(found) == {"name": "class", "blur": 0.1}


def test_tasks_that_differ_in_size_are_told_apart_in_the_record(tmp_path: Path) -> None:
    words = ["run", "er", *SMALL, "--threads", "1", "--out", str(tmp_path)]
    assert cli.main([*words, "--stream", "si-blurry"]) == 0
    (run,) = read_runs(tmp_path)
    sizes = run.accuracy.task_sizes
    assert sum(sizes) == 10
    assert len({*sizes}) > 1
    named = [run.classes_of(task).split(", ") for task in range(5)]
    assert [len(names) for names in named] == sizes
    assert [name for names in named for name in names] == run.accuracy.class_names
    (group,) = compare([run])
    assert group.series[0].chance == tuple(1 / sum(sizes[: k + 1]) for k in range(5))
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0


def test_the_record_of_equal_tasks_is_what_it_was(tmp_path: Path) -> None:
    assert cli.main(["run", "er", *SMALL, "--threads", "1", "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.rglob("accuracy.json")
    assert "task_sizes" not in json.loads(file.read_text())
