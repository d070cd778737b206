import os
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pictures import draw, picture
from PIL import Image
from torch import Tensor

from peerlearn.data import decode as decoder
from peerlearn.data.pictures import pictures
from peerlearn.data.user_arrays import checked_images
from peerlearn.errors import UserError

B, H, W = 5, 8, 10
LAST = np.stack([picture(seed, H, W) for seed in range(B)])  # (B, H, W, 3)
X = torch.from_numpy(np.ascontiguousarray(LAST.transpose(0, 3, 1, 2)))
ALPHA = np.random.default_rng(9).integers(0, 256, (B, H, W, 1), dtype=np.uint8)
WITH_ALPHA = np.concatenate([LAST, ALPHA], -1)
GREY = X[:, :1].repeat(1, 3, 1, 1)
few = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def forward(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, -1, -3)


def resized(x: Tensor, height: int, width: int) -> Tensor:
    """Each image of (B, 3, H, W), resized the way that is promised."""
    images = [Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()) for image in x]
    rows = [np.asarray(i.resize((width, height), Image.Resampling.BILINEAR)) for i in images]
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2)


def deep_png(path: Path, colours: np.ndarray) -> Path:
    """Write (H, W, 3 or 4) with 16 bits, which Pillow cannot."""
    height, width, channels = colours.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in colours)
    head = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    parts = {b"IHDR": head, b"IDAT": zlib.compress(rows), b"IEND": b""}
    chunks = [
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts.items()
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return path


def refused(message: str, images: Any, size: Any = None) -> str:
    with pytest.raises(UserError, match=message) as error:
        pictures(images, size)
    assert str(error.value).isprintable()
    return str(error.value)


BATCHES: dict[str, tuple[np.ndarray, Tensor]] = {
    "colours first": (forward(LAST), X),
    "colours last": (LAST, X),
    "alpha first": (forward(WITH_ALPHA), X),
    "alpha last": (WITH_ALPHA, X),
    "grey first": (forward(LAST[..., :1]), GREY),
    "grey last": (LAST[..., :1], GREY),
    "grey": (LAST[..., 0], GREY),
    "two grey": (LAST[:2, ..., 0], GREY[:2]),
    "upside down": (LAST[:, ::-1], X.flip(2)),
}
IMAGES: dict[str, tuple[np.ndarray, Tensor]] = {
    "colours last": (LAST[0], X[:1]),
    "alpha last": (WITH_ALPHA[0], X[:1]),
    "grey last": (LAST[0, ..., :1], GREY[:1]),
    "grey first": (LAST[0, ..., 0][None], GREY[:1]),
    "grey": (LAST[0, ..., 0], GREY[:1]),
}
ONLY_IN_LISTS = {
    "colours first": (forward(LAST[0]), X[:1]),
    "alpha first": (forward(WITH_ALPHA[0]), X[:1]),
}


@pytest.mark.parametrize("size", [None, (H, W), (6, 7)])
@pytest.mark.parametrize(("given", "expected"), (BATCHES | IMAGES).values())
def test_an_array_or_a_tensor_of_any_shape_becomes_colours_first(
    given: np.ndarray, expected: Tensor, size: tuple[int, int] | None
) -> None:
    wanted = expected if size in (None, (H, W)) else resized(expected, 6, 7)
    for images in (given, torch.from_numpy(given.copy())):
        result = pictures(images, size)
        assert (result.dtype, result.is_contiguous()) == (torch.uint8, True)
        assert torch.equal(result, wanted)


@pytest.mark.parametrize(("given", "expected"), (IMAGES | ONLY_IN_LISTS).values())
def test_an_array_in_a_list_is_one_image(given: np.ndarray, expected: Tensor) -> None:
    for images in ([given], (torch.from_numpy(given.copy()),)):
        assert torch.equal(pictures(images, None), expected)


def test_batches_in_a_list_follow_each_other() -> None:
    assert torch.equal(pictures([X[:2], LAST[2], WITH_ALPHA[3:]], None), X)


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("width", [W, 3])
def test_what_may_be_one_image_or_a_few_grey_ones_is_refused_and_the_advice_works(
    count: int, width: int
) -> None:
    x = forward(WITH_ALPHA[0])[:count, :, :width]
    message = rf"images: shape \({count}, 8, {width}\) may be one image or {count} grey ones; give "
    refused(message + r"x\[None\] for one image, x\[:, None\] for grey ones", x)
    if width == W:
        assert torch.equal(pictures(x[None], None), X[:1])
        assert torch.equal(pictures(x[:, None], None)[:, 2], torch.from_numpy(x))


@pytest.mark.parametrize("shape", [(2, 3, 9, 3), (2, 3, 9, 4), (2, 3, 3, 9), (2, 3, 1, 1)])
def test_three_channels_in_the_second_place_always_mean_themselves(shape: tuple[int, ...]) -> None:
    x = torch.randint(256, shape, dtype=torch.uint8)
    assert torch.equal(pictures(x.numpy(), None), x)
    assert torch.equal(pictures(list(x), None), x)


@pytest.mark.parametrize("shape", [(2, 1, 9, 3), (2, 4, 9, 1), (2, 4, 4, 4), (1, 9, 3), (1, 9, 1)])
def test_images_so_narrow_that_a_width_may_be_channels_are_refused(shape: tuple[int, ...]) -> None:
    message = "may have its channels first or last; give .batch, 3, height, width"
    refused(message, np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    "shape",
    [(), (9,), (2, 9, 9, 9), (2, 9, 9, 2), (9, 9, 2), (2, 3, 9, 9, 9), (1, 1, 1, 1, 1, 1)],
)
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    text = refused("^images: shape .* is not that of images; give", np.zeros(shape, np.uint8))
    assert f"shape {shape} is" in text


def test_a_grey_batch_in_a_list_is_refused_with_advice() -> None:
    refused(r"images\[1\]: shape \(5, 8, 10\) .*; grey images are x\[:, None\]", [X, X[:, 0]])
    assert torch.equal(pictures([X, X[:, 0][:, None]], None)[B:], GREY)


def saved(folder: Path, image: Image.Image, suffix: str = "png") -> Path:
    path = folder / f"image.{suffix}"
    image.save(path)
    return path


RGB = Image.fromarray(LAST[0])
MODES: dict[str, Callable[[], Image.Image]] = {
    "RGB": lambda: RGB,
    "L": lambda: RGB.convert("L"),
    "RGBA": lambda: Image.fromarray(WITH_ALPHA[0]),
    "1": lambda: RGB.convert("1"),
    "I;16": lambda: Image.fromarray(LAST[0, ..., 0].astype(np.uint16) * 256 + 77),
}


@pytest.mark.parametrize("size", [None, (5, 13), (16, 16)])
@pytest.mark.parametrize("mode", MODES)
def test_a_file_its_pil_image_and_its_array_are_the_same(
    tmp_path: Path, mode: str, size: tuple[int, int] | None
) -> None:
    image = MODES[mode]()
    assert image.mode == mode
    path = saved(tmp_path, image)
    from_file = pictures(path, size)
    assert from_file.shape == (1, 3, *(size or (H, W)))
    assert np.array_equal(from_file[0], decoder.read_image(path, *(size or (H, W))))
    for same in (str(path), image, np.asarray(image), np.asarray(image)[None], [path], (image,)):
        assert torch.equal(pictures(same, size), from_file)


@pytest.mark.parametrize(
    ("mode", "suffix"), [("P", "gif"), ("P", "png"), ("LA", "png"), ("CMYK", "tif"), ("RGB", "jpg")]
)
def test_a_file_of_any_kind_and_its_pil_image_are_the_same(
    tmp_path: Path, mode: str, suffix: str
) -> None:
    path = saved(tmp_path, RGB.convert(mode), suffix)
    with Image.open(path) as image:
        assert torch.equal(pictures(image, (6, 7)), pictures(path, (6, 7)))
        assert torch.equal(pictures(path, None), pictures(np.asarray(image.convert("RGB")), None))


def test_colours_below_alpha_stay_whatever_the_image_comes_as(tmp_path: Path) -> None:
    clear = np.dstack([LAST[0], np.zeros((H, W), np.uint8)])
    path = saved(tmp_path, Image.fromarray(clear))
    with Image.open(path) as image:
        for images in (path, image, clear, forward(clear)[None]):
            assert torch.equal(pictures(images, None), X[:1])


def test_odd_palettes_pass_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "odd.png"
    RGB.convert("P").save(path, transparency=bytes(range(256)))
    with warnings.catch_warnings(action="error"), Image.open(path) as image:
        assert torch.equal(pictures([path], None), pictures([image], None))


def test_files_are_what_a_folder_of_them_would_be(tmp_path: Path) -> None:
    files = [draw(tmp_path / f"{i}.png", i, 8 + i, 9) for i in range(3)]
    for size in (None, 12):
        height, width, rows = decoder.decode(files, size)
        expected = torch.from_numpy(np.stack(list(rows)))
        assert expected.shape[2:] == (height, width)
        assert torch.equal(pictures(files, (size, size) if size else None), expected)


def test_kinds_and_sizes_may_be_mixed(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", 1, 20, 30)
    mixed = [path, str(path), RGB, WITH_ALPHA[2], X[3], X[:2] / 255, picture(4, 3, 90)]
    whole = pictures(mixed, (11, 12))
    alone = [pictures([image], (11, 12)) for image in mixed]
    assert whole.shape == (8, 3, 11, 12)
    assert torch.equal(whole, torch.cat(alone))


def test_without_a_size_images_keep_theirs_if_all_agree_and_else_become_64_by_64() -> None:
    assert pictures([RGB, X, LAST[0]], None).shape == (B + 2, 3, H, W)
    mixed = pictures([RGB, X, picture(0, H, W + 1)], None)
    assert torch.equal(mixed[1 : B + 1], resized(X, 64, 64))


def test_a_ready_tensor_is_returned_as_it_is() -> None:
    turned = torch.from_numpy(LAST.copy()).permute(0, 3, 1, 2)  # not contiguous
    for x in (X, turned, X[:1]):
        assert pictures(x, None) is x
        assert pictures(x, (H, W)) is x


def test_a_ready_array_is_not_copied_unless_it_is_read_only() -> None:
    x = X.numpy().copy()
    assert pictures(x, (H, W)).data_ptr() == x.ctypes.data
    x.flags.writeable = False
    with warnings.catch_warnings(action="error"):
        assert pictures(x, None).data_ptr() != x.ctypes.data


def test_nothing_that_is_given_changes() -> None:
    array, tensor, image = WITH_ALPHA.copy(), X / 255, RGB.copy()
    before = tensor.clone()
    pictures([array, tensor, image], (4, 4)).fill_(0)
    pictures(tensor, None).fill_(0)
    assert np.array_equal(array, WITH_ALPHA)
    assert torch.equal(tensor, before)
    assert image == RGB


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_are_rounded_as_a_learner_rounds_them(dtype: torch.dtype) -> None:
    halves = torch.linspace(0, 1, 511, dtype=torch.float64).to(dtype)  # every half step too
    x = halves[:510].view(1, 3, 10, 17)
    expected = checked_images(x, None)
    for images in (x, x.permute(0, 2, 3, 1), [x[0]], x.clone().requires_grad_()):
        assert torch.equal(pictures(images, None), expected)


def test_all_256_levels_survive_as_floats() -> None:
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(1, 3, 1, 1)
    for dtype in (np.float16, np.float32, np.float64, ">f4"):
        assert torch.equal(pictures((levels.numpy() / 255).astype(dtype), None), levels)


def test_black_and_white_and_sixteen_bits_become_256_levels() -> None:
    bits = LAST[..., 0] > 99
    white = torch.from_numpy(bits * np.uint8(255))
    deep = X.numpy().astype(np.uint16) * 256 + 255
    assert torch.equal(pictures(bits, None)[:, 1], white)
    assert torch.equal(pictures(torch.from_numpy(bits), None)[:, 1], white)
    for images in (deep, deep.astype(">u2"), torch.from_numpy(deep), [deep]):
        assert torch.equal(pictures(images, None), X)


def test_sixteen_bits_that_may_be_eight_are_refused_unless_all_is_black() -> None:
    message = "uint16 pixels up to 255 may mean 8 bits or 16; make them uint8, shifted by 8 bits if"
    refused(message, np.full((8, 8), 255, np.uint16))
    assert not pictures(np.zeros((8, 8), np.uint16), None).any()


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_so_they_are_in_pil_images_and_files(suffix: str, tmp_path: Path) -> None:
    dark = Image.fromarray(LAST[0, ..., 0].astype(np.uint16))
    message = "uint16 pixels up to .* may mean 8 bits or 16; make them uint8"
    path = saved(tmp_path, dark, suffix)
    with Image.open(path) as image:
        for images in (dark, image):
            refused(f"^images: {message}", images, (4, 4))
    refused(rf"^images\[1\]: .*image\.{suffix}: {message}", [X, path])
    black = Image.fromarray(np.zeros((H, W), np.uint16))
    for images in (black, saved(tmp_path, black, suffix)):
        assert not pictures(images, None).any()


@pytest.mark.parametrize("channels", [3, 4])
def test_files_of_colours_with_16_bits_are_refused_if_the_upper_8_show_nothing(
    channels: int, tmp_path: Path
) -> None:
    deep = WITH_ALPHA[0].astype(np.uint16)[..., :channels]
    deep[..., 3:] = 65535
    path = deep_png(tmp_path / "dark.png", deep)
    with Image.open(path) as image:
        for images in (path, [image]):
            refused("pixels of 16 bits are 0 in the upper 8.*save the image with 8 bits", images)
    assert torch.equal(pictures(deep_png(path, deep << 8), None), X[:1])


def test_small_bits_for_a_pixel_are_no_16_bits_for_a_colour(tmp_path: Path) -> None:
    path = tmp_path / "565.bmp"
    head = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 62, 0, 54, 40, 2, 2, 1, 16, 0, 8, 0, 0, 0, 0)
    path.write_bytes(head + bytes(8))
    assert not pictures(path, None).any()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (X.long(), r"dtype must be uint8, .* got int64; if they run from 0 to 255, make them"),
        (X.numpy().astype(np.int8), "got int8;"),
        (X * 1j, "got complex64"),
        (X.float(), r"float pixels must lie in \[0, 1\], got 0 to 255; divide by 255"),
        (X / 255 - 0.5, r"float pixels must lie in \[0, 1\], got -0.5 to 0.5"),
        (X * float("nan"), "some pixels are NaN or infinite; drop or repair those images"),
        (X / 0.0, "some pixels are NaN or infinite"),
        (np.array(["a.png"]), r"dtype <U5 cannot be pixels; .*paths go in a list, x\.tolist\(\)$"),
        (LAST.astype(object), r"dtype object cannot be pixels; .*paths go in a list"),
        (LAST.astype("M8[s]"), r"dtype .* cannot be pixels; give uint8, or float in \[0, 1\]$"),
        (LAST.astype(np.longdouble), r"dtype (float128|longdouble|float64) cannot be pixels"),
        (X[:0], r"shape \(0, 3, 8, 10\) has no pixels; leave out what is empty"),
        (X[:, :, :0], "has no pixels"),
        (np.zeros((0, 8, 8), np.uint8), "has no pixels"),
        (np.zeros((8, 0), np.uint8), "has no pixels"),
        (X.to_sparse(), "need a plain tensor with values in it; try"),
        (X.to("meta"), "need a plain tensor with values in it; try"),
        (Image.new("RGB", (0, 4)), "0 x 4 has no pixels; leave this image out"),
        (Image.new("F", (4, 4)), "pixels of 32 bits have no known range; save the image with 8"),
        (None, "need a torch tensor, a numpy array, a PIL image or the path .*, got NoneType"),
        (7, "got int$"),
        (b"a.png", "got bytes$"),
        ({"x": X}, "got dict$"),
        (iter([X]), "got list_iterator$"),
        (np.uint8(3), "got uint8$"),
        ("", "not a file; name an image file"),
        ("nowhere/a.png", "nowhere/a.png: no such file; name an image file"),
        ("nul\0.png", r"nul\\x00.png: no such file"),
        ("long" * 2000, "no such file"),
    ],
)
def test_what_gives_no_image_is_refused_and_named_by_its_place_in_the_list(
    images: Any, message: str
) -> None:
    for size in (None, (4, 4)):
        assert refused(message, images, size).startswith("images: ")
        assert refused(message, [RGB, LAST[0], images, X], size).startswith("images[2]: ")


