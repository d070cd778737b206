import hashlib

import pytest
import torch

from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.toy import toy_images
from peerlearn.errors import UserError
from peerlearn.stream import Batch, ClassStream, StreamInfo, class_order


def numbered(labels: list[int], num_classes: int) -> ImageSet:
    """Image i has the number i in its first two bytes."""
    n = len(labels)
    x = torch.zeros(n, 3, 2, 2, dtype=torch.uint8)
    x[:, 0, 0, 0], x[:, 0, 0, 1] = torch.arange(n) % 256, torch.arange(n) // 256
    return ImageSet(x, torch.tensor(labels), tuple(f"class {k}" for k in range(num_classes)))


def numbers(batch: Batch) -> list[int]:
    x = batch.x.long()
    return (x[:, 0, 0, 0] + 256 * x[:, 0, 0, 1]).tolist()


def uneven() -> Dataset:
    """Six classes; class k has 20 + 7k images to train and 2 to test."""
    labels = [k for i in range(60) for k in range(6) if i < 20 + 7 * k]
    return Dataset(numbered(labels, 6), numbered([*range(6), *range(6)], 6), "uneven")


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.x, b.x) and torch.equal(a.y, b.y) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    ("num_classes", "seed", "start"),
    [
        (10, 0, (2, 8, 4, 9, 1, 6, 7, 3, 0, 5)),
        (10, 1, (2, 9, 6, 4, 0, 3, 1, 7, 8, 5)),
        (10, 2, (4, 1, 5, 0, 7, 2, 3, 6, 9, 8)),
        (100, 0, (26, 86, 2, 55, 75, 93, 16, 73, 54, 95)),
        (100, 1, (80, 84, 33, 81, 93, 17, 36, 82, 69, 65)),
    ],
)
def test_the_class_order_is_that_of_the_published_runs(
    num_classes: int, seed: int, start: tuple[int, ...]
) -> None:
    order = class_order(num_classes, seed)
    assert order[:10] == start
    assert sorted(order) == list(range(num_classes))


def test_every_image_passes_once() -> None:
    data = uneven()
    seen = [n for task in ClassStream(data, num_tasks=3) for batch in task for n in numbers(batch)]
    assert sorted(seen) == list(range(len(data.train)))


def test_the_batches_of_a_seed_are_those_of_earlier_versions() -> None:
    passed = [n for task in ClassStream(uneven(), 3, seed=5) for b in task for n in numbers(b)]
    assert passed[:10] == [155, 116, 2, 95, 134, 217, 163, 191, 101, 179]
    assert hashlib.sha256(repr(passed).encode()).hexdigest()[:16] == "85c652166fd96ba5"


def test_labels_are_positions_in_the_class_order() -> None:
    data = uneven()
    stream = ClassStream(data, num_tasks=3, seed=5)
    order = class_order(6, seed=5)
    assert stream.info.class_ids == order
    for task in stream:
        for batch in task:
            assert [order[slot] for slot in batch.y] == data.train.y[numbers(batch)].tolist()


def test_a_task_holds_its_own_classes_and_no_others() -> None:
    for task in ClassStream(uneven(), num_tasks=3):
        labels = torch.cat([batch.y for batch in task])
        assert set(labels.tolist()) == {2 * task.index, 2 * task.index + 1}
        assert len(labels) == task.num_images


def test_batches_are_full_but_for_the_last_of_a_task() -> None:
    stream = ClassStream(uneven(), num_tasks=2, batch_size=16)
    for task in stream:
        sizes = [len(batch.y) for batch in task]
        assert set(sizes[:-1]) == {16}
        assert sizes[-1] == (task.num_images - 1) % 16 + 1
        assert len(sizes) == len(task)
    assert len(stream) == 2


def test_the_order_of_images_follows_from_the_seed() -> None:
    def first_task(seed: int) -> list[Batch]:
        return list(ClassStream(uneven(), num_tasks=1, seed=seed).tasks[0])

    assert same(first_task(0), first_task(0))
    assert sorted(map(numbers, first_task(0))) != sorted(map(numbers, first_task(1)))


def test_the_images_of_a_task_are_mixed() -> None:
    task = ClassStream(toy_images(train_per_class=50), num_tasks=1, batch_size=50).tasks[0]
    for batch in task:
        assert len(batch.y.unique()) == 4


