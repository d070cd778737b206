"""What every memory promises, whatever its policy."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from offers import filled, labelled, rows
from typing_extensions import override

from peerlearn.errors import UserError
from peerlearn.memory import MEMORIES, ClassBalanced, Memory, Reservoir

CPU = torch.device("cpu")


@pytest.fixture(params=sorted(MEMORIES))
def policy(request: pytest.FixtureRequest) -> type[Memory]:
    return MEMORIES[request.param]


def test_policies_are_found_by_name_and_listed_without_torch() -> None:
    assert dict(MEMORIES) == {"class_balanced": ClassBalanced, "reservoir": Reservoir}
    code = """
import sys
from peerlearn.memory import MEMORIES
assert [*MEMORIES] == ["class_balanced", "reservoir"] and "torch" not in sys.modules
assert MEMORIES.summary("reservoir") == "A uniform sample of every row ever added."
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_columns_stay_together(policy: type[Memory]) -> None:
    memory = filled(policy(10), 100)
    assert memory["x"][:, 0, 0, 0].tolist() == memory["y"].tolist()
    drawn = memory.draw(5, torch.Generator())
    assert drawn["x"][:, 0, 0, 0].tolist() == drawn["y"].tolist()


def test_further_columns_come_with_the_first_rows(policy: type[Memory]) -> None:
    memory = policy(4)
    assert memory.columns == ()
    memory.add(torch.Generator(), **rows(0, 3), logits=torch.randn(3, 10))
    assert memory.columns == ("x", "y", "logits")
    assert memory["logits"].shape == (3, 10)
    assert memory.nbytes == {"x": 4 * 12, "y": 4 * 8, "logits": 4 * 10 * 4}


def test_other_columns_later_are_refused_and_change_nothing(policy: type[Memory]) -> None:
    memory = filled(policy(4), 3)
    with pytest.raises(UserError, match=r"columns are \['x', 'y'\], got \['y', 'number'\]"):
        memory.add(torch.Generator(), **labelled([1, 2]))
    assert (memory.seen, len(memory)) == (3, 3)


def test_a_draw_has_no_row_twice(policy: type[Memory]) -> None:
    drawn = filled(policy(100), 100).draw(64, torch.Generator())["y"]
    assert len(drawn.unique()) == 64


def test_a_draw_of_more_than_there_is_returns_all_in_order(policy: type[Memory]) -> None:
    assert filled(policy(100), 20).draw(64, torch.Generator())["y"].tolist() == list(range(20))


def test_draws_are_uniform(policy: type[Memory]) -> None:
    memory, rng, hits = filled(policy(20), 20), torch.Generator().manual_seed(0), torch.zeros(20)
    for _ in range(2000):
        hits[memory.draw(5, rng)["y"]] += 1
    assert ((hits - 500).abs() < 4.5 * (2000 * 0.25 * 0.75) ** 0.5).all()


def test_a_draw_by_class_is_with_replacement_and_stays_inside(policy: type[Memory]) -> None:
    memory, rng = filled(policy(100), 100), torch.Generator().manual_seed(0)
    low = memory["y"] < 30
    drawn = memory.draw_where(22, low, rng)["y"]
    assert len(drawn) == 22
    assert (drawn < 30).all()
    repeats = [22 - len(memory.draw_where(22, low, rng)["y"].unique()) for _ in range(20)]
    assert sum(repeats) > 0


def test_a_draw_by_class_is_as_long_as_there_are_rows(policy: type[Memory]) -> None:
    memory = filled(policy(100), 100)
    assert len(memory.draw_where(22, memory["y"] < 5, torch.Generator())["y"]) == 5
    assert len(memory.draw_where(22, memory["y"] < 0, torch.Generator())["y"]) == 0


def test_capacity_zero_keeps_nothing(policy: type[Memory]) -> None:
    memory = filled(policy(0), 50)
    assert len(memory) == 0
    assert memory.seen == 50
    assert len(memory.draw(64, torch.Generator())["y"]) == 0


def test_a_negative_capacity_is_refused(policy: type[Memory]) -> None:
    with pytest.raises(UserError, match="capacity must be 0"):
        policy(-1)


@pytest.mark.parametrize("capacity", [0, 1, 12])
@pytest.mark.parametrize("before", [0, 5, 80])
def test_a_memory_goes_on_from_its_state_bit_for_bit(
    policy: type[Memory], before: int, capacity: int
) -> None:
    """Classes come and go, so that a class-balanced memory has full and other classes."""
    labels = [(i * i + i // 20) % (2 + i // 30) for i in range(200)]
    whole, again, rng = policy(capacity), policy(capacity), torch.Generator().manual_seed(1)
    for first in range(0, before, 10):
        whole.add(rng, **labelled(labels[first : first + 10], first))
    again.load_state_dict(whole.state_dict(), CPU)
    twin = torch.Generator()
    twin.set_state(rng.get_state())
    for first in range(before, 200, 10):
        more = labelled(labels[first : first + 10], first)
        whole.add(rng, **more)
        again.add(twin, **more)
    assert again.seen == whole.seen
    assert again.columns == whole.columns
    assert all(torch.equal(again[name], whole[name]) for name in whole.columns)
    assert torch.equal(twin.get_state(), rng.get_state())


def test_a_restored_memory_does_not_share_its_rows(policy: type[Memory]) -> None:
    memory, copy = filled(policy(4), 4), policy(4)
    copy.load_state_dict(memory.state_dict(), CPU)
    memory["y"].zero_()
    assert copy["y"].tolist() == [0, 1, 2, 3]


def test_a_state_of_more_rows_than_there_is_room_for_is_refused(policy: type[Memory]) -> None:
    with pytest.raises(UserError, match="the state has 4 rows, capacity is 3"):
        policy(3).load_state_dict(filled(policy(4), 4).state_dict(), CPU)


def test_a_state_of_fewer_rows_than_there_was_room_for_is_refused(policy: type[Memory]) -> None:
    state = _with_four_rows(filled(policy(10), 6))
    with pytest.raises(UserError, match=r"columns of \[4\] rows cannot be, .* 6 rows offered"):
        policy(10).check_state(state, 10)


def test_a_policy_may_leave_room_unless_it_says_that_it_fills_up() -> None:
    class Own(Memory):
        name = "own"

        @override
        def slots(self, rows: object, rng: object) -> list[int]:
            raise NotImplementedError

    Own(10).check_state(_with_four_rows(filled(Reservoir(10), 6)), 10)


def _with_four_rows(memory: Memory) -> dict[str, Any]:
    columns = {name: memory[name][:4] for name in memory.columns}
    return {**memory.state_dict(), "columns": columns}


@pytest.mark.parametrize("wrong", [[5] * 10, [0] * 3, [-1] * 10, [0, 2, 3, 4, 5, 6, 7, 8, 9, 9]])
def test_slots_that_cannot_be_are_refused_and_change_nothing(wrong: list[int]) -> None:
    class Wrong(Memory):
        name = "wrong"

        @override
        def slots(self, rows: object, rng: object) -> list[int]:
            return wrong

    memory = Wrong(capacity=20)
    with pytest.raises(UserError, match=r"memory wrong: slots\(\) must give"):
        memory.add(torch.Generator(), y=torch.arange(10))
    assert (len(memory), memory.seen) == (0, 0)
