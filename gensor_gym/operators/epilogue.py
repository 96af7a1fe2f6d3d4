"""Elementwise stages that are applied to a finished output element: bias, relu, gelu, scale, residual, relu6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gensor_gym.operators.checks import tensor
from gensor_gym.operators.loops import OUTPUT, Access, Axis, Loops, Stage
from gensor_gym.registry import near

SomeLoops = TypeVar("SomeLoops", bound=Loops)

STAGES = ("bias", "relu", "gelu", "scale", "residual", "relu6")
"""Names of the stages: per-channel addend, two functions, per-channel factor, addend of the output's shape, and a function
that clips to 0 .. 6 (Howard et al., arXiv 1704.04861)."""
ALONE = ("relu", "gelu", "relu6")
"""Stages without an operand."""

PER_CHANNEL = ("bias", "scale")
INTEGER_STAGES = ("bias", "relu", "residual")


def append_stages(op: SomeLoops, names: Sequence[str]) -> SomeLoops:
    """`op` with stages appended in order. A stage with an operand adds an input of the output's dtype.

    `bias` [channels] and `scale` [channels] are indexed by the operator's channel axis. If a name is used twice, its tensors
    are numbered: bias, bias2. int8 operators, whose output is int32, accept bias, relu and residual only.
    """
    for name in names:
        accepted = INTEGER_STAGES if op.dtype == "int8" else STAGES
        if name not in accepted:
            known = f"{', '.join(accepted)}{near(name, accepted)}"
            raise ValueError(f"epilogue stage {name!r} of {op.dtype}: expected one of {known}")
    if op.body == "map" and len(op.axes) == 1 and any(name in PER_CHANNEL for name in names):
        return append_stages(_by_rows(op), [stage.name for stage in op.epilogue] + list(names))
    for name in names:
        op = replace(op, epilogue=op.epilogue + (Stage(name, _operand(op, name)),))
    return op


def _by_rows(op: SomeLoops) -> SomeLoops:
    """A flat map as two axes, rows and columns (the last dimension of its output), without an epilogue."""
    view = op.points // op.output.shape[-1], op.output.shape[-1]

    def over(access: Access) -> Access:
        return Access(access.tensor, view, ((1, 0), (0, 1)), (0, 0))

    axes = tuple(Axis(name, extent, "spatial") for name, extent in zip("ij", view, strict=True))
    return replace(op, axes=axes, reads=tuple(map(over, op.reads)), write=over(op.write), channel_axis=1, epilogue=())


def _operand(op: Loops, name: str) -> Access | None:
    """Access to the operand that a stage adds, or None for a stage without an operand."""
    if name in ALONE:
        return None
    used = sum(stage.name == name for stage in op.epilogue)
    label = name if used == 0 else f"{name}{used + 1}"
    write = op.write
    if name == "residual":
        return Access(tensor(label, op.output.shape, OUTPUT[op.dtype]), write.view, write.coefficients, write.offset)
    channel = op.channel_dimension
    operand = tensor(label, (write.view[channel],), OUTPUT[op.dtype])
    return Access(operand, operand.shape, (write.coefficients[channel],), (write.offset[channel],))
