"""Elementwise stages that are applied to a finished output element: bias, relu, gelu, scale, residual."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gensor_gym.operators.checks import tensor
from gensor_gym.operators.maps import over_view
from gensor_gym.operators.types import OUTPUT, Access, Operator, Stage

STAGES = ("bias", "relu", "gelu", "scale", "residual")
"""Names of the stages: per-channel addend, two functions, per-channel factor, addend of the output's shape."""

PER_CHANNEL = ("bias", "scale")
INTEGER_STAGES = ("bias", "relu", "residual")


def append_stages(op: Operator, names: Sequence[str]) -> Operator:
    """`op` with stages appended in order; those with an operand add an input, of the output's dtype.

    The channel of `bias` [channels] and `scale` [channels] is the operator's channel axis. A name used twice numbers
    its tensor: bias, bias2. int8 operators, whose output is int32, take bias, relu and residual only.
    """
    for name in names:
        accepted = INTEGER_STAGES if op.dtype == "int8" else STAGES
        if name not in accepted:
            raise ValueError(f"epilogue stage {name!r} of {op.dtype}: expected one of {', '.join(accepted)}")
    if op.name == "elementwise" and len(op.axes) == 1 and any(name in PER_CHANNEL for name in names):
        shape = op.output.shape
        rows = over_view(op.function, shape, (math.prod(shape[:-1]), shape[-1]), op.dtype)
        return append_stages(rows, [stage.name for stage in op.epilogue] + list(names))
    for name in names:
        op = op.renamed(epilogue=op.epilogue + (Stage(name, _operand(op, name)),))
    return op


def _operand(op: Operator, name: str) -> Access | None:
    """Access to the operand that a stage adds, or None for a stage without one."""
    if name in ("relu", "gelu"):
        return None
    used = sum(stage.name == name for stage in op.epilogue)
    label = name if used == 0 else f"{name}{used + 1}"
    write = op.write
    if name == "residual":
        return Access(tensor(label, op.output.shape, OUTPUT[op.dtype]), write.view, write.coefficients, write.offset)
    # The channel's dimension of the output; for a grouped convolution its index is affine in two axes.
    channel = next(d for d, row in enumerate(write.coefficients) if row[op.channel_axis] > 0)
    operand = tensor(label, (write.view[channel],), OUTPUT[op.dtype])
    return Access(operand, operand.shape, (write.coefficients[channel],), (write.offset[channel],))
