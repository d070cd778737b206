from itertools import pairwise

import pytest
import torch
from torch import Tensor

from peerlearn.augment import ViewChain, ops, randaugment
from peerlearn.errors import UserError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(b: int, h: int = 16, w: int = 12) -> Tensor:
    return torch.rand(b, 3, h, w, generator=generator(99))


def test_view_0_is_the_batch_itself() -> None:
    x = images(4)
    before = x.clone()
    views = ViewChain()(x, generator())
    assert views[0] is x
    assert torch.equal(x, before)


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("b", [0, 1, 6])
@pytest.mark.parametrize("per_sample", [False, True])
def test_a_chain_gives_one_view_more_than_it_has_stages(
    stages: int, b: int, per_sample: bool
) -> None:
    x = images(b)
    views = ViewChain(stages=stages, per_sample=per_sample)(x, generator())
    assert len(views) == stages + 1
    for view in views:
        assert view.shape == x.shape
        assert view.dtype == torch.float32
        assert ((view >= 0) & (view <= 1 + 1e-6)).all()


def test_a_longer_chain_begins_with_the_shorter_one() -> None:
    x = images(5)
    short, long = (ViewChain(stages=s)(x, generator()) for s in (2, 4))
    assert all(torch.equal(a, b) for a, b in zip(short, long, strict=False))


@pytest.mark.parametrize("per_sample", [False, True])
def test_the_same_generator_state_gives_the_same_views(per_sample: bool) -> None:
    x, chain = images(8), ViewChain(per_sample=per_sample)
    state = torch.get_rng_state()
    first, second, other = (chain(x, generator(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first[1:], other[1:], strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_without_operations_later_views_are_view_1_in_whole_levels() -> None:
    _, first, second, third = ViewChain(ops=0)(images(5), generator())
    assert torch.equal(second, (first * 255.999).floor() / 255)
    assert torch.equal(third, second)


def test_each_view_is_randaugment_of_the_one_before_through_floats() -> None:
    chain, x = ViewChain(stages=4, ops=2, magnitude=11), images(6)
    rng = generator(5)
    views = chain(x, rng)
    again = generator(5)
    ViewChain(stages=1)(x, again)  # draws what view 1 drew
    for before, after in pairwise(views[1:]):
        plan = randaugment.draw(2, 1, again)
        levels = randaugment.apply((before * 255.999).byte(), plan, 11)
        assert torch.equal(after, levels / 255)


def test_a_level_survives_the_round_trip_through_floats() -> None:
    level = torch.arange(256).byte()
    assert torch.equal((level / 255).mul(255.999).floor().byte(), level)


def test_view_1_keeps_most_of_the_image_and_mirrors_half_of_them() -> None:
    ramp = torch.linspace(0, 1, 32).expand(400, 3, 32, 32)  # brighter to the right
    view = ViewChain(stages=1)(ramp, generator())[1]
    span = view[:, 0, 0, -1] - view[:, 0, 0, 0]
    assert (span < 0).float().mean() == pytest.approx(0.5, abs=0.1)
    assert span.abs().min() > 0.5  # at least sqrt(0.6 * 3/4) of the width, between pixel centres


def test_an_aligned_view_1_is_the_aligned_crop_of_a_smaller_box() -> None:
    x, rng = images(6), generator(3)
    boxes = ops.draw_boxes(6, (16, 12), rng, min_area=0.6, smaller=True)
    flips = ops.draw_rows(6, 0.5, rng)
    expected = ops.mirror_(ops.resized_crop(x, boxes, aligned=True), flips)
    assert torch.equal(ViewChain(stages=1, aligned=True)(x, generator(3))[1], expected)
    assert not torch.equal(ViewChain(stages=1)(x, generator(3))[1], expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stages": -1}, "stages must be at least 0, got -1"),
        ({"ops": -2}, "ops must be at least 0, got -2"),
        ({"magnitude": 31}, "magnitude must be at most 30, got 31"),
        ({"magnitude": -1}, "magnitude must be at least 0, got -1"),
    ],
)
def test_a_wrong_setting_is_named_with_its_range(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ViewChain(**wrong)  # type: ignore[arg-type]
