import colorsys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import Tensor

from peerlearn.augment import ops

SIZES = [(32, 32), (20, 31), (7, 5)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(b: int, size: tuple[int, int] = (16, 12), seed: int = 0) -> Tensor:
    """Random images whose values are whole levels, so that Pillow can hold them."""
    levels = torch.randint(256, (b, 3, *size), generator=generator(seed))
    return levels / 255


def pillow(x: Tensor) -> Image.Image:
    return Image.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy())


def levels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


# ---- crop and mirror ----


def test_a_padded_crop_is_a_slice_of_the_padded_image() -> None:
    x = images(30)
    corners = ops.draw_corners(30, 4, generator())
    padded = F.pad(x, (4, 4, 4, 4))
    for cropped, image, (top, left) in zip(
        ops.crop(x, corners, pad=4), padded, corners.tolist(), strict=True
    ):
        assert torch.equal(cropped, image[:, top : top + 16, left : left + 12])


def test_one_corner_serves_the_whole_batch() -> None:
    x, corner = images(5), torch.tensor([[0, 7]])
    assert torch.equal(ops.crop(x, corner, pad=4), ops.crop(x, corner.expand(5, 2), pad=4))


def test_corners_reach_every_offset() -> None:
    assert sorted(ops.draw_corners(500, 4, generator()).unique().tolist()) == list(range(9))


def test_only_chosen_images_are_mirrored() -> None:
    x = images(2)
    mirrored = ops.mirror_(x.clone(), torch.tensor([0]))
    assert torch.equal(mirrored[0], x[0].flip(2))
    assert torch.equal(mirrored[1], x[1])


def test_images_are_chosen_as_often_as_asked() -> None:
    assert len(ops.draw_rows(20_000, 0.2, generator())) / 20_000 == pytest.approx(0.2, abs=0.01)


# ---- resized crop ----


@pytest.mark.parametrize("size", SIZES)
def test_a_resized_crop_is_the_interpolated_slice(size: tuple[int, int]) -> None:
    x = images(40, size)
    boxes = ops.draw_boxes(40, size, generator(), min_area=0.2)
    out = ops.resized_crop(x, boxes)
    for image, result, top, left, h, w in zip(x, out, *boxes, strict=True):
        cut = image[None, :, top : top + h, left : left + w]
        expected = F.interpolate(cut, size, mode="bilinear", align_corners=False)
        torch.testing.assert_close(result[None], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [*SIZES, (1, 1), (1, 6)])
def test_an_aligned_crop_is_the_slice_interpolated_with_aligned_corners(
    size: tuple[int, int],
) -> None:
    x = images(40, size)
    boxes = ops.draw_boxes(40, size, generator(), min_area=0.2, smaller=True)
    out = ops.resized_crop(x, boxes, aligned=True)
    for image, result, top, left, h, w in zip(x, out, *boxes, strict=True):
        cut = image[None, :, top : top + h, left : left + w]
        expected = F.interpolate(cut, size, mode="bilinear", align_corners=True)
        torch.testing.assert_close(result[None], expected, atol=1e-5, rtol=0)


def test_the_corners_of_an_aligned_crop_are_those_of_its_box() -> None:
    x = images(1, (8, 8))
    box = ops.Boxes(*(torch.tensor([n]) for n in (2, 1, 5, 6)))
    out = ops.resized_crop(x, box, aligned=True)
    torch.testing.assert_close(out[..., ::7, ::7], x[..., [2, 6], :][..., [1, 6]])


