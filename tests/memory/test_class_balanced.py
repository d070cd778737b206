import torch
from offers import labelled
from torch import Tensor

from peerlearn.memory import ClassBalanced


def offered(capacity: int, labels: list[int], seed: int = 0, batch: int = 10) -> ClassBalanced:
    memory, rng = ClassBalanced(capacity), torch.Generator().manual_seed(seed)
    for first in range(0, len(labels), batch):
        memory.add(rng, **labelled(labels[first : first + batch], first))
    return memory


def plain(capacity: int, labels: list[int], chances: list[list[float]]) -> list[int]:
    """The paper's algorithm on a list of (class, number): slower, and without slots per class."""
    memory: list[tuple[int, int]] = []
    full: set[int] = set()
    for number, (label, (accept, pick)) in enumerate(zip(labels, chances, strict=True)):
        if len(memory) < capacity:
            memory.append((label, number))
            continue
        stored = [kept for kept, _ in memory]
        counts = {kept: stored.count(kept) for kept in stored}
        largest = sorted(kept for kept, n in counts.items() if n == max(counts.values()))
        full.update(largest)
        pools = [label] if label in full else largest
        slots = [i for pool in pools for i, kept in enumerate(stored) if kept == pool]
        if label in full and accept >= len(slots) / labels[: number + 1].count(label):
            continue
        memory[slots[int(pick * len(slots))]] = (label, number)
    return [number for _, number in memory]


def drawn(classes: int, count: int, seed: int) -> list[int]:
    """Classes in random order, the first ones more often."""
    rng = torch.Generator().manual_seed(seed)
    weights = 2.0 ** -torch.arange(classes)
    return torch.multinomial(weights, count, replacement=True, generator=rng).tolist()


def counts(memory: ClassBalanced, classes: int) -> Tensor:
    return torch.bincount(memory["y"], minlength=classes)


def test_it_equals_the_algorithm_of_the_paper_written_plainly() -> None:
    for seed, (capacity, classes) in enumerate([(1, 3), (5, 8), (12, 4), (20, 3), (30, 6)] * 4):
        labels = drawn(classes, 150, seed) + [k for k in range(classes) for _ in range(25)]
        rng = torch.Generator().manual_seed(seed)
        chances = torch.rand(len(labels), 2, generator=rng, dtype=torch.float64).tolist()
        memory = offered(capacity, labels, seed)
        assert memory["number"].tolist() == plain(capacity, labels, chances)


def test_a_batch_equals_its_rows_offered_one_by_one() -> None:
    labels = drawn(5, 200, seed=0)
    at_once, slow = offered(16, labels, batch=200), offered(16, labels, batch=1)
    assert torch.equal(at_once["number"], slow["number"])


def test_it_keeps_everything_in_order_until_it_is_full() -> None:
    assert offered(30, [0, 0, 1] * 8)["number"].tolist() == list(range(24))


def test_classes_that_follow_each_other_end_even() -> None:
    memory = offered(60, [k for k in range(6) for _ in range(100)])
    assert counts(memory, 6).tolist() == [10] * 6


def test_rare_classes_are_kept_whole_and_the_others_share_the_rest() -> None:
    labels = [0] * 500 + [1] * 300 + [2] * 7 + [3] * 3
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    memory = offered(50, [labels[i] for i in order])
    assert counts(memory, 4).tolist() == [20, 20, 7, 3]


def test_each_row_of_a_class_is_kept_with_equal_chance() -> None:
    labels, trials = [0] * 30 + [1] * 20, 3000
    kept = torch.zeros(len(labels))
    for seed in range(trials):
        kept[offered(10, labels, seed)["number"]] += 1
    chance = torch.tensor([5 / 30] * 30 + [5 / 20] * 20)
    deviation = (trials * chance * (1 - chance)).sqrt()
    assert ((kept - trials * chance).abs() < 4.5 * deviation).all()


def test_more_classes_than_rows_leave_one_row_each() -> None:
    memory = offered(3, [k for k in range(8) for _ in range(5)])
    assert counts(memory, 8).max() == 1
    assert len(memory) == 3


def test_its_state_says_what_was_offered_and_which_classes_are_full() -> None:
    state = offered(4, [7, 7, 7, 7, 7, 2]).state_dict()
    assert state["classes"].tolist() == [2, 7]
    assert state["offered"].tolist() == [1, 5]
    assert state["full"].tolist() == [False, True]