def test_lists_without_images_and_lists_of_lists_are_refused() -> None:
    refused("^images: the list is empty; leave out batches without images", [])
    refused("^images: the list is empty", ())
    refused(r"^images\[0\]: need .* got list; take numpy\.asarray", LAST[0].tolist())
    refused(r"^images\[1\]: shape \(5,\) is not that of images", (X, torch.arange(B)))  # (x, y)


@pytest.mark.parametrize("size", [8, (8,), (8, 8, 3), (8.0, 9.0), "ab", (None, 8)])
def test_a_size_must_be_a_height_and_a_width(size: Any) -> None:
    refused(r"images: size must be \(height, width\) in pixels, not ", X, size)


@pytest.mark.parametrize("size", [(0, 8), (8, -1), (8, 4097)])
def test_a_size_that_cannot_be_meant_is_refused(size: tuple[int, int]) -> None:
    refused("images: size must be from 1 to 4096, not ", X, size)


def test_links_to_files_are_followed_and_links_to_nowhere_named(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", 0, H, W)
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "lost.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "round.png").symlink_to(tmp_path / "round.png")
    assert torch.equal(pictures(tmp_path / "link", None), X[:1])
    for name in ("lost.png", "round.png"):
        refused(rf"images\[1\]: .*/{name}: no such file; name", [path, tmp_path / name])


def test_folders_pipes_and_devices_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path, tmp_path / "pipe.png", "/dev/zero"):
        refused("not a file; name an image file", [path], (4, 4))


