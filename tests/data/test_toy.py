import pytest
import torch

from peerlearn.data.toy import toy_images
from peerlearn.errors import UserError


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others() -> None:
    one, same, other = toy_images(seed=3), toy_images(seed=3), toy_images(seed=4)
    assert torch.equal(one.train.x, same.train.x)
    assert torch.equal(one.test.x, same.test.x)
    assert not torch.equal(one.train.x, other.train.x)


def test_making_toys_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    toy_images()
    assert torch.equal(before, torch.get_rng_state())


def test_every_class_has_as_many_images_as_asked_for() -> None:
    train, test, _ = toy_images(num_classes=3, train_per_class=5, test_per_class=2, size=6)
    assert train.y.bincount().tolist() == [5, 5, 5]
    assert test.y.bincount().tolist() == [2, 2, 2]
    assert train.x.shape == (15, 3, 6, 6)


@pytest.mark.parametrize("num_classes", [2, 4, 10])
@pytest.mark.parametrize("seed", range(5))
def test_the_classes_can_be_told_apart(num_classes: int, seed: int) -> None:
    train, test, _ = toy_images(num_classes, seed=seed)
    means = torch.stack(
        [train.of_classes([k]).x.float().mean(0).flatten() for k in range(num_classes)]
    )
    nearest = torch.cdist(test.x.float().flatten(1), means).argmin(1)
    assert (nearest == test.y).float().mean() > 0.95


def test_a_size_of_zero_is_an_error_that_names_the_argument() -> None:
    with pytest.raises(UserError, match="size must be at least 1, not 0"):
        toy_images(size=0)
