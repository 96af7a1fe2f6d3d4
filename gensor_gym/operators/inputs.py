"""Random arrays to run an operator on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gensor_gym.operators.computation import Computation
from gensor_gym.operators.loops import ARRAY_DTYPE, ITEM_BYTES, Tensor

ARRAY_OFFSET = 16
"""Number of bytes after the start of a cache line at which NumPy's larger arrays begin, because of the header of glibc's
malloc."""
LARGEST = 448.0
"""Largest e4m3 value, 0x7e. Larger values and infinities become this value, as in `cvt.satfinite` (PTX ISA) and torch 2.13."""
_NAN = 0x7F
_QUIET = 0x7FC0
"""Bits of a NaN in bfloat16."""
_INFINITY = 0x7F80 << 1
"""Index of infinity in the table of `_by_key`; larger indices belong to NaN."""


def with_gaps(tensor: Tensor, array: np.ndarray | None = None) -> np.ndarray:
    """Return an array of the shape `Tensor.memory` that contains `array`, and bytes of 0xFF (NaN) everywhere else."""
    if array is not None and not tensor.pitch:
        return array
    found: np.ndarray = np.full(int(np.prod(tensor.memory)) * ITEM_BYTES[tensor.dtype], 0xFF, np.uint8)
    found = found.view(ARRAY_DTYPE[tensor.dtype]).reshape(tensor.memory)
    if array is not None:
        without_gaps(tensor, found)[...] = array
    return found


def without_gaps(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """Return the view of a tensor's elements in an array of the shape `Tensor.memory`."""
    return array[..., : tensor.shape[-1]] if tensor.pitch else array


def random_inputs(op: Computation, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw one random array for each of `op.inputs`: standard normal cast to the dtype, or uniform integers in -128..127.

    Row indices are uniform over the rows of the table. Booleans and other 64-bit integers are 0 or 1, like masks. If an operator
    computes in int64, its integers are small or anywhere in the range of their type. bfloat16 and float8_e4m3fn, which NumPy
    lacks, are uint16 and uint8 arrays of their bits. Operands of a quantised epilogue have standard deviations of their own
    (`Loops.spreads`); zero points are integers. A constant with known elements (`dataflow.nodes.Triangle`) has these.
    """
    whole, spreads = bool(getattr(op, "whole", ())), getattr(op, "spreads", {})
    found = [_of(tensor, rng, op.id_limits.get(tensor.name), whole) for tensor in op.inputs]
    for place, tensor in enumerate(op.inputs):
        if tensor.name in spreads:
            spread = (spreads[tensor.name] * found[place]).astype(np.float32)
            found[place] = np.rint(spread) if tensor.name == "quantize" else spread
    return tuple(found)


def _of(tensor: Any, rng: np.random.Generator, rows: int | None, whole: bool) -> np.ndarray:
    known = getattr(tensor, "triangle", None)
    if known is not None:
        return encode(known.array(tensor.shape), tensor.dtype)
    return _random(tensor.shape, tensor.dtype, rng, rows, whole)


def _random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, rows: int | None, whole: bool) -> np.ndarray:
    """Draw a random array. `rows` is the number of rows of a table if the array contains row indices, else None.

    With `whole`, for operators that compute in int64, numbers of int32 or int64 are small or anywhere in the range of their type.
    Otherwise numbers of int8 and int32 are in -128..127, those of int64 are 0 or 1.
    """
    if whole and rows is None and dtype in ("int32", "int64"):
        ends = np.iinfo(dtype)
        far = rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, rng.integers(-8, 8, shape, dtype=dtype), far)
    if rows is not None or dtype in ("int64", "bool"):
        return rng.integers(0, rows or 2, shape).astype(dtype)
    if dtype in ("int8", "int32"):
        return rng.integers(-128, 128, shape, dtype=dtype)
    values = rng.standard_normal(shape, dtype=np.float32)
    if dtype == "float8_e4m3fn":
        return to_float8_e4m3fn(values)
    return to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype, copy=False)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round finite float32 `values` to the nearest bfloat16, ties to even, and return the bits as uint16."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 numbers, given as uint16 bits, to float32. The conversion is exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """Convert a kernel's array to numbers: bits of bfloat16 and float8_e4m3fn become float32; others are unchanged."""
    if dtype == "float8_e4m3fn" and array.dtype == np.uint8:
        return from_float8_e4m3fn(array)
    return from_bfloat16(array) if dtype == "bfloat16" and array.dtype == np.uint16 else array


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """Convert numbers to a kernel's array: rounded to the data type, as bits if NumPy lacks the type."""
    if dtype != "bfloat16":
        return values.astype(ARRAY_DTYPE[dtype], copy=False)
    plain = np.asarray(values, np.float32)
    return np.where(np.isnan(plain), np.uint16(_QUIET), to_bfloat16(plain))


def to_float8_e4m3fn(values: np.ndarray) -> np.ndarray:
    """Round float32 `values` to the nearest e4m3, ties to even, and return the bits as uint8. Larger values become 448.

    e4m3 has a sign, 4 bits of exponent (bias 7), 3 bits of mantissa, no infinities and one NaN of each sign (arXiv 2209.05433).
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    key = (bits >> 15 & 0xFFFE) | ((bits & 0xFFFF) != 0)
    return _by_key()[key] | (bits >> 24 & 0x80).astype(np.uint8)


def from_float8_e4m3fn(bits: np.ndarray) -> np.ndarray:
    """Convert e4m3 numbers, given as uint8 bits, to float32. The conversion is exact."""
    return _values()[bits]


@cache
def _values() -> np.ndarray:
    """Return the e4m3 value of every byte, float32 [256]."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent > 0, np.ldexp(8.0 + mantissa, exponent - 10), np.ldexp(1.0 * mantissa, -9))
    size[code % 128 == _NAN] = np.nan
    return np.where(code < 128, size, -size).astype(np.float32)


@cache
def _by_key() -> np.ndarray:
    """Return a table uint8 [2^16] with the nearest e4m3 of a positive float32.

    The index is the 15 bits after the sign of the float32, then one bit that says whether any lower bit is set.
    """
    key = np.arange(1 << 16, dtype=np.uint32)
    key = key[key >> 1 < 0x4400]  # below 512
    size = ((key >> 1 << 16) | (key & 1)).view(np.float32).astype(np.float64)
    step = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 4, -9))
    nearest = np.rint(size / step) * step
    finite = _values()[:_NAN].astype(np.float64)
    found = np.full(1 << 16, _NAN, dtype=np.uint8)
    found[: _INFINITY + 1] = _NAN - 1
    found[: len(key)] = np.searchsorted(finite, np.minimum(nearest, LARGEST))
    return found
