"""Decisions by which a program is written: their order and the options of each.

The knob `tensor_core` comes first and the other knobs next, because the kind of program determines which tiles are good. The axes
follow. With `choices="columns"` a decision sets the tiles of all levels and the virtual threads of an axis at once
(`graph.coordinates`). With `choices="sizes"` a decision sets one of these numbers, from the innermost tile outwards, virtual
threads last; a network then needs few outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import CHAIN, Column
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, NUM_KNOBS, TENSOR_CORE, TILE, VTHREAD
from gensor_gym.graph.tables.tables import NUM_LEVELS

CHOICES = ("sizes", "columns")
MOST_SIZES = 256
"""Number of actions with `choices="sizes"`: the largest number of tile sizes that an axis may have."""

WHOLE, SIZE, NUMBER = range(3)
"""Kinds of decision: WHOLE sets the tiles of all levels and the virtual threads of an axis; SIZE sets the tile of one level,
which outer levels copy; NUMBER sets a single number."""
KIND, FIRST, LEVEL_OF, START, STOP, WRITTEN = range(6)
"""Indices of the numbers that describe a decision in compiled code. Options of the decision are START to STOP - 1 in the array of
all options. WRITTEN is the first of MAX_AXES numbers: how many levels of each axis are written after the decision."""
NUM_FACTS = WRITTEN + MAX_AXES

NUM_SUBJECTS = MAX_AXES + MAX_LEVELS + 1 + NUM_KNOBS
"""Number of features that name what is decided: the axis and the level of its tile (or virtual threads), or the knob."""


@dataclass(frozen=True, eq=False)
class Decision:
    """One decision that the agent takes while it writes a program, such as the tile of an axis at one memory level.

    `kind` says what is decided: all tiles and the virtual threads of an axis (`WHOLE`), the tile of one level, which outer levels
    copy (`SIZE`), or another number, a knob or virtual threads (`NUMBER`). `first` is the index in the program's row of the first
    number that the decision sets, `level` the memory level of the tile. `options` int32 [C, CHAIN] are the C values to choose
    from, with a column for each tile of an axis and one for its virtual threads; a value that is a single number is repeated in
    every column.
    """

    kind: int
    first: int
    level: int
    options: np.ndarray

    @property
    def subject(self) -> np.ndarray:
        """Return features that name what is decided, float32 [NUM_SUBJECTS]: one hot of an axis and level, or of a knob."""
        found = np.zeros(NUM_SUBJECTS, dtype=np.float32)
        if self.first > VTHREAD + MAX_AXES - 1:
            found[MAX_AXES + MAX_LEVELS + 1 + self.first - VTHREAD - MAX_AXES - 1] = 1.0
            return found
        found[(self.first - TILE) % MAX_AXES] = 1.0
        if self.kind != WHOLE:
            found[MAX_AXES + (MAX_LEVELS if self.kind == NUMBER else self.level)] = 1.0
        return found


def written_columns(graph: ConstructionGraph) -> list[Column]:
    """Return the parts of a program that can vary (columns: a knob, or all tiles of an axis) in the order of writing.

    The knob `tensor_core` comes first, then the other knobs, then the axes. Most knobs apply only with or only without tensor
    cores, and tensor cores need certain tiles: if they were decided after the tiles, they would almost never be possible.
    """
    return sorted(graph.coordinates.movable(), key=lambda column: (not column.is_knob, column.first != TENSOR_CORE))


def decisions_of(graph: ConstructionGraph, choices: str) -> list[Decision]:
    """Return the decisions that write a program of the task, in order.

    ValueError if the task has no decision, or if `choices="sizes"` would need too many actions.
    """
    found: list[Decision] = []
    for column in written_columns(graph):
        if column.is_knob:
            found.append(Decision(NUMBER, column.first, 0, _alone(column.values[:, 0])))
        elif choices == "columns":
            found.append(Decision(WHOLE, column.first, 0, column.values))
        else:
            found += _sizes(column, int(graph.tables.ints[NUM_LEVELS]))
    if not found:
        raise ValueError(f"{graph.operator} in space {graph.space!r} has one program: there is nothing to write")
    longest = max(len(decision.options) for decision in found)
    if choices == "sizes" and longest > MOST_SIZES:
        raise ValueError(f"{graph.operator} has an axis with {longest} sizes of tiles; choices='sizes' takes {MOST_SIZES}")
    return found


def _sizes(column: Column, levels: int) -> list[Decision]:
    """Return the decisions that set one number of an axis each: the tile of every level, then the virtual threads.

    Virtual threads are left out if they have a single option.
    """
    ladder = _alone(np.unique(column.values[:, :MAX_LEVELS]))
    found = [Decision(SIZE, column.first, level, ladder) for level in range(levels)]
    threads = np.unique(column.values[:, MAX_LEVELS])
    if len(threads) > 1:
        found.append(Decision(NUMBER, column.first + VTHREAD - TILE, 0, _alone(threads)))
    return found


def _alone(numbers: np.ndarray) -> np.ndarray:
    """Return C numbers as the options of a decision, int32 [C, CHAIN], each repeated in every column."""
    return np.ascontiguousarray(np.broadcast_to(numbers[:, None], (len(numbers), CHAIN)), dtype=np.int32)


def smallest(graph: ConstructionGraph) -> np.ndarray:
    """Return the row int32 [ROW] before the first decision: all numbers to be decided are at their minimum."""
    row = graph.coordinates.base.copy()
    for column in written_columns(graph):
        row[column.places] = column.values[column.smallest]
    return row


def packed(tasks: Sequence[Sequence[Decision]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the decisions of K tasks, at most D each, as arrays for compiled code.

    The arrays are (facts int64 [K, D, NUM_FACTS] of each decision, options of all decisions concatenated int32 [O, CHAIN], number
    of decisions of each task int64 [K], features of what is decided float32 [K, D, NUM_SUBJECTS]).
    """
    most = max(map(len, tasks))
    facts = np.zeros((len(tasks), most, NUM_FACTS), dtype=np.int64)
    subjects = np.zeros((len(tasks), most, NUM_SUBJECTS), dtype=np.float32)
    at = 0
    for task, decisions in enumerate(tasks):
        written = _without_choice(decisions)
        for place, decision in enumerate(decisions):
            if decision.kind != NUMBER:
                written[decision.first - TILE] = MAX_LEVELS if decision.kind == WHOLE else decision.level + 1
            own = decision.kind, decision.first, decision.level, at, at + len(decision.options)
            facts[task, place] = *own, *written
            subjects[task, place] = decision.subject
            at += len(decision.options)
    options = np.concatenate([decision.options for decisions in tasks for decision in decisions])
    return facts, options, np.array([len(decisions) for decisions in tasks], dtype=np.int64), subjects


def _without_choice(decisions: Sequence[Decision]) -> np.ndarray:
    """Return how many levels of every axis are written before the first decision, int64 [A].

    For an axis without decisions these are all its levels, else 0.
    """
    written = np.full(MAX_AXES, MAX_LEVELS)
    written[[decision.first - TILE for decision in decisions if decision.kind != NUMBER]] = 0
    return written
