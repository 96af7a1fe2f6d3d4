"""Best-first search over tile sizes by memory traffic and waves of blocks: our reconstruction of Welder (OSDI 2023).

The sources are notes on the paper's artifact and on its successor BitBLAS. A priority queue, keyed by (traffic + 1) x waves,
begins at tiles of 1. Neighbours have the next larger size of one axis. The search stops when the queue is empty or after 2,000
states, and sorts the visited states by key. Traffic is that of one block. Waves are the rounds that the device needs for all
blocks.

We made these changes. Memory levels are searched in order from the innermost, as our rules demand, each from the best tiles of
the previous level. On a CPU a tile of the memory level is a block, and each core runs one block at a time. Traffic counts whole
elements, not transactions. The score of a block's threads is a factor of the key. Tiles of every size enter the next level,
because the register tile is chosen before the block. Welder fuses operators; here there is one operator.
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
"""Maximum number of blocks that share a multiprocessor (BitBLAS)."""
WARPS = 4
"""Desired number of warps in a block (BitBLAS)."""

Key = tuple[float, int]
"""Sort key of the search's queue: (score, minus the size of the reduction tile), smallest first."""


@dataclass(frozen=True)
class Welder(ConstructingByRules):
    """Welder's best-first search over tiles, with the graph's default knobs and virtual threads. It is deterministic."""

    space: str = "tree"
    limit: int = 2000
    """Maximum number of states of one queue."""
    kept: int = 4
    """Number of tiles per power of two of elements that are kept for the search of the next level."""
    top_k: int = 64
    """Maximum number of programs that are measured."""
    per_register_tile: int = 2
    """Number of programs of each register tile to measure first; all other programs of the ranking follow."""

    def __post_init__(self) -> None:
        if min(self.limit, self.kept, self.top_k) < 1:
            raise ValueError(f"limit={self.limit}, kept={self.kept}, top_k={self.top_k}: expected 1 or more for all")

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Construct programs and measure the best `top_k` one by one."""
        rows, _ = self.rows(session.graph)
        for schedule in diverse(tuple(Schedule(row) for row in rows), self.per_register_tile)[: self.top_k]:
            session.measure([schedule])

    def rows(self, graph: ConstructionGraph) -> tuple[list[np.ndarray], int]:
        """Construct programs by the search, without calling the model.

        Return (programs [P, ROW] with a tile for every level, best key first; number of states visited).
        """
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
        """Return the first `kept` programs for every power of two of elements in the level's tile.

        Tiles of all sizes are kept, because a block needs many threads too.
        """
        taken: dict[int, int] = {}
        some = []
        for row in rows:
            size = math.prod(_tile(row, level)[:SPATIAL_SLOTS].tolist()).bit_length()
            taken[size] = taken.get(size, 0) + 1
            if taken[size] <= self.kept:
                some.append(row)
        return some

    def _level(self, graph: ConstructionGraph, start: np.ndarray) -> list[tuple[Key, np.ndarray]]:
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
    """Return the sort key of a program, which is smallest for the best: (score, minus the size of the reduction tile).

    For equal scores, the longer reduction step has the smaller key. The score is (bytes moved into the current level by a tile
    over the whole reduction + 1) x waves of tiles. On a GPU it is also multiplied by the ratio between a block's warps and four
    warps, or the reciprocal if that is larger.
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
    return row[TILE + level * MAX_AXES :][:MAX_AXES]


def _opened(graph: ConstructionGraph, row: np.ndarray) -> np.ndarray:
    rows, legal = graph.transitions(row[None], np.array([CACHE]))
    return rows[0] if legal[0] else row
