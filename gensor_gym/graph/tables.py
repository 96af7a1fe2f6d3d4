"""A task as three flat arrays, which is what the compiled rules and the compiled model read.

`ints` holds structure and limits, `floats` rates and volumes, `sizes` the ladders one after the other. Offsets are module
constants, so that Numba folds them. A batch over different tasks stacks these arrays (see `env/vector.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gensor_gym.graph.actions import NUM_ACTIONS, space_actions
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.ladder import ladders
from gensor_gym.graph.layout import MAX_AXES, MAX_DIMS, MAX_TENSORS, slot_of
from gensor_gym.graph.structure import (
    LEVELS,
    WGMMA_ROWS,
    column_step,
    convolution_choices,
    has_async_copies,
    instruction_k,
    is_aligned_window,
    is_laid_out,
    is_staged,
    is_transposed,
    is_window_row,
    load_width,
    matrix_axes,
    needs_copy,
    shared_inner,
    tensor_core_choices,
    vector_axis,
    wgmma_columns,
)
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.traits import is_convolution
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

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
STRIDE = PAIRS + MAX_TENSORS * MAX_DIMS * PAIR_WIDTH  # [T, A] elements the flat index moves along an axis
VECTOR_SLOT = STRIDE + MAX_TENSORS * MAX_AXES  # [3] by knob convolution
KNOB_BITS = VECTOR_SLOT + 3  # [K] bit i set: value i may be chosen
ALLOWED = KNOB_BITS + len(KNOBS)  # [N] actions of the space
SIZE_START = ALLOWED + NUM_ACTIONS  # [A + 1] where each ladder begins in `sizes`
# ints: limits of the hardware
UNITS = SIZE_START + MAX_AXES + 1
LANES, WARP, THREADS_BLOCK, THREADS_UNIT, BLOCKS_UNIT, REGS_UNIT, REGS_THREAD = range(UNITS + 1, UNITS + 8)
SHARED_BLOCK, SHARED_UNIT, SHARED_GRAIN, SHARED_RESERVED, BANKS = range(REGS_THREAD + 1, REGS_THREAD + 6)
VECTOR_REGS, L1_BYTES, L2_BYTES, L3_BYTES = range(BANKS + 1, BANKS + 5)
HORIZON = L3_BYTES + 1
COPIED = HORIZON + 1  # 1 where a shifted matrix product needs its input copied
# ints: what tensor cores make of the operator (`structure.MatrixAxes`), all 0 where they cannot
MATRIX_M, MATRIX_N, MATRIX_K, MATRIX_A, MATRIX_B = range(COPIED + 1, COPIED + 6)  # slots of axes, indices of reads
INSTRUCTION_K = MATRIX_B + 1  # elements of axis k in one instruction
PRODUCTS = INSTRUCTION_K + 1  # instructions for each of them: 3 for tf32x3
ASYNC = PRODUCTS + 1  # 1 where copies to shared memory run by themselves (cp.async)
LAID_OUT = ASYNC + 1  # 1 where a kernel before a wgmma program lays out its operands, and columns are pixels
TRANSPOSED = LAID_OUT + 1  # 1 where a kernel before a wgmma program transposes B, which it reads in rows of k
COLUMN_STEP = TRANSPOSED + 1  # what columns of a wgmma are a multiple of
COLUMNS_FROM = COLUMN_STEP + 1  # slot of the outermost axis that columns of a wgmma run over
WIDE_AXES = COLUMNS_FROM + 1  # bit of a slot set: the axis moves rows of a window which wide loads can copy
LOAD_WIDTH = WIDE_AXES + 1  # [T] elements of the widest aligned load of a read
WINDOW = LOAD_WIDTH + MAX_TENSORS  # [T] whether several axes longer than 1 move the innermost dimension of a read
WHOLE_BOX = WINDOW + MAX_TENSORS  # [T] elements that the whole operator reads of a tensor, padding included
WHOLE_ROW = WHOLE_BOX + MAX_TENSORS  # [T] length of that box along the tensor's innermost dimension
FREE_KNOBS = WHOLE_ROW + MAX_TENSORS  # how many knobs have several usable values, then which they are [K]
NUM_INTS = FREE_KNOBS + 1 + len(KNOBS)

# floats: rates of the hardware and volumes of the operator
CLOCK, PEAK, DRAM_BW, L3_BW, L2_BW, L1_BW, DRAM_LATENCY, L2_LATENCY, SHARED_LATENCY, LAUNCH = range(10)
FLOPS, BYTES, EPILOGUE_BYTES, FLOOR = range(10, 14)
COEFFICIENT = 14  # [C] multipliers of the model's terms, 1 before calibration
NUM_COEFFICIENTS = 10
CONSTANT = COEFFICIENT + NUM_COEFFICIENTS  # [NUM_CONSTANTS] constants of the CPU model
NUM_CONSTANTS = 32
FUNCTIONS = CONSTANT + NUM_CONSTANTS  # functions of an element beside adding and multiplying: of a map, and epilogues
MMA_PEAK, WGMMA_PEAK = FUNCTIONS + 1, FUNCTIONS + 2  # operations per second that tensor cores sustain, by instruction
NUM_FLOATS = FUNCTIONS + 3

BODIES = ("multiply_add", "sum", "max", "map")
_STAGING = ("stages", "register_buffer", "shared_layout", "warp_tile", "lane_map")


@dataclass(frozen=True, eq=False)
class Tables:
    """The arrays of one task: ints int64 [NUM_INTS], floats float64 [NUM_FLOATS], sizes int64 [S]."""

    ints: np.ndarray
    floats: np.ndarray
    sizes: np.ndarray

    def ladder(self, slot: int) -> list[int]:
        """Sizes of tiles along the axis of a slot, ascending."""
        return self.sizes[self.ints[SIZE_START + slot] : self.ints[SIZE_START + slot + 1]].tolist()


def make_tables(
    op: Operator,
    hardware: Hardware,
    space: str,
    floor: float,
    coefficients: tuple[float, ...] = (),
    constants: tuple[float, ...] = (),
) -> Tables:
    """Tables of a task; `floor` is its roofline floor in seconds, the rest calibration and constants of the model."""
    ints = np.zeros(NUM_INTS, dtype=np.int64)
    _fill_operator(ints, op, hardware)
    _fill_matrix(ints, op, hardware)
    _fill_hardware(ints, hardware)
    ints[ALLOWED : ALLOWED + NUM_ACTIONS] = space_actions(space)
    ints[KNOB_BITS : KNOB_BITS + len(KNOBS)] = [_knob_bits(op, hardware, index) for index in range(len(KNOBS))]
    free = [knob for knob in range(len(KNOBS)) if int(ints[KNOB_BITS + knob]).bit_count() > 1]
    ints[FREE_KNOBS : FREE_KNOBS + 1 + len(free)] = len(free), *free
    chosen = ladders(op, space, hardware.kind)
    by_slot: list[tuple[int, ...]] = [(1,)] * MAX_AXES
    for axis, ladder in enumerate(chosen):
        by_slot[slot_of(axis, len(op.spatial))] = ladder
    ints[SIZE_START : SIZE_START + MAX_AXES + 1] = np.cumsum([0, *map(len, by_slot)])
    ints[HORIZON] = horizon(op, hardware, space)
    sizes = np.array([n for ladder in by_slot for n in ladder], dtype=np.int64)
    floats = _floats(op, hardware, floor, coefficients)
    floats[CONSTANT : CONSTANT + len(constants)] = constants
    return Tables(ints, floats, sizes)


def horizon(op: Operator, hardware: Hardware, space: str) -> int:
    """Steps of an episode: 16, 12 per level and axis longer than 1, and in space `extended` 2 per usable knob."""
    axes = sum(extent > 1 for extent in op.extents)
    knobs = sum(_knob_bits(op, hardware, i).bit_count() > 1 for i in range(len(KNOBS))) if space == "extended" else 0
    return 16 + 12 * LEVELS[hardware.kind] * axes + 2 * knobs


def _fill_operator(ints: np.ndarray, op: Operator, hardware: Hardware) -> None:
    """Structure of the loops and of every access."""
    spatial = len(op.spatial)
    slots = [slot_of(a, spatial) for a in range(len(op.axes))]
    ints[IS_CPU] = hardware.kind == "cpu"
    ints[NUM_LEVELS] = LEVELS[hardware.kind]
    ints[NUM_READS] = len(op.reads)
    ints[BODY] = BODIES.index(op.body)
    ints[EXTENT : EXTENT + MAX_AXES] = 1
    ints[[EXTENT + s for s in slots]] = op.extents
    ints[FIRST_SPATIAL] = slots[0]
    ints[END_REDUCE] = slots[-1] + 1
    ints[WIDE_AXES] = sum(1 << slot for axis, slot in enumerate(slots) if _moves_wide_rows(op, axis))
    ints[LOAD_WIDTH : LOAD_WIDTH + len(op.reads)] = [load_width(op, read) for read in op.reads]
    ints[WINDOW : WINDOW + len(op.reads)] = [is_window_row(op, read) for read in op.reads]
    for t, access in enumerate((*op.reads, op.write)):
        _fill_access(ints, t, access, slots, op.extents)
        ints[STAGED + t] = t < len(op.reads) and is_staged(op, access)
        ints[SHARED_INNER + t] = shared_inner(op, access)
        ints[PADDED + t] = access.is_padded(op.extents)
    ints[COPIED] = is_convolution(op) and needs_copy(op)
    for convolution in (0, 1, 2):
        usable = convolution in convolution_choices(op, hardware.kind)
        ints[VECTOR_SLOT + convolution] = slots[vector_axis(op, convolution if usable else 0)]


def _moves_wide_rows(op: Operator, axis: int) -> bool:
    """Whether an axis moves the innermost dimension of a read that is a window over rows of whole loads of two and more."""
    return any(read.coefficients[-1][axis] != 0 and is_aligned_window(op, read, 2) for read in op.reads)


def _fill_matrix(ints: np.ndarray, op: Operator, hardware: Hardware) -> None:
    """Roles of axes and reads on tensor cores, and their instruction; zeros where there is none for the operator."""
    ints[ASYNC] = has_async_copies(hardware)
    roles = matrix_axes(op)
    if roles is None or len(tensor_core_choices(op, hardware)) == 1:
        return
    slots = [slot_of(axis, len(op.spatial)) for axis in (roles.m, roles.n, roles.k)]
    ints[MATRIX_M : MATRIX_B + 1] = *slots, roles.a, roles.b
    ints[INSTRUCTION_K] = instruction_k(op, hardware, 1)
    ints[LAID_OUT] = is_laid_out(op)
    ints[COLUMNS_FROM] = slots[1]
    if 2 in tensor_core_choices(op, hardware):
        ints[COLUMNS_FROM] = slot_of(wgmma_columns(op)[0], len(op.spatial))
    ints[TRANSPOSED] = is_transposed(op)
    ints[COLUMN_STEP] = column_step(op)
    ints[PRODUCTS] = 3 if op.dtype == "tf32x3" else 1


def _fill_access(ints: np.ndarray, t: int, access: Access, slots: list[int], extents: tuple[int, ...]) -> None:
    """View, coefficients, strides and whole box of tensor number t."""
    ints[NUM_DIMS + t] = len(access.view)
    ints[ITEM + t] = ITEM_BYTES[access.tensor.dtype]
    for d, (size, row) in enumerate(zip(access.view, access.coefficients, strict=True)):
        ints[VIEW + t * MAX_DIMS + d] = size
        for slot, coefficient in zip(slots, row, strict=True):
            ints[COEF + (t * MAX_DIMS + d) * MAX_AXES + slot] = coefficient
        pairs = [(slot, coefficient) for slot, coefficient in zip(slots, row, strict=True) if coefficient]
        if len(pairs) > MAX_PAIRS:
            raise ValueError(f"{access.tensor.name}: {len(pairs)} axes move dimension {d}; at most {MAX_PAIRS} may")
        at = PAIRS + (t * MAX_DIMS + d) * PAIR_WIDTH
        ints[at] = len(pairs)
        ints[at + 1 : at + 1 + 2 * len(pairs)] = [n for pair in pairs for n in pair]
    box = [1 + high - low for low, high in (access.span(d, extents) for d in range(len(access.view)))]
    ints[WHOLE_BOX + t], ints[WHOLE_ROW + t] = math.prod(box), box[-1]
    for slot, stride in zip(slots, access.axis_strides(), strict=True):
        ints[STRIDE + t * MAX_AXES + slot] = stride


def _fill_hardware(ints: np.ndarray, hw: Hardware) -> None:
    """Limits."""
    names = {level.name: level.capacity for level in hw.memory}
    ints[UNITS : UNITS + 8] = (
        hw.units, hw.lanes, hw.warp, hw.threads_per_block, hw.threads_per_unit, hw.blocks_per_unit,
        hw.registers_per_unit, hw.registers_per_thread,
    )  # fmt: skip
    shared = names.get("shared", 0)
    ints[SHARED_BLOCK : BANKS + 1] = (hw.shared_per_block, shared, hw.shared_granularity, hw.shared_reserved, hw.banks)
    l2 = names["l2"]
    ints[VECTOR_REGS] = hw.vector_registers
    ints[L1_BYTES : L3_BYTES + 1] = (names.get("l1", shared), l2, names.get("l3", 0))


def _knob_bits(op: Operator, hardware: Hardware, index: int) -> int:
    """Bit set of the knob's value indices that this operator can use and that code generation knows."""
    knob = KNOBS[index]
    if knob.kind not in ("both", hardware.kind):
        return 1 << knob.values.index(knob.default)
    usable = set(knob.available)
    reduction = math.prod(op.extents[a] for a in op.reduce)
    if knob.name in ("split_k", "reduce_threads", "thread_split"):
        usable &= {v for v in knob.values if v <= reduction}
    if knob.name == "unroll" and reduction == 1:
        usable = {1}
    if knob.name == "vector":
        usable &= {v for v in knob.values if v <= max(load_width(op, read) for read in op.reads)}
    if knob.name == "raster" and len([a for a in op.spatial if op.axes[a].extent > 1]) < 2:
        usable = {1}
    if knob.name in _STAGING:
        usable &= _staging_values(op, hardware, knob.name)
    if knob.name in ("tensor_core", "persistent", "cluster"):
        tensor = tensor_core_choices(op, hardware)
        usable &= set(tensor) if knob.name == "tensor_core" else usable if 2 in tensor else {knob.default}
    if knob.name == "cluster" and len(usable) > 1:  # of at least as many tiles along m
        usable = {v for v in usable if op.axes[_m_axis(op)].extent > (v - 1) * WGMMA_ROWS}
    if knob.name == "convolution":
        usable &= set(convolution_choices(op, hardware.kind))
    if knob.name == "pack_b" and len(op.reads) < 2:
        usable = {0}
    if knob.name == "prefetch" and not op.reduce:
        usable = {0}
    return sum(1 << i for i, value in enumerate(knob.values) if value in usable)


