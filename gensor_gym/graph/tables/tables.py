"""A task as three flat arrays, the input of the compiled rules and the compiled model.

`ints` holds structure and limits, `floats` rates and volumes, `sizes` the tile sizes of all axes. Offsets are module constants,
so that Numba folds them. `graph/tables/filling.py` fills the arrays, and `env/tasks.py` stacks those of several tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.graph.tables.layout import MAX_AXES, MAX_DIMS, MAX_TENSORS, NUM_KNOBS

# ints: the hardware's kind and the operator's shape
IS_CPU, NUM_LEVELS, NUM_READS, BODY = 0, 1, 2, 3
EXTENT = 4  # [A]
FIRST_SPATIAL = EXTENT + MAX_AXES
END_REDUCE = FIRST_SPATIAL + 1
NUM_DIMS = END_REDUCE + 1  # [T], the write after the reads
STAGED = NUM_DIMS + MAX_TENSORS  # [T]
SHARED_INNER = STAGED + MAX_TENSORS  # [T] dimension that is contiguous in shared memory
PADDED = SHARED_INNER + MAX_TENSORS  # [T]
ITEM = PADDED + MAX_TENSORS  # [T] bytes of an element
VIEW = ITEM + MAX_TENSORS  # [T, D]
COEF = VIEW + MAX_TENSORS * MAX_DIMS  # [T, D, A]
PAIRS = COEF + MAX_TENSORS * MAX_DIMS * MAX_AXES  # [T, D, 1 + 2 * MAX_PAIRS] nonzero coefficients: count, (axis, value)..
MAX_PAIRS = 3
PAIR_WIDTH = 1 + 2 * MAX_PAIRS
STRIDE = PAIRS + MAX_TENSORS * MAX_DIMS * PAIR_WIDTH  # [T, A] elements by which the flat index grows along an axis
VECTOR_SLOT = STRIDE + MAX_TENSORS * MAX_AXES  # [3] by knob convolution
KNOB_BITS = VECTOR_SLOT + 3  # [K] bit i set: value i may be chosen
SIZE_START = KNOB_BITS + NUM_KNOBS  # [A + 1] where each ladder begins in `sizes`
# ints: limits of the hardware
UNITS = SIZE_START + MAX_AXES + 1
LANES, WARP, THREADS_BLOCK, THREADS_UNIT, BLOCKS_UNIT, REGS_UNIT, REGS_THREAD = range(UNITS + 1, UNITS + 8)
SHARED_BLOCK, SHARED_UNIT, SHARED_GRAIN, SHARED_RESERVED, BANKS = range(REGS_THREAD + 1, REGS_THREAD + 6)
VECTOR_REGS, L1_BYTES, L2_BYTES, L3_BYTES = range(BANKS + 1, BANKS + 5)
HORIZON = L3_BYTES + 1
COPIED = HORIZON + 1  # 1 if a shifted matrix product needs its input copied
GROUPED = COPIED + 1  # elements of the reduction that one lane of a CPU multiplies at a time: 4 of int8, 2 of bfloat16, else 1
# ints: the operator on tensor cores (`structure.MatrixAxes`), all 0 if it cannot use them
MATRIX_M, MATRIX_N, MATRIX_K, MATRIX_A, MATRIX_B = range(GROUPED + 1, GROUPED + 6)  # slots of axes, indices of reads
INSTRUCTION_K = MATRIX_B + 1  # elements of axis k in one instruction
PRODUCTS = INSTRUCTION_K + 1  # instructions per product of fragments: 3 for tf32x3, 2 if mma.sync widens operands, else 1
ASYNC = PRODUCTS + 1  # 1 if copies to shared memory are asynchronous (cp.async)
LAID_OUT = ASYNC + 1  # 1 if a wgmma program reads operands with k innermost, and columns are pixels of several rows
MOVED = LAID_OUT + 1  # bit set of reads that a kernel before a wgmma program lays out or transposes
TRANSPOSED = MOVED + 1  # 1 if a kernel before a wgmma program transposes B into rows of k
COLUMN_STEP = TRANSPOSED + 1  # divisor of a wgmma's number of columns
COLUMNS_FROM = COLUMN_STEP + 1  # slot of the outermost axis that columns of a wgmma run over
ROW_STEP = COLUMNS_FROM + 1  # divisor of the rows of a wgmma tile; if it is below 64, a block has one tile along m
FOLDED = ROW_STEP + 1  # slot of the axis along a window's rows that wgmma takes as channels, 0 for none
IMAGES = FOLDED + 1  # slot of an axis that columns of a wgmma may run over in whole panels, 0 for none
WIDE_AXES = IMAGES + 1  # bit set of slots: the axis indexes rows of a window that wide loads can copy
LOAD_WIDTH = WIDE_AXES + 1  # [T] elements of the widest aligned load of a read
WINDOW = LOAD_WIDTH + MAX_TENSORS  # [T] whether several axes longer than 1 index the innermost dimension of a read
WHOLE_BOX = WINDOW + MAX_TENSORS  # [T] elements that the whole operator reads of a tensor, padding included
WHOLE_ROW = WHOLE_BOX + MAX_TENSORS  # [T] length of the whole box along the tensor's innermost dimension
FROZEN_READ = WHOLE_ROW + MAX_TENSORS  # [T] 1 if a read is packed once for all calls
COPY_WIDTH = FROZEN_READ + MAX_TENSORS  # [T] elements of the widest copy of an operand for mma.sync, 0 without tensor cores
SHIFTING = COPY_WIDTH + MAX_TENSORS  # [T] slot of the axis that shifts rows so that two loads are combined, 0 for none
FREE_KNOBS = SHIFTING + MAX_TENSORS  # number of knobs with several usable values, then their indices [K]
ALLOWED = FREE_KNOBS + 1 + NUM_KNOBS  # [N] actions of the space, up to the end

# floats: rates of the hardware and volumes of the operator
CLOCK, PEAK, DRAM_BW, L3_BW, L2_BW, L1_BW, DRAM_LATENCY, L2_LATENCY, SHARED_LATENCY, LAUNCH = range(10)
FLOPS, BYTES, EPILOGUE_BYTES, FLOOR = range(10, 14)
COEFFICIENT = 14  # [C] multipliers of the model's terms, 1 before calibration
NUM_COEFFICIENTS = 10
CONSTANT = COEFFICIENT + NUM_COEFFICIENTS  # [NUM_CONSTANTS] constants of the CPU model
NUM_CONSTANTS = 32
FUNCTIONS = CONSTANT + NUM_CONSTANTS  # functions per element besides adding and multiplying: of a map, and of epilogues
MMA_PEAK, WGMMA_PEAK = FUNCTIONS + 1, FUNCTIONS + 2  # operations per second that tensor cores sustain, by instruction
NUM_FLOATS = FUNCTIONS + 3



@dataclass(frozen=True, eq=False)
class Tables:
    """Arrays that describe one task to compiled code: ints int64 [NUM_INTS], floats float64 [NUM_FLOATS], sizes int64 [S]."""

    ints: np.ndarray
    floats: np.ndarray
    sizes: np.ndarray

    def ladder(self, slot: int) -> list[int]:
        """Return the tile sizes of the axis in a slot (place of an axis in a row), ascending."""
        return self.sizes[self.ints[SIZE_START + slot] : self.ints[SIZE_START + slot + 1]].tolist()
