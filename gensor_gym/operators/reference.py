"""What operators compute, in float64 NumPy, written from their definitions and not from their accesses.

Tests compare both: a mistake in an access then shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np

from gensor_gym.operators.inputs import from_bfloat16
from gensor_gym.operators.types import Operator

Array = np.ndarray


def evaluate(op: Operator, inputs: Sequence[Array]) -> Array:
    """The output [op.output.shape] in float64 for arrays shaped as `op.inputs`, not rounded to the output's dtype.

    Arrays may have any real dtype. Those of a bfloat16 operator are either uint16, taken as the bits of bfloat16, or
    any floating type, taken as the values. Raises ValueError for a wrong number of arrays, shape or dtype.
    """
    arrays = _checked(op, inputs)
    body = arrays[: len(op.reads)]
    out = BODIES[op.name](op, *body)
    operands = iter(arrays[len(op.reads) :])
    for stage in op.epilogue:
        if stage.access is None:
            out = UNARY[stage.name](out)
            continue
        operand = next(operands)
        if stage.name in ("bias", "scale"):
            operand = _along_channel(op, operand)
        out = out * operand if stage.name == "scale" else out + operand
    return out


def _checked(op: Operator, inputs: Sequence[Array]) -> list[Array]:
    """The inputs as float64 arrays of the right shapes."""
    expected = op.inputs
    if len(inputs) != len(expected):
        wanted = ", ".join(f"{t.name}{list(t.shape)}" for t in expected)
        raise ValueError(f"{op}: {len(inputs)} arrays given, expected {len(expected)}: {wanted}")
    arrays = []
    for given, want in zip(inputs, expected, strict=True):
        array = np.asarray(given)
        if array.shape != want.shape:
            raise ValueError(f"{op}: input {want.name} has shape {array.shape}, expected {want.shape}")
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{op}: input {want.name} has dtype {array.dtype}, expected real numbers ({want.dtype})")
        if want.dtype == "bfloat16" and array.dtype == np.uint16:
            array = from_bfloat16(array)
        arrays.append(array.astype(np.float64, copy=False))
    return arrays


def _along_channel(op: Operator, operand: Array) -> Array:
    """A per-channel operand [channels] shaped to broadcast against the output."""
    images = op.name in ("conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d")
    return operand[:, None, None] if images else operand


def _setting(op: Operator, name: str, default: int) -> tuple[int, int]:
    """A windowed operator's argument as (height, width)."""
    value = dict(op.arguments).get(name, default)
    return value if isinstance(value, tuple) else (value, value)


def _windows(op: Operator, x: Array, pad_value: float) -> Iterator[tuple[int, int, Array]]:
    """(r, s, the elements [n, c, p, q] under that place of the window) for every place of the window."""
    sizes: dict[str, Any] = dict(op.arguments)
    (top, left), (down, right) = _setting(op, "padding", 0), _setting(op, "stride", 1)
    tall, wide = _setting(op, "dilation", 1)
    if top or left:
        x = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=pad_value)
    p, q = op.output.shape[2:]
    for r in range(sizes["r"]):
        rows = slice(r * tall, r * tall + (p - 1) * down + 1, down)
        for s in range(sizes["s"]):
            yield r, s, x[:, :, rows, s * wide : s * wide + (q - 1) * right + 1 : right]


def _conv2d(op: Operator, x: Array, w: Array) -> Array:
    """Sum over the places of the window of a matrix product over channels, group by group."""
    options: dict[str, Any] = dict(op.arguments)
    groups = int(options.get("groups", 1))
    n, k, p, q = op.output.shape
    w = w.reshape(groups, k // groups, -1, *w.shape[2:])
    out = np.zeros((n, groups, k // groups, p * q))
    for r, s, part in _windows(op, x, 0.0):
        out += w[..., r, s] @ part.reshape(n, groups, -1, p * q)
    return out.reshape(n, k, p, q)


def _depthwise_conv2d(op: Operator, x: Array, w: Array) -> Array:
    out = np.zeros(op.output.shape)
    for r, s, part in _windows(op, x, 0.0):
        out += part * w[:, 0, r, s, None, None]
    return out


def _avg_pool2d(op: Operator, x: Array) -> Array:
    out = np.zeros(op.output.shape)
    for _, _, part in _windows(op, x, 0.0):
        out += part
    sizes: dict[str, Any] = dict(op.arguments)
    return out / math.prod(int(sizes[key]) for key in "rs")


def _max_pool2d(op: Operator, x: Array) -> Array:
    out = np.full(op.output.shape, -np.inf)
    for _, _, part in _windows(op, x, -np.inf):
        np.maximum(out, part, out=out)
    return out


@numba.njit  # without a cache: that would need a folder that can be written when this module is imported
def _erf(flat: Array) -> Array:
    """The error function of each element; NumPy has none."""
    out = np.empty_like(flat)
    for i in range(flat.size):
        out[i] = math.erf(flat[i])
    return out


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + _erf(np.ravel(x) * math.sqrt(0.5)).reshape(x.shape))


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # does not overflow for large negative x


UNARY: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": _gelu,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "exp": np.exp,
    "copy": np.copy,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {"add": np.add, "mul": np.multiply}


def _elementwise(op: Operator, *inputs: Array) -> Array:
    return UNARY[op.function](*inputs) if len(inputs) == 1 else BINARY[op.function](*inputs)


BODIES: dict[str, Callable[..., Array]] = {
    "gemm": lambda op, a, b: a @ b,
    "batched_gemm": lambda op, a, b: a @ b,
    "gemv": lambda op, a, x: a @ x,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise_conv2d,
    "avg_pool2d": _avg_pool2d,
    "max_pool2d": _max_pool2d,
    "reduce_sum": lambda op, x: x.sum(axis=1),
    "elementwise": _elementwise,
}
