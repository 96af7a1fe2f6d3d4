"""Where walks begin: the unscheduled program, and on a GPU the smallest program of every other kind.

A tensor-core program needs whole fragments, which no single move makes of the unscheduled program; a walk that follows
benefits has no reason to go all the way. The smallest such program is reachable by legal moves (a test goes them), so a walk
from there is a walk on the same graph.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import KNOB_UP
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.layout import KNOB, MAX_AXES, MAX_LEVELS, TILE
from gensor_gym.graph.rules import fits, is_well_formed
from gensor_gym.graph.tables import ALLOWED, INSTRUCTION_K, IS_CPU, ITEM, KNOB_BITS, MATRIX_A, MATRIX_K, MATRIX_M, MATRIX_N

WGMMA_COLUMNS = 64
"""Columns of the first wgmma program: below this the instruction loses much of its rate."""


def starts(graph: ConstructionGraph) -> np.ndarray:
    """Rows [S, ROW]: the unscheduled program first, then one of each kind that the space has and the operator allows."""
    first = graph.initial().row
    rows = [first]
    ints = graph.tables.ints
    if ints[IS_CPU] == 0:
        rows += [_with(first, "convolution", 3)] if _offers(ints, "convolution", 3) else []
        rows += [_smallest(first, core, ints) for core in (1, 2) if _offers(ints, "tensor_core", core)]
    kept = [row for row in rows if fits(row, ints) and is_well_formed(row, ints, graph.tables.sizes)]
    return np.array(kept or [first], dtype=np.int32)


def _offers(ints: np.ndarray, name: str, value: int) -> bool:
    """Whether the space moves the knob and may set the value."""
    index = KNOB_INDEX[name]
    return bool(ints[ALLOWED + KNOB_UP + index]) and bool(ints[KNOB_BITS + index] >> KNOBS[index].values.index(value) & 1)


def _with(row: np.ndarray, name: str, value: int) -> np.ndarray:
    """The row with another value of a knob."""
    row = row.copy()
    row[KNOB + KNOB_INDEX[name]] = KNOBS[KNOB_INDEX[name]].values.index(value)
    return row


def _smallest(first: np.ndarray, core: int, ints: np.ndarray) -> np.ndarray:
    """The smallest tile of whole fragments by mma.sync (1) or wgmma (2), all levels alike; nothing unrolled."""
    row = _with(_with(first, "tensor_core", core), "unroll", 1)
    m, n, k = (16, 8, int(ints[INSTRUCTION_K])) if core == 1 else (64, WGMMA_COLUMNS, 128 // int(ints[ITEM + ints[MATRIX_A]]))
    for level in range(MAX_LEVELS):
        for place, length in ((MATRIX_M, m), (MATRIX_N, n), (MATRIX_K, k)):
            row[TILE + level * MAX_AXES + ints[place]] = length
    return row
