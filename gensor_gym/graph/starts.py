"""Programs from which searches start: the unscheduled program and a small program of every other kind.

The other kinds are programs with tensor cores on GPUs, and shifted products of convolutions with constant weights. A tensor-core
program needs whole fragments. No single action leads to it from the unscheduled program, and the actions on the way bring no gain
in latency that a walk could follow. Legal actions lead to each start (tested), so a walk from a start stays on the same graph.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.actions import KNOB_UP
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.knobs.tensor_cores import PANEL
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES
from gensor_gym.graph.rules import fits, is_well_formed
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import (
    ALLOWED,
    COLUMN_STEP,
    COLUMNS_FROM,
    COPIED,
    EXTENT,
    FROZEN_READ,
    IMAGES,
    INSTRUCTION_K,
    IS_CPU,
    ITEM,
    KNOB_BITS,
    MATRIX_A,
    MATRIX_K,
    MATRIX_M,
    MATRIX_N,
    ROW_STEP,
    Tables,
)

WGMMA_COLUMNS = (64, 128, 256)
"""Numbers of columns of the programs with wgmma from which searches start. Below 64 the instruction loses much of its rate, and a
walk needs many steps between two of these numbers."""


def starts(tables: Tables, first: np.ndarray, columns: tuple[int, ...] = WGMMA_COLUMNS) -> np.ndarray:
    """Return programs from which a search may start: the unscheduled program `first`, then one of each other kind.

    They are rows int32 [S, ROW]. The kinds (CUDA cores, mma.sync, wgmma) are those that space and operator allow. There are
    several programs with wgmma, with about `columns` columns each.
    """
    rows = [plain(first)]
    ints = tables.ints
    if ints[IS_CPU] == 0:
        rows += [_with(first, "convolution", 3)] if _offers(ints, "convolution", 3) else []
        if _offers(ints, "tensor_core", 1):
            fragment = {MATRIX_M: 16, MATRIX_N: 8, MATRIX_K: int(ints[INSTRUCTION_K])}
            rows.append(_tensor_row(first, 1, {int(ints[place]): length for place, length in fragment.items()}))
        if _offers(ints, "tensor_core", 2):
            step = SWIZZLE_BYTES // int(ints[ITEM + ints[MATRIX_A]])
            for across in _pixels(tables, columns) if ints[COLUMNS_FROM] < ints[MATRIX_N] else _columns(tables, columns):
                tile = {int(ints[MATRIX_M]): int(ints[ROW_STEP]), int(ints[MATRIX_K]): step}
                rows.append(_tensor_row(first, 2, tile | across))
    elif ints[FROZEN_READ + 1] == 1 and ints[KNOB_BITS + KNOB_INDEX["convolution"]] >> 2 & 1:
        rows.append(_shifted(first, ints))
    kept = [row for row in rows if fits(row, ints) and is_well_formed(row, ints, tables.sizes)]
    return np.array(kept or [first], dtype=np.int32)


def _offers(ints: np.ndarray, name: str, value: int) -> bool:
    """Whether the space can change the knob and the operator can use the value."""
    index = KNOB_INDEX[name]
    return bool(ints[ALLOWED + KNOB_UP + index]) and bool(ints[KNOB_BITS + index] >> KNOBS[index].values.index(value) & 1)


def _with(row: np.ndarray, name: str, value: int) -> np.ndarray:
    row = row.copy()
    row[KNOB + KNOB_INDEX[name]] = KNOBS[KNOB_INDEX[name]].values.index(value)
    return row


def _shifted(row: np.ndarray, ints: np.ndarray) -> np.ndarray:
    """Return the program of a convolution with constant weights as a shifted matrix product that does not pack them.

    It is faster than packed weights for few channels and many pixels.
    """
    return _with(_with(_with(row, "convolution", 2), "pack_a", int(ints[COPIED])), "pack_b", 0)


def _columns(tables: Tables, columns: tuple[int, ...]) -> list[dict[int, int]]:
    """Return for each start with wgmma the tile {axis n: size}.

    The sizes are those `columns` that axis n can have, else the longest size below them.
    """
    n, step = int(tables.ints[MATRIX_N]), int(tables.ints[COLUMN_STEP])
    ladder = [size for size in tables.ladder(n) if size % step == 0]
    return [{n: size} for size in columns if size in ladder] or [{n: max(s for s in ladder if s <= columns[0])}]


def _pixels(tables: Tables, columns: tuple[int, ...]) -> list[dict[int, int]]:
    """Return for each start with wgmma of a convolution the tile {axis: size} of its columns, about `columns` each.

    A tile takes pixels of a row first, then several rows, then several images. Pixels that are read in place belong to one image,
    or are whole panels (64 pixels each) of several small images.
    """
    ints, found, step = tables.ints, [], int(tables.ints[COLUMN_STEP])
    for left in columns:
        tile, taken = _panels(tables, left), 1
        if tile:
            found.append(tile)
            continue
        for axis in range(SPATIAL_SLOTS - 1, int(ints[COLUMNS_FROM]) - 1, -1):
            if axis == ints[MATRIX_M]:
                continue
            if axis == ints[MATRIX_N]:
                sizes = [size for size in tables.ladder(axis) if size % 8 == 0]
            else:
                sizes = [size for size in tables.ladder(axis) if size <= ints[EXTENT + axis]]
            sizes = [size for size in sizes if size <= left]
            tile[axis] = max([size for size in sizes if taken * size % step == 0] or sizes)
            left, taken = left // tile[axis], taken * tile[axis]
        if tile not in found:
            found.append(tile)
    return found


def _panels(tables: Tables, columns: int) -> dict[int, int]:
    """Return the tile {axis: size} with about `columns` columns, in whole panels (64 pixels each) of several images.

    Empty if a wgmma of the operator cannot take several images, or if a single image is too large.
    """
    ints, images = tables.ints, int(tables.ints[IMAGES])
    if images == 0:
        return {}
    *_, p, q = range(SPATIAL_SLOTS)
    wide = -(-int(ints[EXTENT + p] * ints[EXTENT + q]) // PANEL) * PANEL
    count = max(size for size in tables.ladder(images) if size <= max(1, columns // wide))
    found = [(rows, wide // rows) for rows in tables.ladder(p) if wide % (8 * rows) == 0 and wide // rows in tables.ladder(q)]
    return {images: count, p: found[-1][0], q: found[-1][1]} if count > 1 and found else {}


def _tensor_row(first: np.ndarray, core: int, tile: dict[int, int]) -> np.ndarray:
    """Return a program with mma.sync (`core` 1) or wgmma (2), not unrolled, with the tile {axis slot: size} at all levels."""
    row = _with(_with(first, "tensor_core", core), "unroll", 1)
    for level in range(MAX_LEVELS):
        for axis, length in tile.items():
            row[TILE + level * MAX_AXES + axis] = length
    return row
