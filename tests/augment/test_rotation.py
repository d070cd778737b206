import pytest
import torch

from peerlearn.augment import rot16, rot16_labels
from peerlearn.errors import UserError

# The sixteen variants of [[0, 1, 2, 3], [4, 5, 6, 7], ...], each row a hexadecimal string.
VARIANTS = """
0123 4567 89ab cdef | dc23 9867 54ab 10ef | dcfe 98ba 5476 1032 | 01fe 45ba 8976 cd32
fedc ba98 7654 3210 | fe01 ba45 7689 32cd | 2301 6745 ab89 efcd | 23dc 6798 ab54 ef10
37bf 26ae 159d 048c | 37bf 26ae c840 d951 | ea62 fb73 c840 d951 | ea62 fb73 159d 048c
c840 d951 ea62 fb73 | 159d 048c ea62 fb73 | 159d 048c 37bf 26ae | c840 d951 37bf 26ae
"""


def golden() -> torch.Tensor:
    digits = [int(d, 16) for d in VARIANTS if d in "0123456789abcdef"]
    return torch.tensor(digits, dtype=torch.float32).view(16, 4, 4)


def test_the_sixteen_variants_come_in_the_order_of_the_golden_numbers() -> None:
    x = torch.arange(48.0).view(1, 3, 4, 4)
    variants = rot16(x)
    assert variants.shape == (16, 3, 4, 4)
    for channel in range(3):
        assert torch.equal(variants[:, channel], golden() + 16 * channel)
    weights = torch.arange(1, variants.numel() + 1)
    assert int((weights * variants.flatten().long()).sum()) % 1_000_003 == 70_507


def test_a_batch_is_laid_out_variant_by_variant() -> None:
    x = torch.rand(5, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    variants = rot16(x).view(16, 5, 3, 6, 6)
    assert torch.equal(variants[0], x)
    for i in range(5):
        assert torch.equal(variants[:, i], rot16(x[i : i + 1]))


def test_a_generic_image_has_sixteen_distinct_variants() -> None:
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert len(rot16(x).flatten(1).unique(dim=0)) == 16


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (2, 3, 5, 5)])
def test_images_that_cannot_be_turned_are_refused_with_their_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=f"{shape[2]} x {shape[3]} pixels"):
        rot16(torch.zeros(shape))


def test_an_empty_batch_has_no_variants() -> None:
    assert rot16(torch.zeros(0, 3, 4, 4)).shape == (0, 3, 4, 4)


def test_each_variant_is_a_class_of_its_own() -> None:
    labels = rot16_labels(torch.tensor([3, 7]), stride=1000)
    assert labels.tolist() == [k + 1000 * v for v in range(16) for k in (3, 7)]
    assert labels.dtype == torch.int64


def test_mixed_labels_keep_their_fraction() -> None:
    labels = rot16_labels(torch.tensor([2.25]), stride=10)
    assert labels.tolist() == [2.25 + 10 * v for v in range(16)]
