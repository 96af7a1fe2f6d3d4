"""Fills the tables of a task (`graph/tables/tables.py`) from its operator, hardware and space, and from the model's data."""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.graph.actions import NUM_ACTIONS, space_actions
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.ladder import ladders
from gensor_gym.graph.matrices.choices import column_step, instruction_k, row_step, tensor_core_choices
from gensor_gym.graph.matrices.lying import images_axis, is_folded, is_laid_out, is_transposed, moved_reads, wgmma_columns
from gensor_gym.graph.structure import (
    LEVELS,
    convolution_choices,
    has_async_copies,
    is_aligned_window,
    is_staged,
    is_window_row,
    load_width,
    matrix_axes,
    matrix_copy_width,
    needs_copy,
    shared_inner,
    shifting_axis,
    vector_axis,
)
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_DIMS, NUM_KNOBS, slot_of
from gensor_gym.graph.tables.tables import (
    ALLOWED,
    ASYNC,
    BANKS,
    BODY,
    BYTES,
    CLOCK,
    COEF,
    COEFFICIENT,
    COLUMN_STEP,
    COLUMNS_FROM,
    CONSTANT,
    COPIED,
    COPY_WIDTH,
    DRAM_BW,
    DRAM_LATENCY,
    END_REDUCE,
    EPILOGUE_BYTES,
    EXTENT,
    FIRST_SPATIAL,
    FLOOR,
    FLOPS,
    FOLDED,
    FREE_KNOBS,
    FROZEN_READ,
    FUNCTIONS,
    GROUPED,
    HORIZON,
    IMAGES,
    INSTRUCTION_K,
    IS_CPU,
    ITEM,
    KNOB_BITS,
    L1_BW,
    L1_BYTES,
    L2_BW,
    L2_LATENCY,
    L3_BW,
    L3_BYTES,
    LAID_OUT,
    LAUNCH,
    LOAD_WIDTH,
    MATRIX_B,
    MATRIX_M,
    MAX_PAIRS,
    MMA_PEAK,
    MOVED,
    NUM_DIMS,
    NUM_FLOATS,
    NUM_LEVELS,
    NUM_READS,
    PADDED,
    PAIR_WIDTH,
    PAIRS,
    PEAK,
    PRODUCTS,
    ROW_STEP,
    SHARED_BLOCK,
    SHARED_INNER,
    SHARED_LATENCY,
    SHIFTING,
    SIZE_START,
    STAGED,
    STRIDE,
    TRANSPOSED,
    UNITS,
    VECTOR_REGS,
    VECTOR_SLOT,
    VIEW,
    WGMMA_PEAK,
    WHOLE_BOX,
    WHOLE_ROW,
    WIDE_AXES,
    WINDOW,
    Tables,
)
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.traits import is_convolution, is_product, weights
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

NUM_INTS = ALLOWED + NUM_ACTIONS
ROWS_OF_TILES = 4 * 16 + 2 + 1
"""Vectors of a register tile where a CPU multiplies in tile registers: four tiles of sums, and those that vectors would read."""
_GROUPED = {"int8": 4, "bfloat16": 2}


def make_tables(
    op: Operator,
    hardware: Hardware,
    space: str,
    floor: float,
    coefficients: tuple[float, ...] = (),
    constants: tuple[float, ...] = (),
) -> Tables:
    """Compute the tables of a task from its operator, hardware and space.

    `floor` is the task's roofline floor in seconds; `coefficients` and `constants` are the fitted data of the model.
    """
    ints = np.zeros(NUM_INTS, dtype=np.int64)
    _fill_operator(ints, op, hardware)
    _fill_matrix(ints, op, hardware)
    _fill_hardware(ints, op, hardware)
    ints[ALLOWED : ALLOWED + NUM_ACTIONS] = space_actions(space)
    usable = [knob.usable(op, hardware) for knob in KNOBS]
    bits = [sum(1 << knob.values.index(v) for v in values) for knob, values in zip(KNOBS, usable, strict=True)]
    ints[KNOB_BITS : KNOB_BITS + NUM_KNOBS] = bits
    free = [index for index, values in enumerate(usable) if len(values) > 1]
    ints[FREE_KNOBS : FREE_KNOBS + 1 + len(free)] = len(free), *free
    chosen = ladders(op, space, hardware)
    by_slot: list[tuple[int, ...]] = [(1,)] * MAX_AXES
    for axis, ladder in enumerate(chosen):
        by_slot[slot_of(axis, len(op.spatial))] = ladder
    ints[SIZE_START : SIZE_START + MAX_AXES + 1] = np.cumsum([0, *map(len, by_slot)])
    ints[HORIZON] = horizon(op, hardware.kind, len(free) if space == "extended" else 0)
    sizes = np.array([n for ladder in by_slot for n in ladder], dtype=np.int64)
    floats = _floats(op, hardware, floor, coefficients)
    floats[CONSTANT : CONSTANT + len(constants)] = constants
    return Tables(ints, floats, sizes)


