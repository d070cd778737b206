import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from peerlearn.augment import randaugment as ra

MAGNITUDES = [5, 11, 15]
SIZES = [(32, 32), (17, 26)]
SIGNS = [1, -1]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(size: tuple[int, int] = (32, 32)) -> Tensor:
    """Forty uint8 images: noise of full and narrow range, smooth ramps, flat ones."""
    h, w = size
    noise = torch.randint(256, (20, 3, h, w), generator=generator())
    low = torch.randint(120, (10, 3, 1, 1), generator=generator(1))
    narrow = low + noise[:10] % torch.randint(1, 130, (10, 3, 1, 1), generator=generator(2))
    ramp = (torch.arange(h)[:, None] * 3 + torch.arange(w) * 4).clamp(max=255).expand(8, 3, h, w)
    flat = torch.tensor([0, 200]).view(2, 1, 1, 1).expand(2, 3, h, w)
    return torch.cat([noise, narrow, ramp, flat]).byte()


def via_pillow(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    changed = [
        np.array(change(Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())))
        for image in x
    ]
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)


# ---- colours: Pillow, to the last bit ----


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("m", MAGNITUDES)
@pytest.mark.parametrize("name", ["Brightness", "Color", "Contrast", "Sharpness"])
def test_enhancements_equal_pillow(name: str, m: int, sign: int, size: tuple[int, int]) -> None:
    x = images(size)
    factor = 1 + sign * 0.9 * m / 30
    expected = via_pillow(x, lambda image: getattr(ImageEnhance, name)(image).enhance(factor))
    assert torch.equal(ra.OPERATIONS[name](x, m, sign), expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("m", "bits"), [(0, 8), (5, 7), (11, 7), (15, 6), (30, 4)])
def test_posterize_equals_pillow(m: int, bits: int, size: tuple[int, int]) -> None:
    x = images(size)
    expected = via_pillow(x, lambda image: ImageOps.posterize(image, bits))
    assert torch.equal(ra.OPERATIONS["Posterize"](x, m, 1), expected)


@pytest.mark.parametrize(
    ("m", "threshold"), [(0, 255), (5, 212.5), (11, 161.5), (15, 127.5), (30, 0)]
)
def test_solarize_equals_pillow(m: int, threshold: float) -> None:
    x = images()
    expected = via_pillow(x, lambda image: ImageOps.solarize(image, threshold))  # type: ignore[arg-type]
    assert torch.equal(ra.OPERATIONS["Solarize"](x, m, 1), expected)


@pytest.mark.parametrize("size", [*SIZES, (5, 7), (70, 64)])
@pytest.mark.parametrize(
    ("name", "theirs"), [("AutoContrast", ImageOps.autocontrast), ("Equalize", ImageOps.equalize)]
)
def test_histogram_operations_equal_pillow(
    name: str, theirs: Callable[[Image.Image], Image.Image], size: tuple[int, int]
) -> None:
    x = images(size)
    assert torch.equal(ra.OPERATIONS[name](x, 15, 1), via_pillow(x, theirs))


def test_autocontrast_equals_pillow_on_a_thousand_ranges_of_levels() -> None:
    pairs = torch.combinations(torch.arange(0, 256, 5))  # darkest, brightest
    ramp = torch.arange(256).clamp(pairs[:, :1], pairs[:, 1:]).byte()
    x = ramp.view(-1, 1, 16, 16).expand(-1, 3, 16, 16)
    assert torch.equal(ra.autocontrast(x), via_pillow(x, ImageOps.autocontrast))


def test_blending_equals_pillow_for_every_pair_of_levels() -> None:
    base = torch.arange(256).byte().repeat(256, 1)
    top = base.T.contiguous()
    for m in range(31):
        for sign in SIGNS:
            factor = 1 + sign * 0.9 * m / 30
            mixed = Image.blend(Image.fromarray(base.numpy()), Image.fromarray(top.numpy()), factor)
            assert torch.equal(
                ra.blend(base.float(), top, factor), torch.from_numpy(np.array(mixed))
            )


def test_images_too_small_to_smooth_stay_as_they_are() -> None:
    x = images((2, 9))
    assert torch.equal(ra.sharpness(x, 1.45), x)


# ---- geometry ----

Point = Callable[[float, float], tuple[float, float]]


def inverse(name: str, m: int, sign: int, h: int, w: int) -> Point:
    """Where an output point comes from, written as geometry."""
    slope, angle = sign * m / 100, math.radians(sign * m)
    right = sign * int(150 / 331 * w * m / 30)
    down = sign * int(150 / 331 * h * m / 30)

    def turned(x: float, y: float) -> tuple[float, float]:
        dx, dy = x - w / 2, y - h / 2
        return (
            w / 2 + dx * math.cos(angle) - dy * math.sin(angle),
            h / 2 + dx * math.sin(angle) + dy * math.cos(angle),
        )

    maps: dict[str, Point] = {
        "ShearX": lambda x, y: (x + slope * y, y),
        "ShearY": lambda x, y: (x, y + slope * x),
        "TranslateX": lambda x, y: (x - right, y),
        "TranslateY": lambda x, y: (x, y - down),
        "Rotate": turned,
    }
    return maps[name]


