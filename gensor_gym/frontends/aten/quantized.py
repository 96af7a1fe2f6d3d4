"""Quantised tensors of torch's export flow, and products of dequantised tensors, computed with integers.

torch quantises by q = clamp(round(x * (1 / scale)) + zero, least, most) and dequantises by x = (q - zero) * scale, in float32
(`torch.ao.quantization.fx._decomposed`). Quantised values and zero points of uint8 are stored as int8, 128 lower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gensor_gym.dataflow.channels import channel_axes
from gensor_gym.dataflow.expressions import LEAST, MOST, Operand, quantize
from gensor_gym.dataflow.nodes import Broadcast, Contract, Reshape, Transpose
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.types import Operator

OPERATIONS = "quantized_decomposed."
DEQUANTIZE = f"{OPERATIONS}dequantize_per_"
_SHIFTS = {"torch.uint8": 128, "torch.int8": 0}
"""Data type of torch's quantised numbers -> difference of these numbers from the int8 numbers that store them."""
_MOST_SUMMED = 1 << 16
"""Largest number of products in a sum, so that an int32 does not overflow even with zero points: 2**16 * 128 * 128 * 2 = 2**31.
"""


@dataclass(frozen=True)
class Quantized:
    """A value that was dequantised from int8 `numbers`: it equals (numbers - zero) * scale."""

    numbers: str
    scale: np.ndarray
    """Scales in float32: one for all numbers, or one per channel [channels]."""
    zero: int
    axis: int | None = None
    """Axis of the channels; None for one scale."""


def _shift(dtype: Any) -> int:
    if str(dtype) not in _SHIFTS:
        raise ValueError(f"quantised numbers of {dtype}: expected uint8 or int8")
    return _SHIFTS[str(dtype)]


def _check(scale: float, least: int, most: int) -> None:
    """Raise ValueError for a scale, or for bounds of the quantised numbers, that no supported quantisation has."""
    if not np.isfinite(np.float32(scale)) or scale == 0 or least > most:
        raise ValueError(f"quantised by scale={scale} from {least} to {most}: expected a finite scale that is not 0, and a range")


def _quantize(b: Builder, x: str, scale: float, zero: float, least: int, most: int, dtype: Any, **options: Any) -> str:
    _check(scale, least, most)
    shift = _shift(dtype)
    known = b.quantized.get(x)
    if known is not None and known.axis is None and (known.zero, known.scale[0]) == (zero - shift, np.float32(scale)):
        if (least - shift, most - shift) == (LEAST, MOST):
            return known.numbers  # a dequantised value is quantised again
    node = b.made(x)
    if isinstance(node, Contract) and node.operator.body == "max" and (least - shift, most - shift) == (LEAST, MOST):
        return _largest(b, node.operator, _quantize(b, node.sources[0], scale, zero, least, most, dtype))
    inverse = float(np.float32(1.0 / scale))
    made = b.map(quantize(of("multiply", x, inverse), zero - shift, least - shift, most - shift), "quantized")
    b.quantize(made, x)
    return made


def _largest(b: Builder, op: Operator, numbers: str) -> str:
    """Add max pooling of int8 numbers.

    Quantisation keeps the order, so these are the quantised maxima of the original numbers.
    """
    made = b.add(Contract(with_arguments(op, dtype="int8"), (numbers,)), op.name)
    plain = b.call("multiply", made, _wide(b, op, np.ones(1)))
    made = b.map(quantize(Operand(plain), Operand(_wide(b, op, np.zeros(1)))), "largest")
    b.quantize(made, plain)
    return made


def _dequantize(
    b: Builder, numbers: str, scale: float, zero: float, least: int, most: int, dtype: Any, out_dtype: Any = None
) -> str:
    if str(out_dtype) not in ("None", "torch.float32"):
        raise ValueError(f"dequantised numbers of {out_dtype}: expected float32")
    _check(scale, least, most)
    zero = zero - _shift(dtype)
    made = b.map(of("multiply", of("subtract", numbers, zero), float(np.float32(scale))), "dequantized")
    if LEAST <= zero <= MOST:  # with other zero points, products might not fit int32 sums
        b.quantized[made] = Quantized(numbers, np.array([scale], np.float32), int(zero))
    return made


RULES = {
    f"{OPERATIONS}{name}.{kind}": rule
    for name, rule in (("quantize_per_tensor", _quantize), ("dequantize_per_tensor", _dequantize))
    for kind in ("default", "tensor")
}  # fmt: skip
TABLE.update(RULES)


