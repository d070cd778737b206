import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from peerlearn.augment import (
    Augment,
    crop_flip,
    crop_flip_shared,
    crop_grey_mirrored,
    flip_grey_crop,
    full,
    full_aligned,
)

STRATEGIES: list[Augment] = [
    crop_flip,
    crop_flip_shared,
    full,
    full_aligned,
    crop_grey_mirrored,
    flip_grey_crop,
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(b: int, h: int = 16, w: int = 12) -> Tensor:
    return torch.rand(b, 3, h, w, generator=generator(99))


@pytest.mark.parametrize("augment", STRATEGIES)
def test_the_same_generator_state_gives_the_same_images(augment: Augment) -> None:
    x = images(9)
    assert torch.equal(augment(x, generator(1)), augment(x, generator(1)))
    assert not torch.equal(augment(x, generator(1)), augment(x, generator(2)))


@pytest.mark.parametrize("augment", STRATEGIES)
def test_nothing_else_is_touched(augment: Augment) -> None:
    x = images(9)
    before, state = x.clone(), torch.get_rng_state()
    augment(x, generator())
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("augment", STRATEGIES)
@pytest.mark.parametrize("b", [0, 1, 5])
def test_any_batch_of_any_size_stays_a_batch_of_images(augment: Augment, b: int) -> None:
    for h, w in ((32, 32), (9, 20)):
        out = augment(images(b, h, w), generator())
        assert out.shape == ((2 * b if augment is crop_grey_mirrored else b), 3, h, w)
        assert ((out >= 0) & (out <= 1 + 1e-6)).all()


def offsets(x: Tensor, out: Tensor) -> list[tuple[int, int, bool]]:
    """Find the crop and the mirroring that turned each image of x into that of out."""
    h, w = x.shape[2:]
    windows = F.pad(x, (4, 4, 4, 4)).unfold(2, h, 1).unfold(3, w, 1)  # (B, 3, 9, 9, H, W)
    wanted = torch.stack([out, out.flip(3)], dim=1)[:, :, :, None, None]  # (B, 2, 3, 1, 1, H, W)
    same = torch.stack([(windows == wanted[:, k]).all((1, 4, 5)) for k in (0, 1)], dim=3)
    found = same.nonzero().tolist()  # image, top, left, mirrored
    assert [image for image, *_ in found] == list(range(len(x)))
    return [(top, left, bool(mirrored)) for _, top, left, mirrored in found]


def test_partial_crops_half_of_the_images_each_at_its_own_offset() -> None:
    found = offsets(images(80), crop_flip(images(80), generator()))
    cropped = [(top, left) for top, left, _ in found if (top, left) != (4, 4)]
    assert 25 < len(cropped) < 55
    assert len(set(cropped)) > 15
    assert 25 < sum(mirrored for *_, mirrored in found) < 55


def test_partial_shared_crops_all_images_at_one_offset() -> None:
    rng, x = generator(), images(20)
    seen = set()
    for _ in range(5):
        found = offsets(x, crop_flip_shared(x, rng))
        assert len({(top, left) for top, left, _ in found}) == 1
        assert len({mirrored for *_, mirrored in found}) == 2
        seen.add(found[0][:2])
    assert len(seen) > 1


def test_gsa_appends_the_mirror_of_its_first_half() -> None:
    first, second = crop_grey_mirrored(images(7), generator()).chunk(2)
    assert torch.equal(second, first.flip(3))


@pytest.mark.parametrize(
    ("augment", "share"), [(full, 0.2), (crop_grey_mirrored, 0.2), (flip_grey_crop, 0.25)]
)
def test_greys_are_as_frequent_as_stated(augment: Augment, share: float) -> None:
    out = augment(images(2000, 4, 4), generator())
    is_grey = (out.amax(1) - out.amin(1)).flatten(1).amax(1) < 1e-6
    assert is_grey.float().mean() == pytest.approx(share, abs=0.03)
