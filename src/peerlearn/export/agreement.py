"""Whether what was made of a network answers as the network does."""

from torch import Tensor

TOLERANCE = 1e-4  # of logits; relative where they are beyond 1
# what code of others raises when it meets something that stands for a tensor
TRIPS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError,
         TypeError, ValueError)  # fmt: skip


def distance(one: Tensor, other: Tensor) -> float:
    """By how much two tensors differ at most."""
    return float((one - other).abs().max())


def close(off: float, expected: Tensor) -> bool:
    """Whether that is within what rounding does to such logits."""
    return off <= TOLERANCE * max(1.0, float(expected.abs().max()))


def brief(error: Exception) -> str:
    """What an error says, in a line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
