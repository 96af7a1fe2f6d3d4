"""Tensor-core instructions that a product may use on a machine, and the numbers that must divide its tiles."""

from __future__ import annotations

import math

from gensor_gym.graph.matrices.lying import WGMMA_TYPES, has_maps, is_filled_up, longest, step_length, wgmma_columns
from gensor_gym.graph.structure import MatrixAxes, capability, matrix_axes
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

TENSOR_TYPES = {
    "sm_75": {"float16": 8, "int8": 16},
    "sm_80": {"float16": 16, "bfloat16": 16, "tf32": 8, "tf32x3": 8, "int8": 32},
    "sm_89": {"float16": 16, "bfloat16": 16, "tf32": 8, "tf32x3": 8, "int8": 32, "float8_e4m3fn": 32},
}
"""First architecture that has them -> data type -> elements along k in one mma.sync. For Turing, Ampere, and Ada and newer (PTX
ISA, mma shapes m16n8k8 and m8n8k16; m16n8k16, m16n8k8 and m16n8k32)."""
COLUMN_STEPS = {"int8": 16}
"""Divisor of a wgmma's number of columns, by data type; 8 if absent. Integers have 8, 16, 24, 32 and then
multiples of sixteen (PTX ISA); few columns reach little of the rate."""
WGMMA_ROWS = 64
"""Number of rows that one wgmma computes (PTX ISA, m64nNk16)."""


def tensor_core_choices(op: Operator, hardware: Hardware) -> tuple[int, ...]:
    """Return the values of knob `tensor_core` that an operator can use: 0 CUDA cores, 1 mma.sync, 2 wgmma with tensor maps.

    Float32 cannot use tensor cores, because precision is part of the task. An operand with another `pad_value` than 0 cannot
    either. Axes must be long enough for some tile to fill an instruction, with two exceptions. The rows of wgmma may be fewer
    (`row_step`). Zeros pad k (`least_tile`) to an instruction of mma.sync or, for some convolutions (`is_filled_up`), to a
    step of wgmma. A tensor map needs rows of a multiple of 16 bytes. A convolution without groups is laid out for wgmma
    (`is_laid_out`), unless its layout is that of a product. B is transposed (`is_transposed`) if wgmma cannot read its type in
    its layout.
    """
    roles = matrix_axes(op)
    step = mma_types(hardware).get(op.dtype)
    if roles is None or step is None or op.pad_value:
        return (0,)
    found = (0, 1) if _fills(op, roles, (16, 8, 1)) else (0,)
    if hardware.arch != "sm_90" or op.dtype not in WGMMA_TYPES or not has_maps(op, roles):
        return found
    row = 1 if is_filled_up(op) else step_length(op, roles)
    columns = math.prod(longest(op.extents[a]) for a in wgmma_columns(op))
    return (*found, 2) if _fills(op, roles, (row_step(op), 8, row)) and columns >= column_step(op) else found


def least_tile(op: Operator, axis: int, hardware: Hardware) -> int:
    """Return the smallest tile along an axis with which tensor cores can be used, even if the axis is shorter.

    It is 1 for all axes but k. Along k it is one instruction, or one step of wgmma if zeros pad the step (`is_filled_up`).
    """
    roles, choices = matrix_axes(op), tensor_core_choices(op, hardware)
    if roles is None or axis != roles.k or len(choices) == 1:
        return 1
    if 2 in choices and is_filled_up(op):
        return step_length(op, roles)
    return mma_types(hardware)[op.dtype]


def row_step(op: Operator) -> int:
    """Return a divisor of the number of rows of every wgmma tile: 64, or 16 if axis m is shorter.

    If m is at most 8, it is all rows (m rounded up by `longest`). The instruction always computes 64 rows: it also multiplies the
    memory after a smaller tile, and does not store those results.
    """
    roles = matrix_axes(op)
    most = longest(op.axes[roles.m].extent) if roles is not None else 0
    return next((step for step in (WGMMA_ROWS, 16) if step <= most), most)


def column_step(op: Operator) -> int:
    """Return a divisor of the number of columns of every wgmma."""
    return COLUMN_STEPS.get(op.dtype, 8)


def instruction_k(op: Operator, hardware: Hardware, tensor_core: int) -> int:
    """Return the number of elements along k in one tensor-core instruction.

    ValueError if the operator cannot use the instruction.
    """
    if tensor_core not in tensor_core_choices(op, hardware) or tensor_core == 0:
        raise ValueError(f"tensor_core={tensor_core}: {op} on {hardware.name} has {tensor_core_choices(op, hardware)}")
    return mma_types(hardware)[op.dtype]


def mma_types(hardware: Hardware) -> dict[str, int]:
    """Return the length along k of one mma.sync on a machine, by data type.

    Empty before Turing, for a CPU, and for GPUs without mma.sync.
    """
    if not hardware.arch.startswith("sm_"):
        return {}
    number = capability(hardware)
    found = [types for arch, types in TENSOR_TYPES.items() if int(arch.removeprefix("sm_")) <= number]
    return found[-1] if found else {}


def _fills(op: Operator, roles: MatrixAxes, tile: tuple[int, int, int]) -> bool:
    """Whether the axes m, n and k, rounded up by `longest`, are at least as long as a tile (m, n, k)."""
    extents = [op.axes[axis].extent for axis in (roles.m, roles.n, roles.k)]
    return all(longest(extent) >= length for extent, length in zip(extents, tile, strict=True))
