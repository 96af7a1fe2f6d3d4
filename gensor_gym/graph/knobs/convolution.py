"""Knob for the algorithm by which a convolution is computed, such as direct loops or a matrix product."""

from __future__ import annotations

from gensor_gym.graph.knobs.knob import CODE, MATRIX, PACKING, REGISTERS, SHARED, SPLIT, Knob
from gensor_gym.graph.structure import convolution_choices
from gensor_gym.graph.tables.layout import CONVOLUTION

KNOBS = (
    Knob(
        place=CONVOLUTION, name="convolution", kind="both", values=(0, 1, 2, 3),
        doc="0 direct; on a CPU 1 direct, vectors over channels, 2 shifted matrix product; on a GPU 3 implicit matrix product",
        cost="0 direct, vector over columns; 1 direct, vector over channels (CPU); 2 shifted GEMM; 3 implicit GEMM",
        is_useful=lambda op, hardware, algorithm: algorithm in convolution_choices(op, hardware.kind),
        raising=REGISTERS | CODE | PACKING | SPLIT | SHARED | MATRIX, lowering=REGISTERS | CODE | PACKING | SHARED,
        cores=(0,), of_operands=True, structural=True,
    ),
)  # fmt: skip