def horizon(op: Operator, kind: str, knobs: int) -> int:
    """Return the maximum number of steps of an episode: 16, 12 per level and axis longer than 1, 2 per knob.

    `knobs` is the number of knobs with several usable values.
    """
    return 16 + 12 * LEVELS[kind] * sum(extent > 1 for extent in op.extents) + 2 * knobs


def _fill_operator(ints: np.ndarray, op: Operator, hardware: Hardware) -> None:
    spatial = len(op.spatial)
    slots = [slot_of(a, spatial) for a in range(len(op.axes))]
    ints[IS_CPU] = hardware.kind == "cpu"
    ints[NUM_LEVELS] = LEVELS[hardware.kind]
    ints[NUM_READS] = len(op.reads)
    ints[BODY] = list(BODIES).index(op.body)
    ints[GROUPED] = _GROUPED.get(op.dtype, 1)
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
        ints[FROZEN_READ + t] = op.frozen and access is weights(op)
    ints[COPIED] = is_convolution(op) and needs_copy(op)
    for convolution in (0, 1, 2):
        usable = convolution in convolution_choices(op, hardware.kind)
        ints[VECTOR_SLOT + convolution] = slots[vector_axis(op, convolution if usable else 0)]


def _moves_wide_rows(op: Operator, axis: int) -> bool:
    """Whether an axis indexes the innermost dimension of a window whose rows allow aligned loads of two or more elements."""
    return any(read.coefficients[-1][axis] != 0 and is_aligned_window(op, read, 2) for read in op.reads)


def _fill_matrix(ints: np.ndarray, op: Operator, hardware: Hardware) -> None:
    """Write into `ints` which axes and operands form a product on tensor cores, and the instruction; 0 without tensor cores."""
    ints[ASYNC] = has_async_copies(hardware)
    roles = matrix_axes(op)
    choices = tensor_core_choices(op, hardware)
    if roles is None or len(choices) == 1:
        return
    slots = [slot_of(axis, len(op.spatial)) for axis in (roles.m, roles.n, roles.k)]
    ints[MATRIX_M : MATRIX_B + 1] = *slots, roles.a, roles.b
    ints[INSTRUCTION_K] = instruction_k(op, hardware, choices[-1])
    ints[LAID_OUT] = is_laid_out(op)
    ints[MOVED] = sum(1 << read for read in moved_reads(op))
    ints[COLUMNS_FROM] = slots[1]
    if 2 in choices:
        ints[COLUMNS_FROM] = slot_of(wgmma_columns(op)[0], len(op.spatial))
        folded = op.reduce[-1] if is_folded(op) and op.extents[op.reduce[-1]] > 1 else -1
        ints[FOLDED] = slot_of(folded, len(op.spatial)) if folded >= 0 else 0
        ints[IMAGES] = slot_of(images_axis(op), len(op.spatial)) if images_axis(op) >= 0 else 0
    ints[ROW_STEP] = row_step(op)
    ints[TRANSPOSED] = is_transposed(op)
    ints[COLUMN_STEP] = column_step(op)
    ints[PRODUCTS] = 2 if hardware.widens(op.dtype) else 3 if op.dtype == "tf32x3" else 1
    for read, inner in ((roles.a, roles.k), (roles.b, roles.n)):
        ints[COPY_WIDTH + read] = matrix_copy_width(op, read, inner)
        shifting = shifting_axis(op, read, inner)
        ints[SHIFTING + read] = slot_of(shifting, len(op.spatial)) if shifting >= 0 else 0


def _fill_access(ints: np.ndarray, t: int, access: Access, slots: list[int], extents: tuple[int, ...]) -> None:
    """Write the entries of `ints` about tensor number `t`: view, coefficients, strides, whole box.

    ValueError for too many axes.
    """
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


def _fill_hardware(ints: np.ndarray, op: Operator, hw: Hardware) -> None:
    names = {level.name: level.capacity for level in hw.memory}
    ints[UNITS : UNITS + 8] = (
        hw.units, hw.lanes, hw.warp, hw.threads_per_block, hw.threads_per_unit, hw.blocks_per_unit,
        hw.registers_per_unit, hw.registers_per_thread,
    )  # fmt: skip
    shared = names.get("shared", 0)
    ints[SHARED_BLOCK : BANKS + 1] = (hw.shared_per_block, shared, hw.shared_granularity, hw.shared_reserved, hw.banks)
    l2 = names["l2"]
    in_tiles = hw.kind == "cpu" and op.dtype in dict(hw.tensor_peak) and is_product(op)
    ints[VECTOR_REGS] = ROWS_OF_TILES if in_tiles else hw.vector_registers
    ints[L1_BYTES : L3_BYTES + 1] = (names.get("l1", shared), l2, names.get("l3", 0))


def _floats(op: Operator, hw: Hardware, floor: float, coefficients: tuple[float, ...]) -> np.ndarray:
    """Return the table of floats: rates of the hardware, volumes of the operator, coefficients of the model."""
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
