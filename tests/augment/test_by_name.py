"""Augmentations by their names: what each of them keeps to, and how wrong names are refused."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from command import command
from torch import Tensor

from peerlearn import StreamInfo, UserError, build_learner, small_net
from peerlearn.augment import AUGMENTATIONS, randaugment

INFO = StreamInfo(num_classes=4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(b: int, h: int = 16, w: int = 12) -> Tensor:
    """Noise of whole levels of 255, as the images of a stream are."""
    return torch.randint(256, (b, 3, h, w), generator=generator(99)).float() / 255


def build(**settings: Any) -> Any:
    return build_learner("er", INFO, partial(small_net, 4, width=1), memory=20, **settings)


# ---- what every one keeps to ----


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("b", [0, 1, 7])
@pytest.mark.parametrize("size", [(32, 32), (9, 20)])
def test_images_keep_their_shape_their_type_and_their_range(
    name: str, b: int, size: tuple[int, int]
) -> None:
    x = images(b, *size)
    out = AUGMENTATIONS[name](x, generator())
    assert out.shape == x.shape
    assert out.dtype == x.dtype
    assert ((out >= 0) & (out <= 1 + 1e-6)).all()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_seed_of_the_generator_decides_the_images(name: str) -> None:
    x, augment = images(20), AUGMENTATIONS[name]
    assert torch.equal(augment(x, generator(1)), augment(x, generator(1)))
    assert torch.equal(augment(x, generator(1)), augment(x, generator(2))) == (name == "none")


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_images_it_was_given_and_the_global_generator_stay_as_they_were(name: str) -> None:
    x = images(20)
    before, state = x.clone(), torch.get_rng_state()
    AUGMENTATIONS[name](x, generator())
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_learner_trains_on_what_its_augmentation_returns(name: str) -> None:
    learner, x = build(augment=name), images(6)
    assert torch.equal(learner.method.augment(x, generator()), AUGMENTATIONS[name](x, generator()))


# ---- randaugment beside the functions that it is made of ----


def one_by_one(x: Tensor, n: int, m: int, rng: torch.Generator) -> Tensor:
    """Apply what is drawn to each image alone, operation after operation, in whole levels."""
    plan = randaugment.draw(n, len(x), rng)
    operations = list(randaugment.OPERATIONS.values())
    done = []
    for i in range(len(x)):
        image = x[i : i + 1].mul(255).round().byte()
        for row in range(n):
            kind, sign = int(plan.operations[row, i]), int(plan.signs[row, i])
            image = operations[kind](image, m, sign)
        done.append(image.float() / 255)
    return torch.cat(done)


@pytest.mark.parametrize("m", [0, 14, 30])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_randaugment_equals_its_operations_applied_one_by_one(n: int, m: int) -> None:
    x = images(60)
    found = AUGMENTATIONS["randaugment"](x, generator(3), randaugment_n=n, randaugment_m=m)
    assert torch.equal(found, one_by_one(x, n, m, generator(3)))


def test_randaugment_has_the_defaults_of_rar() -> None:
    x, augment = images(60), AUGMENTATIONS["randaugment"]
    assert torch.equal(augment(x, generator()), one_by_one(x, 1, 14, generator()))


def test_randaugment_without_operations_returns_equal_images() -> None:
    x = images(6)
    assert torch.equal(AUGMENTATIONS["randaugment"](x, generator(), randaugment_n=0), x)


def test_the_settings_of_an_augmentation_reach_the_images() -> None:
    learner, x = build(augment="randaugment", randaugment_n=2, randaugment_m=7), images(40)
    assert torch.equal(learner.method.augment(x, generator()), one_by_one(x, 2, 7, generator()))


# ---- what is refused ----


def refused(words: str, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says in its one line; nothing is written."""
    assert command("run", *words.split(), "--data", "mini", "--out", str(out)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not out.exists()
    return said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("er --augment randagument", "--augment: there is no augmentation 'randagument'; did you "
         "mean randaugment?"),
        ("er --augment crop_flipp", "did you mean crop_flip?"),
        ("er+ccldc --first fulll", "--first: there is no augmentation 'fulll'; did you mean full?"),
        ("rar --randaugment-m 31", "--randaugment-m: randaugment_m must be at most 30, got '31'"),
        ("rar --randaugment-n -1", "--randaugment-n: randaugment_n must be at least 0, got '-1'"),
        ("rar --randaugment-m strong", "--randaugment-m: randaugment_m must be a whole number"),
        ("er --randaugment-m 9", "--randaugment-m: er cannot use it, it belongs to augmentation "
         "randaugment"),
    ],
)  # fmt: skip
def test_a_wrong_name_or_setting_is_refused_in_one_line_that_names_the_flag(
    words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(words, tmp_path / "runs", capsys)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"augment": "randagument"}, "there is no augmentation 'randagument'; did you mean "
         "randaugment"),
        ({"augment": "randaugment", "randaugment_m": 31}, "randaugment_m must be at most 30"),
        ({"augment": "full", "randaugment_m": 9}, "randaugment_m"),
    ],
)  # fmt: skip
def test_a_program_is_told_the_same(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        build(**settings)
    assert "\n" not in str(caught.value)
