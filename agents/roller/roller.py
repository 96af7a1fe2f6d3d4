"""Roller's tree construction (OSDI 2022): grow aligned tiles depth first by data reuse, level by level, without backtracking.

The rules are those of the paper and its artifact. Candidate sizes are aligned to the execution unit, the memory transaction and
the tensor's shape (padding waste is at most epsilon, which is raised until there are results). The axis with the largest reuse
score S = (Q(T) - Q(T')) / (F(T') - F(T)) grows first. A tile that is compute-intensive or full is fixed, and the next level
begins. Results are in the order of the search. In programs with fewer blocks than multiprocessors, tiles are shrunk. If the space
has virtual threads, every element of the register tile is a virtual thread, as in Roller's generated code. On a CPU the vector
width replaces the warp size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from agents.core.ranking import ConstructingByRules
from agents.gensor.benefits import occupied, traffic, waste
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import grid_blocks
from gensor_gym.graph import resources, rules
from gensor_gym.graph.actions import VTHREAD_UP
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.tables.tables import ALLOWED, EXTENT, LANES, NUM_LEVELS, SIZE_START, THREADS_BLOCK, UNITS, VECTOR_SLOT
from gensor_gym.measure.session import Session
from gensor_gym.operators.traits import is_product

REGISTER_SIZES = (1, 2, 4, 8, 16, 32)
LARGEST_MULTIPLE = 32
TRANSACTION = 8
"""Number of float32 elements in a 32-byte memory transaction."""
VECTOR_REDUCTION = 64
"""Divisor of an L1 tile's reduction on a CPU, so that accumulators stay in registers for a while."""


@dataclass(frozen=True)
class Roller(ConstructingByRules):
    """Roller's tree construction: tiles grow by rules without a model. The first `top_k` programs are measured in order."""

    space: str = "tree"
    top_k: int = 10
    registers: int = 96
    """Maximum number of accumulator and operand elements of one thread (the artifact's limit)."""
    block_multiple: int = 128
    """Divisor of the number of threads of a block in a finished program (warp x schedulers)."""
    epsilon_step: float = 0.2
    limit: int = 4000
    """Maximum number of states that one depth-first search visits."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Construct programs by the rules and measure the first `top_k`."""
        found = self.construct(session.graph, rng)
        session.measure(list(found.schedules[: self.top_k]))

    def rows(self, graph: ConstructionGraph) -> tuple[list[np.ndarray], int]:
        """Construct programs without calling the model.

        Return (distinct encoded programs in the order of the construction, number of states visited).
        """
        search = _Search(self, graph)
        epsilon = 0.0
        while not search.results and epsilon <= 1.0 + 1e-9:
            search.start(epsilon)
            epsilon += self.epsilon_step
        rows = [self._finish(row, graph) for row in (search.results or search.border or [graph.initial().row])]
        return list({row.tobytes(): row for row in rows}.values()), search.visited

    def _finish(self, row: np.ndarray, graph: ConstructionGraph) -> np.ndarray:
        """Complete a constructed program: shrink it if it has too few blocks, fill in outer tiles, and set virtual threads.

        Every element of the register tile becomes a virtual thread if the space has virtual threads.
        """
        row = shrink(row, graph)
        row[LEVEL] = graph.tables.ints[NUM_LEVELS] - 1
        if graph.hardware.kind == "gpu" and graph.tables.ints[ALLOWED + VTHREAD_UP]:
            row[VTHREAD : VTHREAD + SPATIAL_SLOTS] = row[TILE : TILE + SPATIAL_SLOTS]
        return row


