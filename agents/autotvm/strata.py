"""Strata of a space (programs on CUDA cores or for one kind of tensor-core instruction), for stratified random draws.

TVM has a separate template for every algorithm, including tensor cores. Our spaces contain all algorithms. In uniform draws
tensor-core programs are very rare, because their tiles must be whole fragments. So each stratum has its own draws, from values
that are legal in the stratum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.graph.coordinates import Column
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.knobs.tensor_cores import fragment_length
from gensor_gym.graph.matrices.choices import WGMMA_ROWS
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES
from gensor_gym.graph.tables.layout import ROW, SPATIAL_SLOTS, TENSOR_CORE, TILE
from gensor_gym.graph.tables.tables import COLUMNS_FROM, IMAGES, IS_CPU, ITEM, MATRIX_A, MATRIX_K, MATRIX_M, ROW_STEP

_STRATUM_OF = {knob.place: knob.cores[0] for knob in KNOBS if len(knob.cores) == 1}
"""Position of a knob in an encoded program -> the only stratum that the knob applies to.

Programs of other strata keep the knob's default.
"""


def strata_of(columns: Sequence[Column], ints: np.ndarray) -> list[list[np.ndarray]]:
    """Return, for each stratum and each column, the indices of the column's values that programs of the stratum may have.

    A stratum is a kind of program: CUDA cores, mma.sync or wgmma if the space varies the knob `tensor_core`; otherwise all
    programs are one stratum. Omitted values are illegal in the stratum; most listed values are legal.
    """
    cores = [column.values[:, 0].tolist() for column in columns if column.first == TENSOR_CORE]
    if ints[IS_CPU] or not cores:
        return [[np.arange(len(column.values)) for column in columns]]
    found = [[_fitting(column, core, ints) for column in columns] for core in cores[0]]
    return [stratum for stratum in found if all(map(len, stratum))]


def _fitting(column: Column, core: int, ints: np.ndarray) -> np.ndarray:
    first, values = column.first, column.values
    if first == TENSOR_CORE:
        return np.flatnonzero(values[:, 0] == core)
    if _STRATUM_OF.get(first, core) != core:
        return np.flatnonzero(values[:, 0] == 0)
    if column.is_knob or core == 0:
        return np.arange(len(values))
    return np.flatnonzero(_whole(first - TILE, values, core, ints))


def _whole(axis: int, values: np.ndarray, core: int, ints: np.ndarray) -> np.ndarray:
    """Return whether the tile sizes of an axis are whole fragments of tensor-core instruction `core`, bool [N].

    Each row of `values` [N, 5] lists the tile of every level and the number of virtual threads. See `knobs.tensor_cores`.
    """
    row = np.zeros(ROW, dtype=np.int32)
    row[TENSOR_CORE] = core
    kept = values[:, 0] % fragment_length(row, axis, ints) == 0
    if axis < SPATIAL_SLOTS:
        kept &= values[:, -1] == 1
    elif axis != ints[MATRIX_K]:
        kept &= values[:, core - 1] == 1
    if core == 2:
        if axis == ints[MATRIX_K]:
            kept &= values[:, 1] * ints[ITEM + ints[MATRIX_A]] == SWIZZLE_BYTES
        elif axis != ints[MATRIX_M] and axis < ints[COLUMNS_FROM] and axis != ints[IMAGES]:
            kept &= values[:, 1] == 1
        elif axis == ints[MATRIX_M] and ints[ROW_STEP] < WGMMA_ROWS:
            kept &= values[:, 1] == values[:, 0]
    return kept