@pytest.mark.parametrize("size", SIZES)
def test_a_crop_that_looks_beyond_its_box_is_an_affine_grid_sample(size: tuple[int, int]) -> None:
    h, w = size
    x = images(40, size)
    boxes = ops.draw_boxes(40, size, generator(), min_area=0.3)
    theta = torch.zeros(40, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = boxes.width / w, boxes.height / h
    theta[:, 0, 2] = (2 * boxes.left + boxes.width) / w - 1
    theta[:, 1, 2] = (2 * boxes.top + boxes.height) / h - 1
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    expected = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    out = ops.resized_crop(x, boxes, clamp_to_box=False)
    torch.testing.assert_close(out, expected, atol=2e-5, rtol=0)


def test_the_box_of_the_whole_image_changes_nothing() -> None:
    x = images(3, (9, 14))
    zero = torch.zeros(3, dtype=torch.int64)
    whole = ops.Boxes(zero, zero, zero + 9, zero + 14)
    torch.testing.assert_close(ops.resized_crop(x, whole), x, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [*SIZES, (64, 8), (1, 1)])
def test_boxes_lie_within_the_image(size: tuple[int, int]) -> None:
    top, left, height, width = ops.draw_boxes(3000, size, generator(), min_area=0.2)
    assert min(t.min() for t in (top, left)) >= 0
    assert min(t.min() for t in (height, width)) >= 1
    assert (top + height).max() <= size[0]
    assert (left + width).max() <= size[1]


def test_boxes_have_the_area_and_the_aspect_that_were_asked_for() -> None:
    boxes = ops.draw_boxes(3000, (224, 224), generator(), min_area=0.6)
    area = boxes.height * boxes.width / 224**2
    aspect = boxes.width / boxes.height
    assert 0.59 < area.min() < 0.61
    assert area.max() > 0.98
    assert aspect.min() > 0.74
    assert aspect.max() < 1.35
    assert aspect.log().mean() == pytest.approx(0, abs=0.01)


def test_a_small_box_starts_anywhere_it_fits() -> None:
    boxes = ops.draw_boxes(4000, (8, 8), generator(), min_area=0.2)
    tops = boxes.top[boxes.height == 5]
    assert tops.bincount().tolist() == pytest.approx([len(tops) / 4] * 4, rel=0.2)


def test_an_image_that_fits_no_attempt_is_cropped_at_its_centre() -> None:
    boxes = ops.draw_boxes(50, (64, 8), generator(), min_area=1)  # any box would be too wide
    assert torch.stack(boxes).unique(dim=1).flatten().tolist() == [26, 0, 11, 8]


def plain_smaller_boxes(count: int, n: int, low: float, seed: int) -> np.ndarray:
    """(height, width) of boxes in an image of n x n, one attempt after the other."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        for _ in range(10):
            area = rng.uniform(low, 1) * n * n
            aspect = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
            height, width = round(np.sqrt(area / aspect)), round(np.sqrt(area * aspect))
            if 0 < height < n and 0 < width < n:
                break
        else:
            height, width = round(0.75 * n), n
        found.append((height, width))
    return np.array(found)


@pytest.mark.parametrize(
    ("n", "low", "median"),  # kornia 0.6.8: medians of 200,000 boxes
    [(32, 0.2, 0.517), (32, 0.6, 0.727), (64, 0.2, 0.527), (64, 0.6, 0.727)],
)
def test_smaller_boxes_have_the_areas_of_kornias(n: int, low: float, median: float) -> None:
    boxes = ops.draw_boxes(40_000, (n, n), generator(), min_area=low, smaller=True)
    area = (boxes.height * boxes.width / n**2).numpy()
    assert np.median(area) == pytest.approx(median, abs=0.01)
    plain = plain_smaller_boxes(10_000, n, low, seed=0).prod(axis=1) / n**2
    below = [(areas[:, None] <= np.linspace(low, 1, 40)).mean(axis=0) for areas in (area, plain)]
    assert below[0] == pytest.approx(below[1], abs=0.02)


def test_boxes_as_large_as_the_image_have_more_area_than_smaller_ones() -> None:
    boxes = ops.draw_boxes(40_000, (32, 32), generator(), min_area=0.2)
    area = boxes.height * boxes.width / 32**2
    assert area.median() == pytest.approx(0.55, abs=0.01)


@pytest.mark.parametrize("size", [(32, 32), (20, 31), (3, 3)])
def test_smaller_boxes_are_lower_and_narrower_than_the_image_or_of_the_widest_aspect(
    size: tuple[int, int],
) -> None:
    boxes = ops.draw_boxes(3000, size, generator(), min_area=0.6, smaller=True)
    top, left, height, width = boxes
    smaller = (height < size[0]) & (width < size[1])
    wide = torch.stack([height, width])[:, ~smaller].unique(dim=1).T.tolist()
    assert wide in (
        [],
        [[round(min(size[0], size[1] * 3 / 4)), round(min(size[1], size[0] * 4 / 3))]],
    )
    assert smaller.any()
    assert min(t.min() for t in (top, left)) >= 0
    assert (top + height).max() <= size[0]
    assert (left + width).max() <= size[1]


def test_without_a_smaller_box_one_of_the_widest_aspect_lies_anywhere() -> None:
    boxes = ops.draw_boxes(900, (8, 8), generator(), min_area=1, smaller=True)
    fallback = boxes.width == 8
    assert fallback.sum() > 100
    assert set(boxes.height[fallback].tolist()) == {6}
    assert set(boxes.top[fallback].tolist()) == {0, 1, 2}


def test_boxes_and_smaller_boxes_take_as_many_draws() -> None:
    first, second = generator(), generator()
    ops.draw_boxes(7, (32, 32), first, min_area=0.2)
    ops.draw_boxes(7, (32, 32), second, min_area=0.2, smaller=True)
    assert torch.equal(first.get_state(), second.get_state())


# ---- colours ----


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.0, 1.2, 1.4])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ops.brightness, ImageEnhance.Brightness),
        (ops.contrast, ImageEnhance.Contrast),
        (ops.saturation, ImageEnhance.Color),
    ],
)
def test_an_adjustment_is_pillows_to_about_a_level(ours, theirs, factor: float) -> None:  # type: ignore[no-untyped-def]
    x = images(5)
    out = ours(x, torch.full((5,), factor))
    expected = torch.stack([levels(theirs(pillow(image)).enhance(factor)) for image in x])
    # Pillow truncates the result, and rounds the grey it blends with.
    torch.testing.assert_close(out, expected, atol=1.25 / 255, rtol=0)


def test_a_factor_of_one_and_no_turn_change_nothing() -> None:
    x, one = images(4), torch.ones(4)
    for adjust, amount in zip(ops.ADJUSTMENTS, (one, one, one, 0 * one), strict=True):
        torch.testing.assert_close(adjust(x, amount), x, atol=1e-6, rtol=0)


def corners_of_the_colour_cube() -> Tensor:
    """All colours of channels 0, 1/2 and 1 as one image (1, 3, 9, 3): ties, greys, primaries."""
    channel = torch.tensor([0.0, 0.5, 1.0])
    return torch.cartesian_prod(channel, channel, channel).T.reshape(1, 3, 9, 3)


@pytest.mark.parametrize("turn", [-0.7, -0.1, -0.03, 0.04, 0.1, 0.5])
def test_turning_the_hue_agrees_with_colorsys(turn: float) -> None:
    for x in (images(2), corners_of_the_colour_cube()):
        out = ops.hue(x, torch.full((len(x),), turn))
        before, after = (t.movedim(1, 3).reshape(-1, 3).tolist() for t in (x, out))
        for pixel, result in zip(before, after, strict=True):
            h, s, v = colorsys.rgb_to_hsv(*pixel)
            expected = colorsys.hsv_to_rgb((h + turn) % 1, s, v)
            assert all(abs(r - e) < 1e-5 for r, e in zip(result, expected, strict=True))


def test_each_image_is_adjusted_by_its_own_amount() -> None:
    x, amounts = images(3), torch.tensor([0.7, 1.0, 1.3])
    for adjust in ops.ADJUSTMENTS:
        alone = [adjust(x[i : i + 1], amounts[i : i + 1]) for i in range(3)]
        torch.testing.assert_close(adjust(x, amounts), torch.cat(alone))


def test_adjustments_stay_within_the_range_of_images() -> None:
    x, amounts = images(8), torch.linspace(0, 3, 8)
    for adjust in ops.ADJUSTMENTS:
        out = adjust(x, amounts)
        assert out.min() >= 0
        assert out.max() <= 1


def test_jitter_applies_the_four_adjustments_in_the_drawn_order() -> None:
    x = images(20)
    how = ops.draw_jitter(20, generator())._replace(order=[3, 1, 0, 2])
    expected = x[how.rows]
    for i in how.order:
        expected = ops.ADJUSTMENTS[i](expected, how.amounts[i])
    out = ops.jitter_(x.clone(), how)
    torch.testing.assert_close(out[how.rows], expected)
    others = [i for i in range(20) if i not in how.rows]
    assert others
    assert torch.equal(out[others], x[others])


def test_jitter_is_drawn_from_the_given_ranges() -> None:
    how = ops.draw_jitter(5000, generator())
    low, high = how.amounts.aminmax(dim=1)
    torch.testing.assert_close(low, torch.tensor([0.6, 0.6, 0.6, -0.1]), atol=1e-3, rtol=0)
    torch.testing.assert_close(high, torch.tensor([1.4, 1.4, 1.4, 0.1]), atol=1e-3, rtol=0)
    assert len(how.rows) / 5000 == pytest.approx(0.8, abs=0.02)
    rng = generator()
    assert len({tuple(ops.draw_jitter(1, rng).order) for _ in range(400)}) == 24


def test_only_chosen_images_turn_grey() -> None:
    x = images(2)
    out = ops.greyscale_(x.clone(), torch.tensor([1]))
    assert torch.equal(out[0], x[0])
    r, g, b = x[1]
    torch.testing.assert_close(out[1], (0.299 * r + 0.587 * g + 0.114 * b).expand(3, -1, -1))
