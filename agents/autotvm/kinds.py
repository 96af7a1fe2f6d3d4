"""Kinds of programs that a space holds, and the knobs' values that each can have.

TVM has a template for every algorithm, tensor cores among them. Our spaces hold them side by side, and among configurations
drawn uniformly a tensor-core program is very rare, because its tiles must be whole fragments. So random programs are drawn
kind by kind, from values that are legal in that kind.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.knobs.tensor_cores import fragment_length
from gensor_gym.graph.layout import KNOB, ROW, SPATIAL_SLOTS, TENSOR_CORE, TILE
from gensor_gym.graph.structure import SWIZZLE_BYTES
from gensor_gym.graph.tables import COLUMNS_FROM, IS_CPU, ITEM, MATRIX_A, MATRIX_K, MATRIX_M

_KIND_OF = {knob.place: knob.cores[0] for knob in KNOBS if len(knob.cores) == 1}
"""The one kind of programs that a knob goes with: those of the others keep its default."""


def pools(columns: list[list[int]], values: list[np.ndarray], ints: np.ndarray) -> list[list[np.ndarray]]:
    """For every kind, the indices of values that a configuration of it may have, by knob of the template.

    `columns` are the places in a row that a knob sets, `values` int32 [N, places] what it sets them to. Kinds: CUDA cores,
    mma.sync and wgmma where knob `tensor_core` moves, else one. What is left out is not legal in the kind; of the rest, most
    are.
    """
    everything = [np.arange(len(v)) for v in values]
    if ints[IS_CPU] or [TENSOR_CORE] not in columns:
        return [everything]
    at = columns.index([TENSOR_CORE])
    found = []
    for core in values[at][:, 0].tolist():
        fitting = [_fitting(c, v, core, ints) for c, v in zip(columns, values, strict=True)]
        if all(len(part) for part in fitting):
            found.append(fitting)
    return found


def _fitting(column: list[int], values: np.ndarray, core: int, ints: np.ndarray) -> np.ndarray:
    """Indices of a knob's values that a program on these cores can have."""
    first = column[0]
    if first == TENSOR_CORE:
        return np.flatnonzero(values[:, 0] == core)
    if _KIND_OF.get(first, core) != core:
        return np.flatnonzero(values[:, 0] == 0)
    if first >= KNOB or core == 0:
        return np.arange(len(values))
    return np.flatnonzero(_whole(first - TILE, values, core, ints))


def _whole(axis: int, values: np.ndarray, core: int, ints: np.ndarray) -> np.ndarray:
    """Which chains of an axis, (tile of every level.., virtual threads) [N, 5], are whole fragments; see `knobs.tensor_cores`."""
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
        elif axis != ints[MATRIX_M] and axis < ints[COLUMNS_FROM]:
            kept &= values[:, 1] == 1
    return kept
