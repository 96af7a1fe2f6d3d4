"""Observation of a policy that chooses a program column by column: features of choices, of columns, and of the task.

A column is the tile sizes and virtual threads of an axis, or one knob (`gensor_gym.graph.coordinates`). A choice is one value of
a column. Features describe a choice by its sizes, without the analytic model. A program thus costs one model evaluation, when it
is complete.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from agents.core.programs import Programs
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.observation import GROUPS, static_features
from gensor_gym.env.writing.decisions import written_columns
from gensor_gym.graph.coordinates import Column, Coordinates
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_DIMS, MAX_LEVELS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import BYTES, COEF, EXTENT, FLOPS, NUM_READS, STRIDE

SEES = 2
"""Version of the observation and the network. Raise it with each change, so that no old policy is loaded."""
_MULTIPLES = ((0, (2, 4)), (1, (2, 4, 8, 32)))
"""(level, numbers): one feature per number says whether the level's tile is a multiple of it (vectors, transactions, warps)."""
_SIZES = 9 + 3 + 3 + sum(len(numbers) for _, numbers in _MULTIPLES)
COLUMN_FEATURES = 2 + 6 + 2 + len(KNOBS)
"""Number of features of a column.

The features say whether the axis is spatial; its extent; for two reads and the write, whether a step along the axis changes the
element, and whether to the next element in memory; for a window, its shift per step and its extent without the axis; the knob,
one-hot.
"""
CHOICE_FEATURES = _SIZES + 1 + COLUMN_FEATURES
"""Number of features of one choice: sizes of an axis's tiles, the index of a knob's value, and the column's features."""
TASK_FEATURES, MACHINE_FEATURES = 3, GROUPS["hardware"]
TYPES: tuple[tuple[str, ...], ...] = (("float16", "bfloat16"), ("int8",), ("float8_e4m3fn",), ("tf32", "tf32x3"))
"""Kinds of data types that networks distinguish, each with its types. float32 belongs to none of them."""


class Choices(Programs):
    """The columns of one graph, each with its possible values (choices) and their features, as a policy sees them.

    A column is the tile sizes of one axis, or one knob. Knobs come first, because good tiles depend on the kind of program.
    """

    def __init__(self, graph: ConstructionGraph) -> None:
        super().__init__(graph)
        Coordinates.__init__(self, self.base, written_columns(graph))
        ints, floats = graph.tables.ints, graph.tables.floats
        described = [_column(column.first, ints) for column in self.columns]
        parts = [_described(column, own, ints) for column, own in zip(self.columns, described, strict=True)]
        self.features = np.concatenate([np.empty((0, CHOICE_FEATURES), dtype=np.float32), *parts])
        """Features of the values (choices) of all columns, column after column, float32 [sum of counts, CHOICE_FEATURES]."""
        self.column_features = np.array(described, dtype=np.float32).reshape(-1, COLUMN_FEATURES)
        """Features of the K columns, float32 [K, COLUMN_FEATURES]."""
        flops, size = floats[FLOPS], floats[BYTES]
        self.task = np.array([np.log2(flops) / 32, np.log2(size) / 32, np.log2(flops / size) / 8], dtype=np.float32)
        """Logarithms of the number of operations, of the compulsory bytes, and of their ratio, float32 [TASK_FEATURES]."""
        self.types = np.array([graph.operator.dtype in kind for kind in TYPES], dtype=np.float32)
        """Kind of the data type, one-hot float32 [len(TYPES)], for policies of several data types."""
        self.frozen = np.array([graph.operator.frozen], dtype=np.float32)
        """Whether weights are constant, float32 [1], for policies that learn from times."""
        self.machine = static_features(graph.operator, graph.hardware)[-MACHINE_FEATURES:]
        """Features of the machine, as in the environments, float32 [MACHINE_FEATURES], for policies of several machines."""


