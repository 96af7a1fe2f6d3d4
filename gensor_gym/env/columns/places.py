"""Which action sets which column to what: one layout for all operators of an environment.

Action 0 is `stop`. Every axis slot, then every knob, has a run of actions as long as the longest list of its values among the
operators; where an operator has fewer, the rest is never legal. So an action is always about the same column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.columns.mask import CHAIN_FACTS
from gensor_gym.graph.coordinates import CHAIN, Column, Coordinates
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_LEVELS, NUM_KNOBS, TILE, VTHREAD


class Places:
    """The runs of actions: `widths` and `starts` int64 [KNOB + NUM_KNOBS] by a column's first place in a row."""

    def __init__(self, graphs: Sequence[ConstructionGraph]) -> None:
        """Long enough for these operators."""
        self.widths = np.zeros(KNOB + NUM_KNOBS, dtype=np.int64)
        for graph in graphs:
            for column in graph.coordinates.movable():
                self.widths[column.first] = max(self.widths[column.first], len(column.values))
        self.starts = STOP + 1 + np.cumsum(self.widths) - self.widths
        self.num_actions = STOP + 1 + int(self.widths.sum())

    def check(self, graph: ConstructionGraph) -> None:
        """ValueError where an operator has more values of a column than there are actions."""
        for column in graph.coordinates.movable():
            if len(column.values) > self.widths[column.first]:
                raise ValueError(
                    f"{graph.operator} has {len(column.values)} values of {_name(column.first)}; this environment has "
                    f"{self.widths[column.first]} actions for them, after the operators it was made with"
                )

    def meaning(self, graph: ConstructionGraph, action: int) -> str:
        """What an action does to a program of an operator, as text; ValueError where it is none."""
        if action == STOP:
            return "stop"
        for column in graph.coordinates.movable():
            value = action - int(self.starts[column.first])
            if 0 <= value < len(column.values):
                return f"{_name(column.first)} to {_told(column, column.values[value].tolist())}"
        raise ValueError(f"action {action!r} is none of {graph.operator}; legal ones are in action_masks()")


def _name(first: int) -> str:
    """A column by its first place in a row."""
    return f"axis {first - TILE}" if first < VTHREAD else KNOBS[first - KNOB].name


def _told(column: Column, value: list[int]) -> str:
    """A value of a column."""
    if column.is_knob:
        return str(KNOBS[column.first - KNOB].values[value[0]])
    return "x".join(map(str, value[:MAX_LEVELS])) + f" vthread {value[MAX_LEVELS]}"


def packed(graphs: Sequence[ConstructionGraph], places: Places) -> tuple[np.ndarray, ...]:
    """For compiled code, of K tasks with at most C columns that have a choice, all lists end to end.

    (how many columns int64 [K], their places int64 [K, C, CHAIN], where their values begin int64 [K, C + 1], their first actions
    int64 [K, C], values int32 [O, CHAIN], where their chains begin int64 [K, C + 1], chains int32 [M, CHAIN_FACTS])
    """
    tasks = [Coordinates(graph.coordinates.base, graph.coordinates.movable()) for graph in graphs]
    counts = np.array([len(task.columns) for task in tasks], dtype=np.int64)
    most = max(1, int(counts.max()))
    where, actions = np.zeros((len(tasks), most, CHAIN), np.int64), np.zeros((len(tasks), most), np.int64)
    offsets, bounds = np.zeros((len(tasks), most + 1), np.int64), np.zeros((len(tasks), most + 1), np.int64)
    values, chains = [np.zeros((0, CHAIN), np.int32)], [np.zeros((0, CHAIN_FACTS), np.int32)]
    first_value = first_chain = 0
    for task, (graph, own) in enumerate(zip(graphs, tasks, strict=True)):
        count, (own_places, own_offsets, own_values) = int(counts[task]), own.packed
        own_chains = [chains_of(column, _ladder(graph, column)) for column in own.columns]
        where[task, :count], offsets[task, : count + 1] = own_places, first_value + own_offsets
        actions[task, :count] = [places.starts[column.first] for column in own.columns]
        bounds[task, : count + 1] = first_chain + np.cumsum([0, *map(len, own_chains)])
        values.append(own_values)
        chains += own_chains
        first_value, first_chain = first_value + len(own_values), int(bounds[task, count])
    return counts, where, offsets, actions, np.concatenate(values), bounds, np.concatenate(chains)


def chains_of(column: Column, ladder: Sequence[int]) -> np.ndarray:
    """The different chains of tiles of a column, int32 [M, CHAIN_FACTS] as `graph.columns.mask` reads them; none of a knob.

    Values with the same tiles stand side by side, ordered by tiles from the innermost outwards.
    """
    if column.is_knob:
        return np.zeros((0, CHAIN_FACTS), dtype=np.int32)
    tiles = column.values[:, :MAX_LEVELS]
    begins = _changes(tiles)
    ends, tiles = np.append(begins[1:], len(tiles)), tiles[begins]
    nexts = [_ends(_changes(tiles[:, :kept]), len(tiles)) for kept in (1, 2)]
    return np.column_stack([ends, *nexts, np.searchsorted(ladder, tiles)]).astype(np.int32)


def _changes(rows: np.ndarray) -> np.ndarray:
    """Numbers of the rows that differ from the one before, the first among them."""
    return np.flatnonzero(np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)]))


def _ends(begins: np.ndarray, count: int) -> np.ndarray:
    """Of `count` rows in runs that begin there, where the run of each ends."""
    ends = np.append(begins[1:], count)
    return np.repeat(ends, ends - begins)


def _ladder(graph: ConstructionGraph, column: Column) -> list[int]:
    """Sizes of tiles along the axis of a column; none of a knob."""
    return [] if column.is_knob else graph.tables.ladder(column.first - TILE)