def test_each_task_is_shuffled_in_its_own_way() -> None:
    images = numbered([0, 1] * 50, 2)
    (one,), (two,) = ClassStream(Dataset(images, images, "twins"), num_tasks=2, batch_size=50)
    assert [n // 2 for n in numbers(one)] != [n // 2 for n in numbers(two)]


def test_a_stream_can_be_read_again_and_from_any_batch() -> None:
    task = ClassStream(uneven(), num_tasks=2).tasks[1]
    whole = list(task)
    assert same(list(task), whole)
    for k in range(len(task) + 1):
        assert same(list(task.batches(start=k)), whole[k:])


@pytest.mark.parametrize("start", [-1, 11])
def test_a_start_beyond_the_task_is_an_error(start: int) -> None:
    task = ClassStream(toy_images(), num_tasks=2).tasks[0]
    with pytest.raises(UserError, match=f"task 0 cannot start at batch {start}; .* 0 to 10"):
        next(task.batches(start))


def test_reading_a_stream_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    for task in ClassStream(toy_images(), num_tasks=2):
        list(task)
    assert torch.equal(before, torch.get_rng_state())


def test_a_batch_may_be_changed_without_harm_to_the_data_set() -> None:
    data = toy_images()
    before = data.train.x.clone()
    for batch in ClassStream(data, num_tasks=1).tasks[0]:
        batch.x.zero_()
        batch.y.zero_()
    assert torch.equal(data.train.x, before)
    assert data.train.y.any()


def test_test_sets_hold_the_classes_of_their_task_under_the_labels_of_the_stream() -> None:
    data = toy_images(num_classes=6)
    stream = ClassStream(data, num_tasks=3, seed=1)
    order = class_order(6, seed=1)
    assert len(stream.test_sets) == 3
    for t, test in enumerate(stream.test_sets):
        original = data.test.of_classes(order[2 * t : 2 * t + 2])
        assert torch.equal(test.x, original.x)
        assert [order[slot] for slot in test.y] == original.y.tolist()
        assert test.class_names == tuple(f"toy {k}" for k in order)


def test_the_learner_is_told_what_the_protocol_grants() -> None:
    info = ClassStream(toy_images(num_classes=10), num_tasks=5).info
    assert info == StreamInfo(
        num_classes=10, boundaries=True, classes_per_task=2, class_ids=class_order(10, seed=0)
    )


def test_an_open_stream_grants_nothing_but_the_number_of_classes() -> None:
    info = StreamInfo(num_classes=7)
    assert (info.boundaries, info.classes_per_task, info.class_ids) == (False, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": -1}, "num_classes must be at least 1, not -1"),
        ({"num_classes": 4, "classes_per_task": 3}, "3 does not divide 4 classes"),
        ({"num_classes": 4, "classes_per_task": 0}, "0 does not divide 4 classes"),
        ({"num_classes": 2, "class_ids": (1,)}, "class_ids must be 2 different ids"),
        ({"num_classes": 2, "class_ids": (1, 1)}, "class_ids must be 2 different ids"),
    ],
)
def test_what_a_stream_tells_must_make_sense(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        StreamInfo(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_tasks", [0, 3, 8])
def test_unequal_tasks_are_refused_with_the_choices_there_are(num_tasks: int) -> None:
    with pytest.raises(UserError, match=f"4 classes do not make {num_tasks} .* from 1, 2, 4 "):
        ClassStream(toy_images(num_classes=4), num_tasks)


def test_a_task_without_images_is_refused_before_training_starts() -> None:
    train, test, _ = toy_images(num_classes=2)
    task = class_order(2, seed=0).index(1)
    with pytest.raises(UserError, match=f"half: task {task} has no test images"):
        ClassStream(Dataset(train, test.of_classes([0]), "half"), num_tasks=2)
    with pytest.raises(UserError, match=f"half: task {task} has no training images"):
        ClassStream(Dataset(train.of_classes([0]), test, "half"), num_tasks=2)


def test_sets_that_do_not_belong_together_are_refused() -> None:
    small, large = toy_images(size=4), toy_images(size=8)
    with pytest.raises(UserError, match="make them agree"):
        ClassStream(Dataset(small.train, large.test, "mixed"), num_tasks=2)


def test_wrong_numbers_are_errors_that_name_them() -> None:
    with pytest.raises(UserError, match="batch_size must be at least 1, not 0"):
        ClassStream(toy_images(), num_tasks=2, batch_size=0)
    with pytest.raises(UserError, match=r"seed must be from 0 to 2\*\*32 - 1, not -1"):
        ClassStream(toy_images(), num_tasks=2, seed=-1)


def test_the_card_tells_the_protocol() -> None:
    stream = ClassStream(toy_images(num_classes=4), num_tasks=2, seed=0)
    assert stream.card() == (
        "stream    toy, class-incremental, every image once, seed 0\n"
        "classes   4, in 2 tasks of 2\n"
        "images    200 to train, 80 to test, 8 x 8 pixels\n"
        "batches   20 of 10; 10 per task\n"
        "blur      none; every class has one task\n"
        "order     2 3 | 1 0\n"
        "revealed  4 classes and their ids, 2 per task, labels in order of arrival, where tasks\n"
        "          end; no task id at test time"
    )


def test_the_card_shows_when_tasks_differ_in_length() -> None:
    lengths = sorted(len(task) for task in ClassStream(uneven(), num_tasks=3))
    card = ClassStream(uneven(), num_tasks=3).card()
    assert f"{lengths[0]} to {lengths[-1]} per task" in card