def shrink(row: np.ndarray, graph: ConstructionGraph) -> np.ndarray:
    """Halve all spatial tiles of an encoded program while it has fewer blocks than the machine has units.

    Units are multiprocessors, or cores of a CPU. This is the artifact's try_shrink.
    """
    ints, sizes = graph.tables.ints, graph.tables.sizes
    row = row.copy()
    while grid_blocks(row, ints) < ints[UNITS]:
        smaller = row.copy()
        tiles = smaller[TILE : TILE + MAX_LEVELS * MAX_AXES].reshape(MAX_LEVELS, MAX_AXES)
        tiles[:, :SPATIAL_SLOTS] = -(-tiles[:, :SPATIAL_SLOTS] // 2)
        if np.array_equal(smaller, row) or not (
            rules.is_well_formed(smaller, ints, sizes) and rules.fits(smaller, ints)
        ):
            break
        row = smaller
    return row


@dataclass
class _Search:
    rules: Roller
    graph: ConstructionGraph
    results: list[np.ndarray] = field(default_factory=list)
    border: list[np.ndarray] = field(default_factory=list)
    """The last legal program of each branch of the search that ended without becoming compute-intensive."""
    visited: int = 0
    _seen: set[bytes] = field(default_factory=set)
    _epsilon: float = 0.0

    def start(self, epsilon: float) -> None:
        """Run the depth-first search with padding waste of at most `epsilon`."""
        self._epsilon = epsilon
        self._seen.clear()
        self._budget = self.visited + self.rules.limit
        self._enlarge(self.graph.initial().row.copy())

    def _enlarge(self, row: np.ndarray) -> None:
        """Enlarge the tiles of an encoded program depth first: the paper's EnlargeTile, with an explicit stack."""
        stack = [row]
        while stack and len(self.results) < self.rules.top_k and self.visited < self._budget:
            tile = stack.pop()
            if tile.tobytes() in self._seen:
                continue
            self._seen.add(tile.tobytes())
            self.visited += 1
            nexts = self._next_tiles(tile)
            full = not nexts
            if self._is_peak(tile) and (full or self._is_intensive(tile)):
                self._fix(tile, stack, nexts)
                continue
            if full:
                self.border.append(tile)
                if tile[LEVEL] == 0:
                    stack.append(self._open(tile))
            stack.extend(reversed(nexts))

    def _fix(self, tile: np.ndarray, stack: list[np.ndarray], nexts: list[np.ndarray]) -> None:
        """Accept the tile of the current level: begin the next level, or at the outermost level add the program to the results.

        The search visits the larger tiles `nexts` later.
        """
        stack.extend(reversed(nexts))
        if tile[LEVEL] + 1 == self.graph.tables.ints[NUM_LEVELS]:
            self.results.append(tile)
        else:
            stack.append(self._open(tile))

    def _open(self, tile: np.ndarray) -> np.ndarray:
        """Return the program with its next level begun.

        Reductions of level 1 begin at the first aligned size, not at 1, as in the artifact.
        """
        opened = tile.copy()
        opened[LEVEL] += 1
        for axis in range(SPATIAL_SLOTS, MAX_AXES):
            grown = self._grow(opened, axis)
            if grown is not None and opened[LEVEL] == 1:
                opened = grown
        return opened

    def _next_tiles(self, tile: np.ndarray) -> list[np.ndarray]:
        """Return the programs in which one axis has its next aligned size, largest reuse score first.

        This is the paper's GetNextRTileShapes.
        """
        ints = self.graph.tables.ints
        before, held = traffic(tile, ints), occupied(tile, ints)
        scored = []
        for axis in range(MAX_AXES):
            grown = self._grow(tile, axis)
            if grown is None:
                continue
            score = (before - traffic(grown, ints)) / max(occupied(grown, ints) - held, 1e-9)
            scored.append((score, axis, grown))
        scored.sort(key=lambda s: (-s[0], -s[1]))
        return [grown for _, _, grown in scored]

    def _grow(self, tile: np.ndarray, axis: int) -> np.ndarray | None:
        """Return the program with an axis at its next legal aligned size; None if no such size is left."""
        ints, sizes = self.graph.tables.ints, self.graph.tables.sizes
        level = int(tile[LEVEL])
        if ints[EXTENT + axis] == 1:
            return None
        current = tile[TILE + level * MAX_AXES + axis]
        base = 1 if level == 0 else tile[TILE + (level - 1) * MAX_AXES + axis]
        for size in sizes[ints[SIZE_START + axis] : ints[SIZE_START + axis + 1]]:
            if size <= current or size % base or not self._is_aligned(axis, level, int(size), int(base)):
                continue
            grown = tile.copy()
            grown[TILE + level * MAX_AXES + axis : TILE + MAX_LEVELS * MAX_AXES : MAX_AXES] = size
            if (
                rules.fits(grown, ints)
                and self._within_caps(grown)
                and waste(grown, level, ints) <= 1.0 + self._epsilon
            ):
                return grown
        return None

    def _is_aligned(self, axis: int, level: int, size: int, base: int) -> bool:
        """Return whether the alignment rules allow a tile size at a level. `base` is the size at the next inner level."""
        extent = int(self.graph.tables.ints[EXTENT + axis])
        cpu = self.graph.hardware.kind == "cpu"
        if level == 0:
            vector = cpu and axis in self._vector_slots()
            whole = size % self.graph.tables.ints[LANES] == 0 or (size == extent and len(self._vector_slots()) > 1)
            return size in REGISTER_SIZES or (vector and whole) if axis < SPATIAL_SLOTS else vector
        if axis >= SPATIAL_SLOTS:
            return size == extent or (size % VECTOR_REDUCTION == 0 if cpu else size in (8, 32))
        aligned = axis < SPATIAL_SLOTS - 1 or size % TRANSACTION == 0 or size >= extent or extent < TRANSACTION
        return aligned and size <= base * LARGEST_MULTIPLE

    def _vector_slots(self) -> tuple[int, ...]:
        """Return the slots of the axes that CPU vectors run along with the initial knobs.

        There is one axis, or two if pixels are fused (implicit convolution).
        """
        convolution = self.graph.initial().row[resources.CONVOLUTION]
        slot = int(self.graph.tables.ints[VECTOR_SLOT + convolution])
        return (slot - 1, slot) if convolution == 2 else (slot,)

    def _within_caps(self, tile: np.ndarray) -> bool:
        """Return whether a tile is within the artifact's limits on a thread's registers and a block's threads.

        On a CPU it always is.
        """
        if self.graph.hardware.kind == "cpu":
            return True
        ints = self.graph.tables.ints
        return resources.registers_of(tile, ints) - 32 <= self.rules.registers * 2 and resources.threads_of(
            tile, ints
        ) <= min(1024, ints[THREADS_BLOCK])

    def _is_peak(self, tile: np.ndarray) -> bool:
        """Return whether a tile fills the execution units: full vectors, or a multiple of the warps issued at a time."""
        ints = self.graph.tables.ints
        if self.graph.hardware.kind == "cpu":
            lanes, slots = int(ints[LANES]), self._vector_slots()
            length, extent = (math.prod(int(of[slot]) for slot in slots) for of in (tile[TILE:], ints[EXTENT:]))
            return length % lanes == 0 or extent < lanes
        if tile[LEVEL] == 0:
            return True
        multiple = self.rules.block_multiple if is_product(self.graph.operator) else 32
        return resources.threads_of(tile, ints) % multiple == 0

    def _is_intensive(self, tile: np.ndarray) -> bool:
        """Return whether computing on the tile takes longer than loading it from the next level (MemPerf > MaxComputePerf)."""
        hw, op = self.graph.hardware, self.graph.operator
        names = ("shared", "dram") if hw.kind == "gpu" else ("l1", "l2", "dram")
        bandwidth = hw.level(names[int(tile[LEVEL])]).bandwidth
        flops_per_point = op.flops / op.points
        return flops_per_point / hw.peak_of("float32") > traffic(tile, self.graph.tables.ints) / bandwidth
