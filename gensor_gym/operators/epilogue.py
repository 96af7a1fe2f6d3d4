"""Elementwise stages that are applied to a finished output element: bias, relu, gelu, scale, residual, relu6.

Two stages change the type of an int8 operator's elements. `dequantize` multiplies int32 by a float32 factor of the channel and
gives float32. `quantize` rounds float32 to the nearest integer, ties to even, adds a zero point of the channel (-128 .. 127),
clips to -128 .. 127 and gives int8 (torch's quantize_per_tensor, without its factor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gensor_gym.operators.checks import tensor
from gensor_gym.operators.loops import Access, Axis, Loops, Stage
from gensor_gym.registry import near

SomeLoops = TypeVar("SomeLoops", bound=Loops)

STAGES = ("bias", "relu", "gelu", "scale", "residual", "relu6")
"""Names of the epilogue stages: addend per channel, two functions, factor per channel, addend of the output's shape, clipping to
0 .. 6. relu6 is from Howard et al., arXiv 1704.04861."""
ALONE = ("relu", "gelu", "relu6")
"""Names of the epilogue stages without an operand."""

DEQUANTIZE, QUANTIZE, RESIDUAL_INT8 = "dequantize", "quantize", "residual_int8"
PER_CHANNEL = ("bias", "scale", DEQUANTIZE, QUANTIZE)
INTEGER_STAGES = ("bias", "relu", "residual", DEQUANTIZE)
"""Names of the epilogue stages that accept int32 elements."""
DEQUANTIZED_STAGES = (*STAGES, RESIDUAL_INT8, QUANTIZE)
"""Names of the epilogue stages that accept float32 elements after `dequantize`. `residual_int8` adds int8 numbers of the output's
shape."""


def append_stages(op: SomeLoops, names: Sequence[str]) -> SomeLoops:
    """Return `op` with elementwise stages appended, by name. A stage with an operand adds an input of the elements' dtype.

    `bias` [channels] and `scale` [channels] are indexed by the operator's channel axis. If a name is used twice, its tensors are
    numbered: bias, bias2. int8 operators, whose output is int32, accept bias, relu, residual and dequantize, and after dequantize
    the stages of float operators, with quantize as the last.
    """
    for name in names:
        accepted = accepted_stages(op)
        if name not in accepted:
            known = f"{', '.join(accepted)}{near(name, accepted)}"
            raise ValueError(f"epilogue stage {name!r} of {op.output.dtype}: expected one of {known}")
        if op.body == "map" and len(op.axes) == 1 and name in PER_CHANNEL:
            op = append_stages(_by_rows(op), [stage.name for stage in op.epilogue])
        op = replace(op, epilogue=op.epilogue + (Stage(name, _operand(op, name)),))
        if name in (DEQUANTIZE, QUANTIZE):
            made = replace(op.output, dtype="float32" if name == DEQUANTIZE else "int8")
            op = replace(op, write=replace(op.write, tensor=made))
    return op


def accepted_stages(op: Loops) -> tuple[str, ...]:
    """Return the names of the epilogue stages that may be appended to an operator after its existing stages."""
    if op.dtype != "int8":
        return STAGES
    return INTEGER_STAGES if op.output.dtype == op.accumulator else DEQUANTIZED_STAGES if op.output.dtype == "float32" else ()


def _by_rows(op: SomeLoops) -> SomeLoops:
    """Return a flat elementwise operator with two axes, rows and columns, and without its epilogue.

    Columns are the last dimension of its output.
    """
    view = op.points // op.output.shape[-1], op.output.shape[-1]

    def over(access: Access) -> Access:
        return Access(access.tensor, view, ((1, 0), (0, 1)), (0, 0))

    axes = tuple(Axis(name, extent, "spatial") for name, extent in zip("ij", view, strict=True))
    return replace(op, axes=axes, reads=tuple(map(over, op.reads)), write=over(op.write), channel_axis=1, epilogue=())


def _operand(op: Loops, name: str) -> Access | None:
    """Return the access to the operand of a stage to be appended; None for a stage without an operand."""
    if name in ALONE:
        return None
    used = sum(stage.name == name for stage in op.epilogue)
    label = name if used == 0 else f"{name}{used + 1}"
    write = op.write
    if name == "residual":
        return Access(tensor(label, op.output.shape, op.output.dtype), write.view, write.coefficients, write.offset)
    if name == RESIDUAL_INT8:
        return Access(tensor(label, op.output.shape, "int8"), write.view, write.coefficients, write.offset)
    channel = op.channel_dimension
    operand = tensor(label, (write.view[channel],), "float32" if name == DEQUANTIZE else op.output.dtype)
    return Access(operand, operand.shape, (write.coefficients[channel],), (write.offset[channel],))
