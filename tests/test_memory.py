import pytest
import torch
from torch import Tensor

from peerlearn.errors import UserError
from peerlearn.memory import Reservoir


def rows(first: int, count: int) -> dict[str, Tensor]:
    y = torch.arange(first, first + count)
    return {"x": y.view(-1, 1, 1, 1).to(torch.uint8).expand(-1, 3, 2, 2), "y": y}


def filled(capacity: int, count: int, seed: int = 0, batch: int = 7) -> Reservoir:
    memory, rng = Reservoir(capacity), torch.Generator().manual_seed(seed)
    for first in range(0, count, batch):
        memory.add(rng, **rows(first, min(batch, count - first)))
    return memory


def test_it_keeps_everything_in_order_until_it_is_full() -> None:
    assert filled(30, 25)["y"].tolist() == list(range(25))


def test_every_row_is_kept_with_equal_chance() -> None:
    capacity, count, trials = 10, 40, 3000
    kept = torch.zeros(count)
    for seed in range(trials):
        kept[filled(capacity, count, seed)["y"]] += 1
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


def test_columns_stay_together() -> None:
    memory = filled(10, 100)
    assert memory["x"][:, 0, 0, 0].tolist() == memory["y"].tolist()
    drawn = memory.draw(5, torch.Generator())
    assert drawn["x"][:, 0, 0, 0].tolist() == drawn["y"].tolist()


def test_further_columns_come_with_the_first_rows() -> None:
    memory = Reservoir(4)
    memory.add(torch.Generator(), **rows(0, 3), logits=torch.randn(3, 10))
    assert memory.columns == ("x", "y", "logits")
    assert memory["logits"].shape == (3, 10)


def test_a_draw_has_no_row_twice() -> None:
    drawn = filled(100, 100).draw(64, torch.Generator())["y"]
    assert len(drawn.unique()) == 64


def test_a_draw_of_more_than_there_is_returns_all_in_order() -> None:
    assert filled(100, 20).draw(64, torch.Generator())["y"].tolist() == list(range(20))


def test_draws_are_uniform() -> None:
    memory, rng, hits = filled(20, 20), torch.Generator().manual_seed(0), torch.zeros(20)
    for _ in range(2000):
        hits[memory.draw(5, rng)["y"]] += 1
    assert ((hits - 500).abs() < 4.5 * (2000 * 0.25 * 0.75) ** 0.5).all()


def test_a_draw_by_class_is_with_replacement_and_stays_inside() -> None:
    memory, rng = filled(100, 100), torch.Generator().manual_seed(0)
    low = memory["y"] < 30
    drawn = memory.draw_where(22, low, rng)["y"]
    assert len(drawn) == 22
    assert (drawn < 30).all()
    repeats = [22 - len(memory.draw_where(22, low, rng)["y"].unique()) for _ in range(20)]
    assert sum(repeats) > 0


def test_a_draw_by_class_is_as_long_as_there_are_rows() -> None:
    memory = filled(100, 100)
    assert len(memory.draw_where(22, memory["y"] < 5, torch.Generator())["y"]) == 5
    assert len(memory.draw_where(22, memory["y"] < 0, torch.Generator())["y"]) == 0


def test_capacity_zero_keeps_nothing() -> None:
    memory = filled(0, 50)
    assert len(memory) == 0
    assert memory.seen == 50
    assert len(memory.draw(64, torch.Generator())["y"]) == 0


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(UserError, match="capacity must be 0"):
        Reservoir(-1)
