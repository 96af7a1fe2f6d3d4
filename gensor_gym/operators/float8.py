"""Floats of 8 bits, e4m3: a sign, 4 bits of exponent (bias 7), 3 of mantissa, no infinities, one NaN of either sign.

Source: Micikevicius et al., FP8 formats for deep learning, arXiv 2209.05433. NumPy lacks the type, so it travels as uint8.
"""

from __future__ import annotations

from functools import cache

import numpy as np

LARGEST = 448.0
"""Largest value, 0x7e: what is beyond it becomes it, infinities too, as in `cvt.satfinite` of the PTX ISA and in torch 2.13."""
_NAN = 0x7F
_INFINITY = 0x7F80 << 1
"""Key of infinity; those above it are NaN."""


def to_float8_e4m3fn(values: np.ndarray) -> np.ndarray:
    """Bits of float32 `values` rounded to the nearest e4m3, ties to even, as uint8; 448 beyond it."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    key = (bits >> 15 & 0xFFFE) | ((bits & 0xFFFF) != 0)
    return _by_key()[key] | (bits >> 24 & 0x80).astype(np.uint8)


def from_float8_e4m3fn(bits: np.ndarray) -> np.ndarray:
    """float32 values of uint8 e4m3 `bits`, exactly."""
    return _values()[bits]


@cache
def _values() -> np.ndarray:
    """Value of every byte, float32 [256]."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent > 0, np.ldexp(8.0 + mantissa, exponent - 10), np.ldexp(1.0 * mantissa, -9))
    size[code % 128 == _NAN] = np.nan
    return np.where(code < 128, size, -size).astype(np.float32)


@cache
def _by_key() -> np.ndarray:
    """Nearest e4m3 of a positive number by the upper 15 bits of its float32 and whether any lower one is set, uint8 [2^16]."""
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
