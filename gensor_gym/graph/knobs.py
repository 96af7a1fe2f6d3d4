"""The complete table of knobs: every discrete choice of the extended space besides tiles and virtual threads.

The table is complete from the start, because layouts, checkpoints and recorded tables depend on its order. A value
whose code generation is not written yet stays in the table and is masked: it is not in `available`.
A row of a schedule stores the index into `values`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Knob:
    """One discrete choice: values in climbing order, of which `available` can be generated today."""

    name: str
    kind: Literal["gpu", "cpu", "both"]
    values: tuple[int, ...]
    available: tuple[int, ...]
    default: int
    cost: str
    """What a larger value costs, in words."""


KNOBS: tuple[Knob, ...] = (
    Knob(
        "split_k",
        "gpu",
        (1, 2, 4, 8, 16, 32, 64),
        (1, 2, 4, 8, 16, 32, 64),
        1,
        "workspace and a second kernel that adds it up",
    ),
    Knob(
        "reduce_threads",
        "gpu",
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        1,
        "threads, shared memory and barriers at the end",
    ),
    Knob("vector", "gpu", (1, 2, 4), (1, 2, 4), 1, "registers in flight; needs aligned rows"),
    Knob("unroll", "both", (1, 2, 4, 8, 16), (1, 2, 4, 8, 16), 1, "code size, compile time"),
    Knob("stages", "gpu", (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 1, "shared memory per stage"),
    Knob("register_buffer", "gpu", (1, 2), (1, 2), 1, "registers for the next fragment"),
    Knob(
        "shared_layout",
        "gpu",
        (0, 1, 2),
        (0, 1, 2),
        0,
        "1 pads rows by one bank: shared memory; 2 swizzles: index arithmetic",
    ),
    Knob(
        "warp_tile",
        "gpu",
        (0, 1, 2, 3),
        (0, 1, 2, 3),
        0,
        "0 fills warps in row order; 1, 2, 3 lay a warp over 4x8, 8x4, 2x16 threads, which the block's must divide into",
    ),
    Knob("lane_map", "gpu", (0, 1), (0, 1), 0, "1 interleaves lanes so that 128-bit shared loads do not conflict"),
    Knob("raster", "gpu", (1, 2, 4, 8, 16), (1, 2, 4, 8, 16), 1, "index arithmetic at the start of a block"),
    Knob("persistent", "gpu", (0, 1), (0, 1), 0, "tile scheduler in the kernel"),
    Knob("cluster", "gpu", (1, 2, 4), (1, 2), 1, "blocks that must be resident together"),
    Knob("tensor_core", "gpu", (0, 1, 2), (0, 1, 2), 0, "0 CUDA cores, 1 mma.sync, 2 wgmma with TMA: whole fragments"),
    Knob(
        "convolution",
        "both",
        (0, 1, 2, 3),
        (0, 1, 2, 3),
        0,
        "0 direct, vector over columns; 1 direct, vector over channels (CPU); 2 shifted GEMM; 3 implicit GEMM",
    ),
    Knob("pack_a", "cpu", (0, 1), (0, 1), 0, "a copy of the first operand's tile"),
    Knob("pack_b", "cpu", (0, 1), (0, 1), 0, "a copy of the second operand's tile"),
    Knob(
        "loop_order",
        "cpu",
        (0, 1),
        (0, 1),
        0,
        "which operand's panel stays in L1: 0 keeps the vector operand's, 1 the other's",
    ),
    Knob("prefetch", "cpu", (0, 4, 8, 16), (0, 4, 8, 16), 0, "instructions; steps of the reduction ahead"),
    Knob(
        "thread_split",
        "cpu",
        (1, 2, 4, 8),
        (1, 2, 4, 8),
        1,
        "threads share the reduction: partial outputs in a workspace, added up",
    ),
)

KNOB_INDEX = {knob.name: index for index, knob in enumerate(KNOBS)}
