"""Knobs of operand tiles in a GPU's shared memory: number of buffers, fragments loaded ahead, layout of rows."""

from __future__ import annotations

from gensor_gym.graph.knobs.knob import MATRIX, REGISTERS, SHARED, Knob
from gensor_gym.graph.structure import has_async_copies, has_staged, reduction_points
from gensor_gym.graph.tables.layout import REGISTER_BUFFER, SHARED_LAYOUT, STAGES
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def _is_repeated(op: Operator, hardware: Hardware, value: int) -> bool:
    """Whether a block copies tiles to shared memory in several reduction steps, so that one copy may run ahead of another."""
    return has_staged(op) and reduction_points(op) > 1


def _has_buffers(op: Operator, hardware: Hardware, buffers: int) -> bool:
    """Whether a block can use this number of tile buffers. Without cp.async at most 2: the second is filled through registers."""
    return _is_repeated(op, hardware, buffers) and (buffers <= 2 or has_async_copies(hardware))


KNOBS = (
    Knob(
        place=STAGES, name="stages", kind="gpu", values=(1, 2, 3, 4, 5),
        doc="1 .. 5: buffers in shared memory; by cp.async from sm_80 on, before that 2 through registers",
        cost="shared memory per stage",
        is_useful=_has_buffers, raising=SHARED, structural=True,
    ),
    Knob(
        place=REGISTER_BUFFER, name="register_buffer", kind="gpu", values=(1, 2),
        doc="1, 2: fragments of the next point are loaded before the multiply-adds of this one",
        cost="registers for the next fragment",
        is_useful=_is_repeated, raising=REGISTERS | MATRIX, cores=(0, 1),
    ),
    Knob(
        place=SHARED_LAYOUT, name="shared_layout", kind="gpu", values=(0, 1, 2),
        doc="0 rows as they are, 1 rows padded, 2 swizzled in units of 16 bytes",
        cost="1 pads rows by one bank: shared memory; 2 swizzles: index arithmetic",
        is_useful=lambda op, hardware, layout: has_staged(op), raising=SHARED, lowering=SHARED, of_operands=True,
    ),
)  # fmt: skip