def moved_slowly(x: Tensor, source: Point) -> Tensor:
    h, w = x.shape[2:]
    out = torch.zeros_like(x)
    for row in range(h):
        for col in range(w):
            u, v = (math.floor(t) for t in source(col + 0.5, row + 0.5))
            if 0 <= u < w and 0 <= v < h:
                out[:, :, row, col] = x[:, :, v, u]
    return out


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("m", MAGNITUDES)
@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"])
def test_moves_equal_a_slow_loop_and_pillow(
    name: str, m: int, sign: int, size: tuple[int, int]
) -> None:
    h, w = size
    x = images(size)
    source = inverse(name, m, sign, h, w)
    out = ra.OPERATIONS[name](x, m, sign)
    assert torch.equal(out, moved_slowly(x, source))

    (c, f), (ac, df), (bc, ef) = source(0, 0), source(1, 0), source(0, 1)
    matrix = (ac - c, bc - c, c, df - f, ef - f, f)
    theirs = via_pillow(x, lambda image: image.transform((w, h), Image.Transform.AFFINE, matrix))
    assert torch.equal(out, theirs)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("m", MAGNITUDES)
def test_a_rotation_is_pillows(m: int, sign: int) -> None:
    x = images()
    assert torch.equal(ra.rotate(x, sign * m), via_pillow(x, lambda image: image.rotate(sign * m)))


@pytest.mark.parametrize(("side", "m", "pixels"), [(32, 15, 7), (64, 11, 10), (224, 11, 37)])
def test_translations_are_truncated_to_whole_pixels(side: int, m: int, pixels: int) -> None:
    x = torch.zeros(1, 1, side, side).byte()
    x[..., side // 2, side // 2] = 1
    right = ra.OPERATIONS["TranslateX"](x, m, 1)
    up = ra.OPERATIONS["TranslateY"](x, m, -1)
    assert right.nonzero().tolist() == [[0, 0, side // 2, side // 2 + pixels]]
    assert up.nonzero().tolist() == [[0, 0, side // 2 - pixels, side // 2]]


# ---- draw and apply ----


def test_there_are_fourteen_operations_and_identity_is_one() -> None:
    x = images()
    assert len(ra.OPERATIONS) == 14
    assert torch.equal(ra.OPERATIONS["Identity"](x, 15, 1), x)


@pytest.mark.parametrize("name", list(ra.OPERATIONS))
def test_operations_leave_their_input_untouched_and_take_empty_batches(name: str) -> None:
    x = images((9, 14))
    before = x.clone()
    for sign in SIGNS:
        out = ra.OPERATIONS[name](x, 15, sign)
        assert out.dtype == torch.uint8
        assert ra.OPERATIONS[name](x[:0], 15, sign).shape == (0, 3, 9, 14)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ["ShearX", "TranslateY", "Rotate", "Brightness", "Sharpness"])
def test_the_sign_matters_where_the_magnitude_has_one(name: str) -> None:
    x = images()
    assert not torch.equal(ra.OPERATIONS[name](x, 15, 1), ra.OPERATIONS[name](x, 15, -1))


@pytest.mark.parametrize("columns", [1, 40])
def test_a_draw_has_a_row_per_operation_and_a_column_per_batch_or_image(columns: int) -> None:
    operations, signs = ra.draw(3, columns, generator())
    assert operations.shape == signs.shape == (3, columns)
    assert set(signs.flatten().tolist()) <= {1, -1}


def test_operations_and_signs_are_drawn_evenly() -> None:
    operations, signs = ra.draw(1, 28_000, generator())
    assert operations.flatten().bincount().tolist() == pytest.approx([2000] * 14, rel=0.1)
    assert signs.float().mean() == pytest.approx(0, abs=0.02)


def test_one_draw_per_batch_treats_equal_images_equally() -> None:
    x = images()[:1].expand(30, -1, -1, -1)
    rng = generator()
    for _ in range(10):
        assert len(ra.apply(x, ra.draw(3, 1, rng), 15).flatten(1).unique(dim=0)) == 1
    assert len(ra.apply(x, ra.draw(3, 30, rng), 15).flatten(1).unique(dim=0)) > 20


def test_one_draw_per_image_equals_each_image_on_its_own() -> None:
    x = images()
    plan = ra.draw(3, len(x), generator())
    alone = [
        ra.apply(x[i : i + 1], ra.Plan(*(t[:, i : i + 1] for t in plan)), 15) for i in range(len(x))
    ]
    assert torch.equal(ra.apply(x, plan, 15), torch.cat(alone))