def test_a_small_file_that_declares_a_huge_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.ppm"
    path.write_bytes(b"P6 9000 9000 255\n" + bytes(99))
    for size in (None, (4, 4)):
        with warnings.catch_warnings(action="error"), Image.open(path) as image:
            refused(r"images\[1\]: .*bomb\.ppm: over 67 million pixels", [RGB, path], size)
            refused(r"images\[1\]: over 67 million pixels", [RGB, image], size)
    path.write_bytes(b"P6 99000 99000 255\n" + bytes(99))
    refused(r"images: .*bomb\.ppm: over 67 million pixels", path)


@pytest.mark.parametrize(
    "content",
    [b"", b"x" * 999, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", b"P6 0 0 255\n"],
)
def test_a_file_that_is_no_image_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad\n.png"
    path.write_bytes(content)
    refused(r"images\[1\]: .*/bad\\n\.png: not a readable image .*; replace", [RGB, path])


def test_damage_is_found_in_files_and_in_pil_images_that_read_them_late(tmp_path: Path) -> None:
    path = draw(tmp_path / "cut.png", 0, 90, 90)
    path.write_bytes(path.read_bytes()[:9000])
    refused(r"images\[1\]: .*cut\.png: not a readable image \(.*trunc.*\); replace", [RGB, path])
    with Image.open(path) as image:
        refused(r"images\[1\]: not a readable image \(.*trunc.*\); replace", [RGB, image])
    closed = RGB.copy()
    closed.close()
    refused(r"images: not a readable image \(Operation on closed image\)", closed)


def made(images: Any, size: tuple[int, int] | None) -> Tensor | str:
    """The pictures, or why they were refused."""
    try:
        return pictures(images, size)
    except UserError as error:
        return str(error)


DTYPES = ["u1", "?", "u2", ">u2", "i2", "i8", "f2", "f4", ">f8", "c8", "U2", "O", "M8[s]"]


@few
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 8]), max_size=5),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 1, 255, 400]),
    st.booleans(),
    st.sampled_from([None, (8, 8), (3, 5)]),
)
def test_any_array_becomes_images_or_is_refused_with_its_place(
    shape: list[int], dtype: str, value: int, in_list: bool, size: tuple[int, int] | None
) -> None:
    x = np.full(shape, value % 256 if dtype == "u1" else value, "i8").astype(dtype)
    result = made([x] if in_list else x, size)
    if isinstance(result, str):
        assert result.startswith("images[0]: " if in_list else "images: ")
        return
    assert result.dtype == torch.uint8
    assert result.shape[1] == 3
    assert 0 not in result.shape
    assert size in (None, tuple(result.shape[2:]))
    assert result.unique().tolist() in ([0], [1], [255], [400 - 256])


@few
@given(st.integers(0, 400), st.binary(max_size=12), st.sampled_from(["png", "gif", "bmp", "tif"]))
def test_any_damaged_file_becomes_an_image_or_is_refused_by_its_name(
    tmp_path: Path, start: int, noise: bytes, suffix: str
) -> None:
    path = saved(tmp_path, RGB, suffix)
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + noise + whole[start + len(noise) :])
    result = made(path, (4, 5))
    if isinstance(result, str):
        assert result.startswith(f"images: {path}: ")
    else:
        assert result.shape == (1, 3, 4, 5)
