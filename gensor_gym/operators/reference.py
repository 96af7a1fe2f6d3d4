"""Reference outputs of operators, computed in float64 with NumPy.

An output is computed from a definition that does not use the operator's accesses, or from the accesses. Tests compare both to
find wrong accesses.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.epilogue import PER_CHANNEL
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.loops import Access, Loops
from gensor_gym.operators.traits import has_window, is_product

Array = np.ndarray
Reference = Callable[..., Array]
"""Type of a function of an operator and the float64 arrays that it reads, which returns the output without the epilogue."""

REFERENCES: dict[str, Reference] = {}
"""Name of an operator -> function that computes its output from a definition. Other operators are evaluated by their accesses."""


def evaluate(op: Loops, inputs: Sequence[Array]) -> Array:
    """Compute the output [op.output.shape] of an operator in float64, not rounded to the output's dtype.

    `inputs` have the shapes of `op.inputs` and any real dtype. An array of a bfloat16 or float8_e4m3fn tensor contains either
    bits (as uint16 or uint8) or values (in any floating type). ValueError for a wrong number of arrays, shape or dtype.
    """
    arrays = _checked(op, inputs)
    body = arrays[: len(op.reads)]
    return finished(op, REFERENCES.get(op.name, by_accesses)(op, *body), arrays[len(op.reads) :])


def finished(op: Loops, out: Array, arrays: Sequence[Array]) -> Array:
    """Apply an operator's epilogue to sums `out` [op.output.shape]; `arrays` are the operands of its stages, in float64."""
    operands = iter(arrays)
    for stage in op.epilogue:
        if stage.access is None:
            out = UNARY[stage.name](out)
            continue
        operand = next(operands)
        if stage.name in PER_CHANNEL:
            operand = operand.reshape(-1, *[1] * (len(op.write.view) - op.channel_dimension - 1))
        out = WITH_OPERAND[stage.name](out, operand)
    return out


def _checked(op: Loops, inputs: Sequence[Array]) -> list[Array]:
    """Return the inputs as float64 arrays. ValueError for a wrong number, shape or dtype."""
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
        arrays.append(decode(array, want.dtype).astype(np.float64, copy=False))
    return arrays


def by_accesses(op: Loops, *reads: Array) -> Array:
    """Compute the output [op.output.shape] of any operator, without its epilogue, from its axes and accesses."""
    views = [_view(op, access, array) for access, array in zip(op.reads, reads, strict=True)]
    if is_product(op):
        second = [a for a in range(len(op.axes)) if any(row[a] for row in op.reads[1].coefficients)]
        first = [a for a in range(len(op.axes)) if a not in second or any(row[a] for row in op.reads[0].coefficients)]
        factors = [view[tuple(slice(None) if a in kept else 0 for a in range(len(op.axes)))]
                   for view, kept in zip(views, (first, second), strict=True)]  # fmt: skip
        # NumPy optimises to a product of matrices only without windows, which it would copy.
        values = np.einsum(factors[0], first, factors[1], second, op.spatial, optimize=not has_window(op)) / op.divisor
    elif op.body == "map":
        values = (UNARY if len(views) == 1 else BINARY)[op.function](*views)
    else:
        values = op.reduction.numpy.reduce(BODIES[op.body].numpy(*views), axis=op.reduce) / op.divisor
    out = np.empty(op.output.shape)
    strides = [op.write.dense().axis_strides()[a] * out.itemsize for a in op.spatial]
    np.lib.stride_tricks.as_strided(out, values.shape, strides)[...] = values
    return out


def _view(op: Loops, access: Access, array: Array) -> Array:
    """Return the values that an access reads at every point of the loops, [*op.extents].

    The result is a view of the array, or of its copy with padding.
    """
    spans = [access.span(d, op.extents) for d in range(len(access.view))]
    pads = [(max(0, -low), max(0, high + 1 - size)) for (low, high), size in zip(spans, access.view, strict=True)]
    padded = np.pad(array.reshape(access.view), pads, constant_values=op.pad_value)
    begin = padded[tuple(slice(low + before, None) for (low, _), (before, _) in zip(spans, pads, strict=True))]
    strides = np.array(access.coefficients).T @ np.array(padded.strides)
    return np.lib.stride_tricks.as_strided(begin, op.extents, strides, writeable=False)


@functools.cache
def _compiled_erf() -> Callable[[Array], Array]:
    import numba  # takes a tenth of a second, which callers without references need not wait

    compiled: Callable[[Array], Array] = numba.njit(_erf)  # not cached, because a cache needs a writable folder
    return compiled


def _erf(flat: Array) -> Array:
    """Compute the error function of each element, which NumPy lacks."""
    out = np.empty_like(flat)
    for i in range(flat.size):
        out[i] = math.erf(flat[i])
    return out


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + _compiled_erf()(np.ravel(x) * math.sqrt(0.5)).reshape(x.shape))


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # does not overflow for large negative x


UNARY: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": _gelu,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "exp": np.exp,
    "copy": np.copy,
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
}
WITH_OPERAND: dict[str, Callable[[Array, Array], Array]] = {
    "bias": np.add, "residual": np.add, "residual_int8": np.add, "scale": np.multiply, "dequantize": np.multiply,
    "quantize": lambda x, zero: np.clip(np.rint(x) + zero, -128.0, 127.0),
}  # fmt: skip
"""Name of an epilogue stage with an operand -> NumPy function of (elements, operand)."""
BINARY: dict[str, Callable[[Array, Array], Array]] = {"add": np.add, "mul": np.multiply}


