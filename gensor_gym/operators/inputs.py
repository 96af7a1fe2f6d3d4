"""Random arrays to run an operator on."""

from __future__ import annotations

import numpy as np

from gensor_gym.operators.computation import Computation
from gensor_gym.operators.float8 import from_float8_e4m3fn, to_float8_e4m3fn

ARRAY_OFFSET = 16
"""Bytes past a cache line at which NumPy's larger arrays begin: behind the header of glibc's malloc."""


def random_inputs(op: Computation, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """One array for each of `op.inputs`: standard normal cast to the dtype, or integers uniform in -128..127.

    Ids are uniform among the rows that there are; bools and other numbers of 64 bits are 0 or 1, as masks are.
    bfloat16 and float8_e4m3fn, which NumPy lacks, come as uint16 and uint8 arrays of their bits.
    """
    return tuple(_random(tensor.shape, tensor.dtype, rng, op.id_limits.get(tensor.name)) for tensor in op.inputs)


def _random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, rows: int | None) -> np.ndarray:
    """One array; `rows` of ids."""
    if rows is not None or dtype in ("int64", "bool"):
        return rng.integers(0, rows or 2, shape).astype(dtype)
    if dtype in ("int8", "int32"):
        return rng.integers(-128, 128, shape, dtype=dtype)
    values = rng.standard_normal(shape, dtype=np.float32)
    if dtype == "float8_e4m3fn":
        return to_float8_e4m3fn(values)
    return to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype, copy=False)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Bits of finite float32 `values` rounded to the nearest bfloat16, ties to even, as uint16."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 values of uint16 bfloat16 `bits`, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array as kernels hold it: bits of bfloat16 and float8_e4m3fn become float32, all else stays."""
    if dtype == "float8_e4m3fn" and array.dtype == np.uint8:
        return from_float8_e4m3fn(array)
    return from_bfloat16(array) if dtype == "bfloat16" and array.dtype == np.uint16 else array
