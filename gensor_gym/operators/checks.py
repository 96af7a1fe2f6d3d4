"""Checks of operators' arguments. Every message names the value and the accepted values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.operators.loops import INPUT, ITEM_BYTES, PRODUCT_TYPES, Tensor
from gensor_gym.registry import near

LIMIT = 2**31 - 1
"""Largest extent, and largest number of elements of one tensor: kernels index with 32-bit integers."""

PLAIN_TYPES = tuple(dtype for dtype in INPUT if dtype not in PRODUCT_TYPES)
"""Data types of operators without products."""


def integer(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as a Python int from `minimum` to `LIMIT`. ValueError for anything else, including booleans and floats."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name}={value!r}: expected an integer of at least {minimum}")
    if not minimum <= value <= LIMIT:
        raise ValueError(f"{name}={value!r}: expected an integer from {minimum} to {LIMIT}")
    return int(value)


def pair(name: str, value: object, minimum: int = 1) -> tuple[int, int]:
    """Return (height, width), from one integer for both or from a pair of integers. ValueError for anything else."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name}={value!r}: expected an integer or a pair (height, width)")
        return integer(name, value[0], minimum), integer(name, value[1], minimum)
    both = integer(name, value, minimum)
    return both, both


def data_type(dtype: object, accepted: Sequence[str] = tuple(INPUT)) -> str:
    """Return `dtype` if it is one of `accepted`, else raise ValueError."""
    return one_of("dtype", dtype, accepted)


def one_of(name: str, value: object, accepted: Sequence[str]) -> str:
    """Return `value` if it is one of `accepted`, else raise ValueError."""
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(accepted)}{near(value, accepted)}")
    return value


def tensor(name: str, shape: tuple[int, ...], dtype: str, pitch: int = 0) -> Tensor:
    """Make a tensor. ValueError for more than `LIMIT` elements, an unknown data type, or a pitch shorter than a row."""
    if dtype not in ITEM_BYTES:
        raise ValueError(f"dtype={dtype!r}: expected one of {', '.join(ITEM_BYTES)}")
    if pitch and pitch < shape[-1]:
        raise ValueError(f"tensor {name} of shape {shape} has a pitch of {pitch}: expected at least {shape[-1]}, or 0")
    made = Tensor(name, shape, dtype, pitch=pitch)
    if made.room > LIMIT:
        raise ValueError(f"tensor {name} of shape {shape} has {made.room} elements: expected at most {LIMIT}")
    return made


def window(axis: str, size: int, kernel: int, stride: int, padding: int, dilation: int = 1, behind: int = 0) -> int:
    """Return the output extent, rounded down, of a window of `kernel` elements that slides over `size` elements.

    `behind` is further padding behind the elements. ValueError if the dilated window is larger than the padded input.
    """
    padded, reach = size + 2 * padding + behind, dilation * (kernel - 1) + 1
    if padded > LIMIT:
        raise ValueError(f"{axis}={size} with padding {padding} is {padded}: expected at most {LIMIT}")
    if reach > padded:
        raise ValueError(
            f"a window of {kernel} with dilation {dilation} covers {reach} elements but the padded input has {padded} "
            f"({axis}={size}, padding {padding}): expected a window no larger than the padded input"
        )
    return (padded - reach) // stride + 1
