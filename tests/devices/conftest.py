"""Every test here has the pretend accelerator; it stays in the process, `torch.tensor` does not."""

from collections.abc import Iterator
from unittest.mock import patch

import pretend
import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def _pretend() -> Iterator[None]:
    if not pretend.possible():
        pytest.skip("this torch cannot have a backend written in Python")
    pretend.install()
    with patch.object(torch, "tensor", pretend.tensor):
        yield