def is_joint(graph: ConstructionGraph) -> bool:
    """Return whether several axes have extents above 1. With at most one, as in a map, a walk finds the best program."""
    ints = graph.tables.ints
    return int((ints[EXTENT : EXTENT + MAX_AXES] > 1).sum()) > 1


choices_of = lru_cache(maxsize=4)(Choices)
"""Function that returns the choices of a graph, cached for the next round of a search."""


def _column(start: int, ints: np.ndarray) -> np.ndarray:
    """Compute the features [COLUMN_FEATURES] of the column that begins at position `start` of an encoded program."""
    found = np.zeros(COLUMN_FEATURES)
    if start >= KNOB:
        found[COLUMN_FEATURES - len(KNOBS) + start - KNOB] = 1.0
        return found
    axis, write = start - TILE, int(ints[NUM_READS])
    strides = [ints[STRIDE + t * MAX_AXES + axis] if t < write else 0 for t in (0, 1)] + [ints[STRIDE + write * MAX_AXES + axis]]
    found[:2] = axis < SPATIAL_SLOTS, np.log2(ints[EXTENT + axis]) / 8
    found[2:8] = [*(stride != 0 for stride in strides), *(stride == 1 for stride in strides)]
    found[8:10] = np.log2(_window(axis, ints)) / (2, 8)
    return found


def _window(axis: int, ints: np.ndarray) -> tuple[int, int]:
    """Describe the window of a read that an axis moves along, as in a convolution.

    Return (elements by which a step along the axis shifts the window, extent of the window without the axis), or (1, 1) without a
    window.
    """
    extents = ints[EXTENT : EXTENT + MAX_AXES]
    for dimension in range(int(ints[NUM_READS]) * MAX_DIMS):
        moves = ints[COEF + dimension * MAX_AXES : COEF + (dimension + 1) * MAX_AXES]
        own, covered = abs(int(moves[axis])), np.abs(moves) * (extents - 1)
        others = int(covered.sum() - covered[axis])
        if own > 1 or (own and others):
            return own, 1 + others
    return 1, 1


def _described(column: Column, features: np.ndarray, ints: np.ndarray) -> np.ndarray:
    """Compute the features float32 [C, CHOICE_FEATURES] of the C values of a column.

    `features` are those of the column itself, and `ints` is the task's table of whole numbers.
    """
    values, own = column.values, np.zeros((len(column.values), _SIZES + 1))
    if column.is_knob:
        own[:, -1] = values[:, 0] / max(1, len(KNOBS[column.first - KNOB].values) - 1)
    else:
        axis = column.first - TILE
        own[:, :-1] = _sizes(values.astype(np.float64), float(ints[EXTENT + axis]), *_window(axis, ints))
    return np.concatenate([own, np.repeat(features[None], len(values), axis=0)], axis=1).astype(np.float32)


def _sizes(chains: np.ndarray, extent: float, step: int, others: int) -> np.ndarray:
    """Compute the size features of an axis's tile sizes, float64 [C, MAX_LEVELS + 1] with the virtual threads last.

    The features are logarithms of tiles and of their ratios, padding, the excess of a window over its tiles, and flags. The
    window shifts by `step` per iteration; its extent without the axis is `others`.
    """
    inner, block, outer, virtual = chains[:, 0], chains[:, 1], chains[:, MAX_LEVELS - 1], chains[:, MAX_LEVELS]
    trips = np.ceil(extent / outer)
    logs = [
        np.log2(inner) / 4, np.log2(block) / 8, np.log2(outer) / 8, np.log2(block / inner) / 4, np.log2(outer / block) / 4,
        np.log2(trips) / 8, np.log2(virtual) / 2, np.log2(inner / virtual) / 4, 4 * np.log2(trips * outer / extent),
        *(np.log2(((tile - 1) * step + others) / (tile * step)) / 4 for tile in (inner, block, outer)),
    ]  # fmt: skip
    flags = [inner == 1, outer == 1, trips == 1]
    flags += [chains[:, level] % number == 0 for level, numbers in _MULTIPLES for number in numbers]
    return np.column_stack([*logs, *flags])
