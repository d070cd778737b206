"""Floats between 0 and 1 become 256 levels, also where arithmetic has rounded them."""

import pytest
import torch

from peerlearn import UserError
from peerlearn.data.levels import levels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_that_rounding_moved_out_of_the_range_are_black_and_white(
    dtype: torch.dtype,
) -> None:
    x = torch.tensor([-5e-7, -2.2e-16, 0.0, 1.0, 1 + 2.2e-16, 1 + 5e-7], dtype=dtype)
    assert levels(x).tolist() == [0, 0, 0, 255, 255, 255]


@pytest.mark.parametrize(
    ("wrong", "says"), [(-2e-6, "got -2e-06 to 0.5"), (1.000004, r"got 0.5 to 1\.000004")]
)
def test_floats_further_out_are_refused_with_digits_that_show_it(wrong: float, says: str) -> None:
    with pytest.raises(UserError, match=says):
        levels(torch.tensor([0.5, wrong], dtype=torch.float64))