def _m_axis(op: Operator) -> int:
    """Axis m of a product of matrices."""
    roles = matrix_axes(op)
    assert roles is not None, "it has tensor cores"
    return roles.m


def _staging_values(op: Operator, hardware: Hardware, name: str) -> set[int]:
    """Values of a knob about shared memory; the first alone where nothing is staged there, or nothing is repeated.

    Without cp.async a second buffer is filled by way of registers, and there is no third. A warp is laid over two axes.
    """
    first, *others = KNOBS[[knob.name for knob in KNOBS].index(name)].values
    staged = any(is_staged(op, read) for read in op.reads)
    repeated = math.prod(op.extents[a] for a in op.reduce) > 1
    if name in ("warp_tile", "lane_map"):
        useful = staged and len(op.spatial) > 1 and min(op.extents[a] for a in op.spatial[-2:]) > 1
    else:
        useful = staged and (repeated or name == "shared_layout")
    if not useful:
        return {first}
    return {1, 2} if name == "stages" and not has_async_copies(hardware) else {first, *others}


def _floats(op: Operator, hw: Hardware, floor: float, coefficients: tuple[float, ...]) -> np.ndarray:
    """Rates and volumes."""
    floats = np.zeros(NUM_FLOATS, dtype=np.float64)
    levels = {level.name: level for level in hw.memory}
    inner = levels.get("l1", levels.get("shared", hw.memory[0]))
    dram, l2 = levels["dram"], levels["l2"]
    l3 = levels.get("l3", dram if hw.kind == "cpu" else l2)
    floats[CLOCK] = hw.clock
    floats[PEAK] = dict(hw.peak).get(op.dtype, hw.peak_of("float32"))
    floats[[DRAM_BW, L3_BW, L2_BW, L1_BW]] = dram.bandwidth, l3.bandwidth, l2.bandwidth, inner.bandwidth
    floats[[DRAM_LATENCY, L2_LATENCY, SHARED_LATENCY]] = dram.latency, l2.latency, inner.latency
    floats[LAUNCH] = hw.launch_overhead
    floats[FLOPS], floats[BYTES], floats[FLOOR] = op.flops, op.compulsory_bytes, floor
    extra = [stage.access for stage in op.epilogue if stage.access is not None]
    floats[EPILOGUE_BYTES] = sum(access.tensor.nbytes for access in extra)
    floats[COEFFICIENT:] = 1.0
    floats[FUNCTIONS] = (op.function == "gelu") + sum(stage.name == "gelu" for stage in op.epilogue)
    floats[COEFFICIENT : COEFFICIENT + len(coefficients)] = coefficients
    floats[MMA_PEAK] = hw.tensor_rate(op.dtype, 1)
    floats[WGMMA_PEAK] = hw.tensor_rate(op.dtype, 2)
    return floats
