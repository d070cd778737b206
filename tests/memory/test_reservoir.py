import torch
from offers import filled, rows

from peerlearn.memory import Reservoir


def test_it_keeps_everything_in_order_until_it_is_full() -> None:
    assert filled(Reservoir(30), 25)["y"].tolist() == list(range(25))


def test_every_row_is_kept_with_equal_chance() -> None:
    capacity, count, trials = 10, 40, 3000
    kept = torch.zeros(count)
    for seed in range(trials):
        kept[filled(Reservoir(capacity), count, seed)["y"]] += 1
    expected = trials * capacity / count
    deviation = (trials * 0.25 * 0.75) ** 0.5
    assert ((kept - expected).abs() < 4.5 * deviation).all()


def test_a_batch_equals_its_rows_offered_one_by_one() -> None:
    capacity, count = 6, 50
    at_once, slow = Reservoir(capacity), [-1] * capacity
    at_once.add(torch.Generator().manual_seed(3), **rows(0, count))
    chance = torch.rand(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for seen in range(count):
        slot = seen if seen < capacity else int(chance[seen] * (seen + 1))
        if slot < capacity:
            slow[slot] = seen
    assert at_once["y"].tolist() == slow