def constant(b: Builder, made: str, numbers: Any, target: str, arguments: tuple[Any, ...]) -> None:
    """Register a constant that the operation `target` has dequantised, with its int8 numbers, for products in integers.

    `made` is the constant's name, `numbers` are the quantised numbers. Those of other types than int8 and uint8 stay float32.
    """
    scale, zero = (np.asarray(one).reshape(-1) for one in arguments[:2])
    if str(numbers.dtype) not in _SHIFTS or len(set(zero.tolist())) != 1:
        return
    shift, axis = _shift(numbers.dtype), arguments[2] % numbers.ndim if "per_channel" in target else None
    given = b.constant(f"{made}_int8", numbers.numpy().astype(np.int32) - shift, "int8")
    b.quantized[made] = Quantized(given, scale.astype(np.float32), int(zero[0]) - shift, axis)


def product(b: Builder, op: Operator, sources: tuple[str, ...]) -> str | None:
    """Add a product or max pooling of dequantised operands, computed in integers. None if no rule applies.

    In a product, one operand is constant, with zero point 0 and one scale, or one per channel. The result is the int32 sum of
    products of int8 numbers, minus the zero point of the other operand times the sums of constants, times both scales.
    """
    if op.body == "max" and op.dtype == "float32" and (pooled := _found(b, sources[0])) is not None and pooled.axis is None:
        made = b.add(Contract(with_arguments(op, dtype="int8"), (pooled.numbers,)), op.name)
        return b.map(of("multiply", of("subtract", made, pooled.zero), float(pooled.scale[0])), "largest")
    if op.body != "multiply_add" or op.dtype != "float32" or op.points // op.output.size > _MOST_SUMMED:
        return None
    found = [_found(b, name) for name in sources]
    place = next((place for place in channel_axes(op) if b.known(_root(b, sources[place])) is not None), None)
    if place is None or len(found) != 2 or not all(found):
        return None
    fixed, other = found[place], found[1 - place]
    assert fixed is not None and other is not None
    if fixed.zero or other.axis is not None or fixed.axis not in (None, channel_axes(op)[place]):
        return None
    options = {"pad_value": other.zero} if other.zero and any(read.is_padded(op.extents) for read in op.reads) else {}
    whole, names = with_arguments(op, dtype="int8", **options), [one.numbers for one in found if one is not None]
    if other.zero:
        sums = _sums(b, fixed.numbers, channel_axes(op)[place])
        whole, names = whole.with_epilogue("bias"), [*names, b.constant("zeros", -other.zero * sums, "int32")]
    made = b.add(Contract(whole, tuple(names)), op.name)
    return b.call("multiply", made, _wide(b, op, fixed.scale * other.scale))


def _wide(b: Builder, op: Operator, numbers: np.ndarray) -> str:
    """Add a constant with one number per channel of an operator's output, repeated along the other axes."""
    channel, axes = op.channel_dimension, len(op.output.shape)
    vector = np.broadcast_to(numbers, (op.output.shape[channel],)).reshape(-1, *[1] * (axes - 1 - channel))
    return b.add(Broadcast(b.constant("scale", vector), op.output.shape))


def _sums(b: Builder, numbers: str, axis: int) -> np.ndarray:
    """Return the int64 sums of a constant's elements over all axes except one."""
    moves: list[Transpose | Reshape] = []
    while isinstance(node := b.made(numbers), Transpose | Reshape):
        moves, numbers = [node, *moves], node.source
    array = b.known(numbers)
    assert array is not None
    for node in moves:
        array = np.transpose(array, node.order) if isinstance(node, Transpose) else np.reshape(array, node.to)
    return array.astype(np.int64).sum(tuple(one for one in range(array.ndim) if one != axis))


def _root(b: Builder, name: str) -> str:
    while isinstance(node := b.made(name), Reshape | Transpose):
        name = node.source
    return name


def _found(b: Builder, name: str) -> Quantized | None:
    """Return the int8 numbers from which a value was dequantised, also if it was reshaped or transposed since.

    None for other values.
    """
    if name in b.quantized:
        return b.quantized[name]
    node = b.made(name)
    if not isinstance(node, Reshape | Transpose) or (found := _found(b, node.source)) is None:
        return None
    axis = found.axis
    if isinstance(node, Reshape) and axis is not None:
        before, after = b.shapes[node.source], node.to
        kept = [place for place, extent in enumerate(after) if extent == before[axis]]
        if [one for one in before if one > 1] != [one for one in after if one > 1] or len(kept) != 1:
            return None
        axis = kept[0]
    elif isinstance(node, Transpose) and axis is not None:
        axis = node.order.index(axis)
    return replace(found, numbers=b.add(replace(node, source=found.numbers), f"{found.numbers}_moved"), axis=axis)
