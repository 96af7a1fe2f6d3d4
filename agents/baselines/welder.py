"""Best-first search over tiles, keyed by traffic and waves: our reconstruction of Welder's search (OSDI 2023).

From the sources (notes on the paper's artifact and on BitBLAS, its successor): a priority queue keyed by (traffic + 1) x waves,
beginning at tiles of 1; neighbours are the next larger size of one axis; it stops when the queue is empty or after 2,000 states,
and sorts the visited states by the same key; traffic is that of one block, waves the rounds in which the device runs all blocks.
Ours: several memory levels are searched one after the other, inside out as our rules demand, from the best tiles of the level
before; on a CPU a tile of the level is a block and its cores run them, one each; traffic counts whole elements, not transactions;
the score of a block's threads is a factor of the key, and tiles of every size go on to the next level, because the register tile
comes before the block. Welder fuses operators and places them in memory levels; here is one operator.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from agents.core.ranking import ConstructingByRules, diverse
from agents.gensor.benefits import traffic
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import resident_blocks
from gensor_gym.graph.actions import CACHE, TILE_UP
from gensor_gym.graph.resources import threads_of
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import EXTENT, IS_CPU, NUM_LEVELS, UNITS
from gensor_gym.measure.session import Session

BLOCKS = 4
"""Blocks that share a multiprocessor at most (BitBLAS)."""
WARPS = 4
"""Warps that a block is wanted to have (BitBLAS)."""

Key = tuple[float, int]
"""Sort key of the queue, smallest first."""


@dataclass(frozen=True)
class Welder(ConstructingByRules):
    """The search; knobs and virtual threads stay as the graph's rule sets them. It is deterministic and uses no model."""

    space: str = "tree"
    limit: int = 2000
    """States of one queue."""
    kept: int = 4
    """Tiles of a level that are kept for the search of the next level, for each power of two of elements."""
    top_k: int = 64
    """Programs measured, fewer where the budget is smaller."""
    per_register_tile: int = 2
    """Programs of one register tile that are measured before others."""

    def __post_init__(self) -> None:
        """ValueError for a search that could find nothing."""
        if min(self.limit, self.kept, self.top_k) < 1:
            raise ValueError(f"limit={self.limit}, kept={self.kept}, top_k={self.top_k}: expected 1 or more for all")

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Construct and measure the top-k, one after the other."""
        rows, _ = self.rows(session.graph)
        for schedule in diverse(tuple(Schedule(row) for row in rows), self.per_register_tile)[: self.top_k]:
            session.measure([schedule])

    def rows(self, graph: ConstructionGraph) -> tuple[list[np.ndarray], int]:
        """(programs with all levels opened, best key first; states visited)."""
        best = [graph.initial().row.copy()]
        visited = 0
        for level in range(int(graph.tables.ints[NUM_LEVELS])):
            if level:
                best = [_opened(graph, row) for row in self._some_of_each_size(best, level - 1)]
            found: dict[bytes, tuple[Key, np.ndarray]] = {}
            for start in best:
                states = self._level(graph, start)
                visited += len(states)
                found |= {row.tobytes(): (at, row) for at, row in states}
            best = [row for _, row in sorted(found.values(), key=lambda state: state[0])]
        return best, visited

    def _some_of_each_size(self, rows: list[np.ndarray], level: int) -> list[np.ndarray]:
        """The first `kept` of every power of two of elements in the level's tile: a block wants threads, and tiles as well."""
        taken: dict[int, int] = {}
        some = []
        for row in rows:
            size = math.prod(_tile(row, level)[:SPATIAL_SLOTS].tolist()).bit_length()
            taken[size] = taken.get(size, 0) + 1
            if taken[size] <= self.kept:
                some.append(row)
        return some

    def _level(self, graph: ConstructionGraph, start: np.ndarray) -> list[tuple[Key, np.ndarray]]:
        """(key, row) of the tiles of one level that the queue gives out."""
        queue: list[tuple[Key, int, np.ndarray]] = [(key(start, graph), 0, start)]
        seen = {start.tobytes()}
        states: list[tuple[Key, np.ndarray]] = []
        while queue and len(states) < self.limit:
            at, _, row = heapq.heappop(queue)
            states.append((at, row))
            actions = np.arange(TILE_UP, TILE_UP + MAX_AXES)
            rows, legal = graph.transitions(np.repeat(row[None], MAX_AXES, axis=0), actions)
            for grown in rows[legal]:
                if grown.tobytes() not in seen:
                    seen.add(grown.tobytes())
                    heapq.heappush(queue, (key(grown, graph), len(seen), grown))
        return states


def key(row: np.ndarray, graph: ConstructionGraph) -> Key:
    """(bytes that a tile of the level under construction moves into it over the whole reduction + 1) x waves of tiles.

    On a GPU, times how far a block is from four warps. Of equals the longer step of the reduction comes first, as far as
    memory holds it.
    """
    ints = graph.tables.ints
    extents = ints[EXTENT : EXTENT + MAX_AXES]
    tile = _tile(row, int(row[LEVEL]))
    points = math.prod(tile[:SPATIAL_SLOTS].tolist()) * math.prod(extents[SPATIAL_SLOTS:].tolist())
    tiles = math.prod((-(-extents // tile))[:SPATIAL_SLOTS].tolist())
    side_by_side, misfit = 1, 1.0
    if not ints[IS_CPU] and row[LEVEL] > 0:
        side_by_side = max(1, min(BLOCKS, resident_blocks(row, ints)))
        warps = -(-int(threads_of(row, ints)) // 32)
        misfit = max(warps / WARPS, WARPS / warps)
    moved = (traffic(row, ints) * points + 1.0) * math.ceil(tiles / (int(ints[UNITS]) * side_by_side)) * misfit
    return round(moved, 6), -math.prod(tile[SPATIAL_SLOTS:].tolist())


def _tile(row: np.ndarray, level: int) -> np.ndarray:
    """The tile of a level, [A]."""
    return row[TILE + level * MAX_AXES :][:MAX_AXES]


def _opened(graph: ConstructionGraph, row: np.ndarray) -> np.ndarray:
    """The row with the next level under construction."""
    rows, legal = graph.transitions(row[None], np.array([CACHE]))
    return rows[0] if legal[0] else row
