"""Knobs for operands that a CPU copies into contiguous panels before the computation (packing)."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import PACKING, Knob
from gensor_gym.graph.tables.layout import CONVOLUTION, PACK_A, PACK_B
from gensor_gym.graph.tables.tables import COPIED

KNOBS = (
    Knob(
        place=PACK_A, name="pack_a", kind="cpu", values=(0, 1),
        doc="0, 1: copy of the first operand's tile",
        cost="a copy of the first operand's tile",
        lowering=PACKING, of_operands=True, structural=True,
    ),
    Knob(
        place=PACK_B, name="pack_b", kind="cpu", values=(0, 1),
        doc="0, 1: copy of the second operand's tile",
        cost="a copy of the second operand's tile",
        is_useful=lambda op, hardware, value: len(op.reads) > 1, lowering=PACKING, of_operands=True, structural=True,
    ),
)  # fmt: skip


@lean
def is_packed_for_algorithm(row, ints):  # noqa: ANN001, ANN201
    """Whether the program makes the copies of operands that the value of its knob `convolution` needs.

    Vectors over channels need a copy of the weights; a shifted matrix product may need a copy of the image.
    """
    if row[CONVOLUTION] == 1:
        return row[PACK_B] == 1
    return row[CONVOLUTION] != 2 or ints[COPIED] == 0 or row[PACK_A] == 1
