from collections.abc import Iterator
from itertools import repeat

import numpy as np
import pytest
import torch
from test_stream import numbered, numbers, same, uneven

from peerlearn import METHODS, build_learner, small_net
from peerlearn.data.images import Dataset
from peerlearn.data.toy import toy_images
from peerlearn.errors import UserError
from peerlearn.stream import (
    Batch,
    BatchStream,
    BlurryStream,
    ClassStream,
    Stream,
    StreamInfo,
    class_order,
)


def passed(stream: BlurryStream | ClassStream) -> list[list[int]]:
    """The numbers of the images of each task, in the order in which they pass."""
    return [[n for batch in task for n in numbers(batch)] for task in stream]


def as_documented(data: Dataset, num_tasks: int, seed: int, tenths: int) -> list[list[int]]:
    """The generator once more, from its description, in lists."""
    order = class_order(data.train.num_classes, seed)
    per_task = len(order) // num_tasks
    rng = np.random.RandomState([seed, num_tasks])
    held: list[list[int]] = [[] for _ in range(num_tasks)]
    for label, k in enumerate(order):
        images = [i for i, y in enumerate(data.train.y.tolist()) if y == k]
        leaving = [images[j] for j in rng.permutation(len(images))][: len(images) * tenths // 10]
        others = [t for t in range(num_tasks) if t != label // per_task]
        hosts = [others[j] for j in rng.permutation(len(others))]
        for i, image in enumerate(leaving):
            held[hosts[i % len(hosts)]].append(image)
        held[label // per_task] += [i for i in images if i not in leaving]
    return [
        [sorted(images)[j] for j in np.random.RandomState([seed, t]).permutation(len(images))]
        for t, images in enumerate(held)
    ]


def pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    train = toy_images(num_classes=4, train_per_class=10).train
    return list(zip(train.x.split(8), train.y.split(8), strict=True))


# --- BlurryStream


@pytest.mark.parametrize(("seed", "tenths"), [(0, 1), (3, 4), (5, 9)])
def test_the_blurry_generator_is_the_documented_one(seed: int, tenths: int) -> None:
    stream = BlurryStream(uneven(), num_tasks=3, seed=seed, blur=tenths / 10)
    assert passed(stream) == as_documented(uneven(), 3, seed, tenths)


@pytest.mark.parametrize("blur", [0.0, 0.1, 0.5, 0.99])
def test_every_image_passes_once_however_blurred(blur: float) -> None:
    data = uneven()
    seen = [n for task in passed(BlurryStream(data, num_tasks=3, blur=blur)) for n in task]
    assert sorted(seen) == list(range(len(data.train)))


def test_the_share_of_every_class_that_leaves_home_is_rounded_down() -> None:
    data = uneven()  # class k has 20 + 7k images
    stream = BlurryStream(data, num_tasks=3, seed=2, blur=0.15)
    for label, k in enumerate(class_order(6, seed=2)):
        away = [
            n
            for t, task in enumerate(passed(stream))
            for n in task
            if int(data.train.y[n]) == k and t != label // 2
        ]
        assert len(away) == 15 * (20 + 7 * k) // 100


def test_blur_means_the_decimal_that_was_written() -> None:
    assert 0.29 * 100 < 29
    stream = BlurryStream(toy_images(num_classes=2, train_per_class=100), 2, blur=0.29)
    for task in stream:
        assert sum(int((batch.y != task.index).sum()) for batch in task) == 29


def test_those_that_leave_are_spread_evenly_over_the_other_tasks() -> None:
    stream = BlurryStream(toy_images(num_classes=8, train_per_class=50), 4, blur=0.34)  # 17 leave
    for task in stream:
        counts = torch.cat([batch.y for batch in task]).bincount(minlength=8).view(4, 2)
        assert counts[task.index].tolist() == [33, 33]
        visitors = counts[[t for t in range(4) if t != task.index]]
        assert set(visitors.flatten().tolist()) <= {5, 6}


def test_no_class_leaves_its_home_task_altogether() -> None:
    images = numbered([0, 1, 2, 3], 4)
    stream = BlurryStream(Dataset(images, images, "one each"), num_tasks=4, blur=0.99)
    assert [[int(y) for batch in task for y in batch.y] for task in stream] == [[0], [1], [2], [3]]


def test_without_blur_the_batches_are_those_of_disjoint_tasks() -> None:
    plain = ClassStream(uneven(), num_tasks=3, batch_size=7, seed=4)
    blurry = BlurryStream(uneven(), num_tasks=3, batch_size=7, seed=4, blur=0)
    for one, other in zip(plain, blurry, strict=True):
        assert same(list(one), list(other))


def test_labels_and_test_sets_are_those_of_disjoint_tasks() -> None:
    plain, blurry = (kind(uneven(), num_tasks=3, seed=1) for kind in (ClassStream, BlurryStream))
    for one, other in zip(plain.test_sets, blurry.test_sets, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)
    assert blurry.class_names == plain.class_names
    for task in blurry:
        for batch in task:
            ids = torch.tensor(class_order(6, seed=1))[batch.y]
            assert torch.equal(ids, uneven().train.y[numbers(batch)])


def test_the_blur_follows_from_the_seed() -> None:
    def tasks(seed: int) -> list[list[int]]:
        images = numbered([0, 1] * 50, 2)
        data = Dataset(images, images, "twins")
        return [sorted(task) for task in passed(BlurryStream(data, 2, seed=seed, blur=0.5))]

    assert tasks(0) == tasks(0)
    assert sorted(tasks(0)) != sorted(tasks(1))


def test_a_blurry_stream_can_be_read_again_and_from_any_batch() -> None:
    task = BlurryStream(uneven(), num_tasks=2, blur=0.3).tasks[1]
    whole = list(task)
    for k in range(len(task) + 1):
        assert same(list(task.batches(start=k)), whole[k:])


@pytest.mark.parametrize("blur", [0.0, 0.1])
def test_a_blurry_stream_never_tells_its_tasks(blur: float) -> None:
    info = BlurryStream(toy_images(num_classes=4), num_tasks=2, blur=blur).info
    assert info == StreamInfo(num_classes=4, class_ids=class_order(4, seed=0))


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_need_boundaries_refuse_a_blurry_stream_and_the_others_learn(
    name: str,
) -> None:
    stream = BlurryStream(toy_images(num_classes=4), num_tasks=2, blur=0.2)
    if METHODS[name].needs_boundaries:
        with pytest.raises(UserError, match=f"{name} must be told where tasks end"):
            build_learner(name, stream.info, lambda: small_net(4), memory=20)
    else:
        learner = build_learner(name, stream.info, lambda: small_net(4), memory=20)
        for batch in list(stream.tasks[0])[:2]:
            learner.learn(*batch)
        assert learner.progress.batches == 2


@pytest.mark.parametrize("blur", [-0.1, 1.0, 1, float("nan")])
def test_a_blur_outside_of_0_to_1_is_refused(blur: float) -> None:
    with pytest.raises(UserError, match=f"blur must be at least 0 and below 1, not {blur}"):
        BlurryStream(toy_images(), num_tasks=2, blur=blur)


def test_one_task_cannot_be_blurred() -> None:
    with pytest.raises(UserError, match=r"blur 0.1 needs another task .* use 2 tasks or more"):
        BlurryStream(toy_images(), num_tasks=1)
    assert len(BlurryStream(toy_images(), num_tasks=1, blur=0)) == 1


def test_the_card_of_a_blurry_stream_tells_how_many_images_moved() -> None:
    stream = BlurryStream(toy_images(num_classes=4), num_tasks=2, blur=0.25)
    assert stream.card() == (
        "stream    toy, blurry class-incremental, every image once, seed 0\n"
        "classes   4, in 2 tasks of 2\n"
        "images    200 to train, 80 to test, 8 x 8 pixels\n"
        "batches   20 of 10; 10 per task\n"
        "blur      25 % of each class to other tasks, 48 images in all\n"
        "order     2 3 | 1 0\n"
        "revealed  4 classes and their ids; no boundaries, no task id"
    )
    assert sum(int((b.y // 2 != task.index).sum()) for task in stream for b in task) == 48


# --- BatchStream


def test_batches_pass_as_they_come() -> None:
    (task,) = BatchStream(pairs(), num_classes=4)
    assert task.index == 0
    assert same(list(task), [Batch(x, y) for x, y in pairs()])


def test_arrays_pass_as_tensors() -> None:
    (task,) = BatchStream([(x.numpy(), y.numpy()) for x, y in pairs()], num_classes=4)
    assert same(list(task), [Batch(x, y) for x, y in pairs()])


@pytest.mark.parametrize("restartable", [pairs(), pairs, lambda: iter(pairs())])
def test_a_list_or_a_function_can_be_read_again_and_from_any_batch(restartable: object) -> None:
    task = BatchStream(restartable, num_classes=4).tasks[0]  # type: ignore[arg-type]
    whole = list(task)
    assert len(task) == len(whole) == 5
    for k in range(6):
        assert same(list(task.batches(start=k)), whole[k:])
    with pytest.raises(UserError, match="task 0 cannot start at batch 6; choose from 0 to 5"):
        next(task.batches(start=6))
    with pytest.raises(UserError, match="task 0 cannot start at batch -1"):
        next(task.batches(start=-1))


@pytest.mark.parametrize("start", [0, 3])
def test_a_generator_passes_once_and_then_says_so(start: int) -> None:
    task = BatchStream(iter(pairs()), num_classes=4).tasks[0]
    assert same(list(task.batches(start)), [Batch(x, y) for x, y in pairs()][start:])
    with pytest.raises(UserError, match="read before and cannot be read again; pass a list"):
        next(task.batches())


def test_a_function_that_returns_its_spent_iterator_is_found_out() -> None:
    spent = iter(pairs())
    task = BatchStream(lambda: spent, num_classes=4).tasks[0]
    next(task.batches())
    with pytest.raises(UserError, match="a function that makes a new iterator at each call"):
        next(task.batches(start=1))


def test_a_generator_has_no_length_and_is_not_read_to_find_one() -> None:
    task = BatchStream(iter(pairs()), num_classes=4).tasks[0]
    with pytest.raises(UserError, match="a generator has no length; pass a list, or a function"):
        len(task)
    assert len(list(task)) == 5


def test_an_endless_stream_is_read_only_as_far_as_asked() -> None:
    stream = BatchStream(repeat(pairs()[0]), num_classes=4)
    assert "batches   not counted" in stream.card()
    batches = stream.tasks[0].batches(start=2)
    assert [len(next(batches).y) for _ in range(3)] == [8, 8, 8]


def test_the_batches_of_a_function_are_counted_once_and_only_when_asked() -> None:
    calls: list[int] = []

    def opened() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        calls.append(1)
        return iter(pairs())

    stream = BatchStream(opened, num_classes=4)
    stream.card()
    assert not calls
    assert (len(stream.tasks[0]), len(stream.tasks[0])) == (5, 5)
    assert len(calls) == 1


def test_a_loader_is_a_stream() -> None:
    train = toy_images(num_classes=4, train_per_class=10).train
    data = torch.utils.data.TensorDataset(train.x, train.y)
    stream = BatchStream(torch.utils.data.DataLoader(data, batch_size=8), num_classes=4)
    assert len(stream.tasks[0]) == 5
    assert same(list(stream.tasks[0]), [Batch(x, y) for x, y in pairs()])


def test_a_loader_that_does_not_know_its_length_is_counted() -> None:
    class Unsized(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            return iter(pairs())

    loader = torch.utils.data.DataLoader(Unsized(), batch_size=None)
    assert len(BatchStream(loader, num_classes=4).tasks[0]) == 5


@pytest.mark.parametrize("boundaries", [False, True])
def test_batches_reveal_the_number_of_classes_and_an_end_if_there_is_one(boundaries: bool) -> None:
    info = BatchStream(pairs(), num_classes=4, boundaries=boundaries).info
    assert info == StreamInfo(num_classes=4, boundaries=boundaries)


@pytest.mark.parametrize("name", METHODS)
def test_batches_whose_end_is_told_suit_all_methods_but_the_one_that_counts_classes_per_task(
    name: str,
) -> None:
    stream = BatchStream(pairs()[:2], num_classes=4, boundaries=True)
    if METHODS[name].needs_task_labels:
        with pytest.raises(UserError, match=f"{name} must know the classes of each task"):
            build_learner(name, stream.info, lambda: small_net(4), memory=20)
    else:
        learner = build_learner(name, stream.info, lambda: small_net(4), memory=20)
        for batch in stream.tasks[0]:
            learner.learn(*batch)
        learner.end_task()
        assert learner.progress.task == 1


def test_class_names_are_given_or_those_of_the_test_sets_or_numbers() -> None:
    test = toy_images(num_classes=4).test
    assert BatchStream(pairs(), 4, class_names=list("abcd")).class_names == ("a", "b", "c", "d")
    assert BatchStream(pairs(), 4, tests=[test]).class_names == test.class_names
    assert BatchStream(pairs(), 4).class_names == ("0", "1", "2", "3")


def test_class_names_that_do_not_fit_are_refused() -> None:
    test = toy_images(num_classes=4).test
    with pytest.raises(UserError, match="5 classes but 4 class names"):
        BatchStream(pairs(), 5, tests=[test])
    with pytest.raises(UserError, match="test set 0 has other class names than the stream"):
        BatchStream(pairs(), 4, tests=[test], class_names=list("abcd"))


@pytest.mark.parametrize("batch", [5, (1, 2, 3), {"image": 1, "label": 2}, "ab"])
def test_what_is_not_a_pair_is_an_error_that_names_the_batch(batch: object) -> None:
    task = BatchStream([*pairs(), batch], num_classes=4).tasks[0]  # type: ignore[list-item]
    with pytest.raises(UserError, match="batch 5 is not a pair of images and labels"):
        list(task)


def test_what_cannot_be_iterated_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=r"batches must be an iterable of .* got int"):
        BatchStream(5, num_classes=4)  # type: ignore[arg-type]


def test_the_card_of_batches_tells_what_is_known_of_them() -> None:
    test = toy_images(num_classes=4).test
    assert BatchStream(pairs(), 4, tests=[test], boundaries=True).card() == (
        "stream    batches of your own, as they come\n"
        "classes   4, in 1 task\n"
        "images    not counted to train, 80 to test\n"
        "batches   5\n"
        "blur      not known\n"
        "revealed  4 classes, where tasks end; no task id at test time"
    )


# --- all


def test_all_streams_offer_what_an_experiment_needs() -> None:
    data = toy_images(num_classes=4)
    streams: list[Stream] = [
        ClassStream(data, num_tasks=2),
        BlurryStream(data, num_tasks=2),
        BatchStream(pairs(), 4, tests=[data.test]),
    ]
    for stream in streams:
        assert [task.index for task in stream.tasks] == list(range(len(stream.test_sets)))
        assert all(len(task) == len(list(task.batches())) for task in stream.tasks)
        assert all(test.class_names == stream.class_names for test in stream.test_sets)
        titles = [line[:10].strip() for line in stream.card().splitlines()]
        assert {"stream", "classes", "images", "batches", "blur", "revealed"} <= set(titles)
