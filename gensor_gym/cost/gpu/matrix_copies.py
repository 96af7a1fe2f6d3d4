"""Copies of operands' tiles to shared memory in kernels with mma.sync: 16 bytes at a time, or element by element. Compiled.

The hardware copies aligned units of 4 bytes by itself (cp.async). Other elements pass through registers. A few elements stay in
registers while the block multiplies; more elements are loaded and stored one by one before it multiplies, with a wait for each.
"""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.simt import MASK_BITS
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.resources import staged_elements
from gensor_gym.graph.tables.geometry import power_value
from gensor_gym.graph.tables.layout import MAX_AXES, STAGES, TILE, VECTOR
from gensor_gym.graph.tables.tables import (
    ASYNC,
    COPY_WIDTH,
    EXTENT,
    ITEM,
    MATRIX_A,
    MATRIX_K,
    MATRIX_N,
    PADDED,
    PRODUCTS,
    SHIFTING,
)

HELD_REGISTERS = 32
"""Number of a thread's registers that may hold elements on their way to shared memory (`codegen.cuda.mma.plan`)."""
COPY = 6.0
"""Number of instructions of a copy of 16 bytes: five as counted on CUDA cores (`cost/gpu/simt.py`), and its store."""
ELEMENT = 12.0
"""Number of instructions of a copy of one element: address, guard, load, store."""
UNMASKED = 45.0
"""Number of instructions of a copy of one element whose index is decomposed at every step. In a loop with 16 such copies they
take 700 of 845 instructions (SASS)."""
SHIFTED = 40.0
"""Number of instructions of a copy of 16 bytes that is combined from two aligned loads."""
ROUND_WAIT = 0.38
"""Time to round a copy to tf32 in shared memory, in waits for L2: load, convert, store, one copy at a time. Chosen on the
recorded products in tf32 (train, validation): about 100 cycles a copy of any width."""
GUARDED_WAIT, FREE_WAIT = 1.0, 0.4
"""Time to load an element under a branch, and without a branch (it may be in L1), in waits for L2. Chosen on the recorded
convolutions in float16 and int8 (train): 200 to 300 cycles and 100 cycles a copy."""


@lean
def inner_axis(tensor, ints):  # noqa: ANN001, ANN201
    """Return the slot of the axis along which an operand's rows run in shared memory: k for A, n for B."""
    return ints[MATRIX_K] if tensor == ints[MATRIX_A] else ints[MATRIX_N]


@lean
def is_shifted(row, tensor, ints):  # noqa: ANN001, ANN201
    """Whether copies are combined from aligned loads, because an axis of a window shifts rows by single elements."""
    slot, whole = ints[SHIFTING + tensor], 16 // ints[ITEM + tensor]
    if slot == 0 or power_value(row[VECTOR]) < 4 or row[TILE + MAX_AXES + inner_axis(tensor, ints)] % whole != 0:
        return False
    return row[TILE + MAX_AXES + slot] >= ints[EXTENT + slot]


@lean
def matrix_width(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many elements one copy of an operand takes: at most `vector` words, and a divisor of the row's length."""
    if is_shifted(row, tensor, ints):
        return 16 // ints[ITEM + tensor]
    width = min(ints[COPY_WIDTH + tensor], max(1, power_value(row[VECTOR]) * 4 // ints[ITEM + tensor]))
    while width > 1 and row[TILE + MAX_AXES + inner_axis(tensor, ints)] % width != 0:
        width //= 2
    return width if width * ints[ITEM + tensor] >= 4 else 1


@lean
def matrix_copies(row, tensor, warps, ints):  # noqa: ANN001, ANN201
    """Return the cost of copying an operand's tile to shared memory in one reduction step.

    The result is (instructions per thread, wavefronts per block, successive waits for L2).
    """
    width, item = matrix_width(row, tensor, ints), ints[ITEM + tensor]
    shifted = is_shifted(row, tensor, ints)
    trips = math.ceil(staged_elements(row, tensor, ints) / (width * warps * 32))
    waves = trips * warps * 2.0 * math.ceil(width * item / 4)
    if item == 4 and ints[PRODUCTS] == 1:  # every element is read again and rounded to tf32
        waves *= 2.0
    if shifted:
        return trips * SHIFTED, waves, 0.0 if row[STAGES] > 0 else trips * 0.125
    masked = trips <= MASK_BITS or ints[PADDED + tensor] == 0
    each = COPY if width * item == 16 else ELEMENT if masked else UNMASKED
    rounded = 0.0
    if item == 4 and ints[PRODUCTS] == 1:
        each, rounded = each + 2.0 + 2.0 * width, trips * ROUND_WAIT
    alone = row[STAGES] > 0 and ints[ASYNC] == 1 and width * item >= 4
    held = row[STAGES] > 0 and trips * max(1, width * item // 4) <= HELD_REGISTERS
    if alone or held:
        return trips * each, waves, rounded
    wait = GUARDED_WAIT if ints[PADDED + tensor] == 1 else FREE_WAIT if width == 1 else 0.125
    return trips * each, waves, rounded + trips * wait
