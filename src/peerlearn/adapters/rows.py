"""Rows of numbers, as scikit-learn has them, and the images that they are."""

from math import isqrt, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from peerlearn.data.levels import ROUNDING
from peerlearn.errors import UserError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def flattened(given: Any) -> tuple[Any, Shape | None]:
    """Images (N, H, W) or (N, H, W, C) as rows (N, F), and the shape of one.

    All else comes back as it is, without a shape: rows, and what is neither.

    >>> rows, shape = flattened(np.zeros((5, 8, 8)))
    >>> rows.shape, shape
    ((5, 64), (8, 8))
    """
    x = given if hasattr(given, "ndim") else np.asarray(given)
    if x.ndim not in (3, 4):
        return given, None
    x = np.asarray(x)
    return x.reshape(len(x), prod(x.shape[1:])), x.shape[1:]


def agreed(found: Shape | None, expected: Any) -> Any:
    """The shape of an image as it was found, or as it was said; refused if these differ.

    >>> agreed((8, 8), None), agreed(None, (8, 8))
    ((8, 8), (8, 8))
    """
    if found is None or expected is None:
        return expected if found is None else found
    _check_shape(prod(found), expected)
    if found != tuple(expected):
        raise UserError(
            f"X: images have shape {found}, and should have {tuple(expected)}; move the axes, or "
            "set image_shape"
        )
    return found


def as_images(rows: Array, shape: Any) -> Array:
    """Rows (N, F) as images (N, *shape), refused if these are no pixels.

    shape: (H, W) for grey, (C, H, W) or (H, W, C). Grey images get three channels, (N, 3, H, W), so
    that nothing is left to guess.

    >>> as_images(np.zeros((5, 192)), (3, 8, 8)).shape
    (5, 3, 8, 8)
    >>> as_images(np.full((5, 64), 16.0), (8, 8))
    Traceback (most recent call last):
    peerlearn.errors.UserError: X: float pixels must lie in [0, 1], got up to 16; divide by the \
largest value that a pixel can have, such as X / 16
    """
    _check_shape(rows.shape[1], shape)
    _check_values(rows)
    images = rows.reshape(len(rows), *shape)
    if len(shape) > 2:
        return images
    return np.broadcast_to(images[:, None], (len(rows), 3, *shape))


def _check_shape(length: int, shape: Any) -> None:
    if shape is None:
        raise UserError(
            f"X: rows of {length} numbers, of which image_shape is not known; "
            f"give image_shape{_guess(length)}, or images as X"
        )
    sides = shape if isinstance(shape, tuple | list) else ()
    if len(sides) not in (2, 3) or not all(isinstance(n, int | np.integer) for n in sides):
        raise UserError(
            f"image_shape: must be (H, W), (C, H, W) or (H, W, C), got {shape!r:.40}; count pixels"
        )
    if min(sides) < 1 or prod(sides) != length:
        raise UserError(
            f"image_shape: {tuple(sides)} is not that of rows of {length} numbers; "
            f"give one with that product{_guess(length)}"
        )


def _guess(length: int) -> str:
    grey, colour = isqrt(length), isqrt(length // 3)
    if grey**2 == length:
        return f", such as ({grey}, {grey})"
    return f", such as (3, {colour}, {colour})" if 3 * colour**2 == length else ""


def _check_values(rows: Array) -> None:
    kind = rows.dtype.kind
    if kind == "b" or rows.dtype == np.uint8:
        return
    low, high = rows.min(), rows.max()
    if low < -ROUNDING:
        raise UserError(
            f"X: Negative values in data, from {low:g}; pixels are uint8, or floats in [0, 1]: "
            "give them as they were before they were normalised"
        )
    if kind != "f":
        raise UserError(
            f"X: pixels must be uint8, or floats in [0, 1], got {rows.dtype} up to {high}; if they "
            'run from 0 to 255, give X.astype("uint8")'
        )
    if high > 1 + ROUNDING:
        most = 255 if 16 < high <= 255 else high
        raise UserError(
            f"X: float pixels must lie in [0, 1], got up to {high:.8g}; divide by the largest "
            f"value that a pixel can have, such as X / {most:.8g}"
        )
