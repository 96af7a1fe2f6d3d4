"""Legality of a row nest's schedules on a machine, for many schedules at once.

The limits concern vector and tile sizes, and the memory levels of values. `placement.py` derives the work of each pass from the
memory levels. `gpu/rules.py` has the limits of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.gir.lowering import PAD
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.online import LEAST_SIDE
from gensor_gym.gir.parts import rows_of
from gensor_gym.gir.placement import Level, Placement, levels_of, passes_of
from gensor_gym.gir.schedule import FIELDS, HEADER, MOST_PLACED, GirSchedule
from gensor_gym.hardware.types import Hardware

STREAMED = 2
"""Size that the outputs must exceed for streaming stores (past the caches), as a multiple of the second-level cache.

It applies on machines with measured rates of stores.

On one core of a Zen 4 (1 MB of cache), a map that writes 0.25 to 2 MB takes 1.5 times as long with them. A sum of two tensors
takes 1.1 to 1.2 times as long up to 1 MB, and 0.8 of the time from 4 MB on. Eleven of twelve operators that write up to 2 MB took
1.04 to 1.8 times as long on an Intel Xeon (results/host/fused_programs.jsonl.gz). After streaming stores, outputs are in no cache
when they are next read.
"""
MOST_VECTORS = 32
"""Most vectors that one step computes in all its rows. The code grows with them, and no machine has more registers."""


@dataclass(frozen=True)
class GirRules:
    """The limits that a machine sets to the schedules of one row nest (a fused operator as loops over rows and columns)."""

    nest: RowNest
    hardware: Hardware

    def __post_init__(self) -> None:
        if len(self.nest.crossing) > MOST_PLACED:
            count = len(self.nest.crossing)
            raise ValueError(f"{self.nest.graph.name}: {count} values cross passes, expected at most {MOST_PLACED}")

    @cached_property
    def registers(self) -> int:
        """Number of vector registers that may hold whole rows of values: all except four for temporary values."""
        return self.hardware.vector_registers - 4

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of the buffer that keeps one row of a value in SRAM, padded to whole vectors."""
        return self.nest.item_bytes * -(-self.nest.columns // PAD) * PAD

    @cached_property
    def scratch_bytes(self) -> int:
        """Most bytes of the row buffers of one step: half of a core's second-level cache, so that they stay there."""
        return self.hardware.level("l2").capacity // 2

    @cached_property
    def _allowed(self) -> np.ndarray:
        """Whether each value that several passes read may be at each memory level, bool [MOST_PLACED, levels].

        Unused entries allow DRAM only.
        """
        allowed = np.zeros((MOST_PLACED, len(Level)), bool)
        allowed[:, Level.DRAM] = True
        for place, name in enumerate(self.nest.crossing):
            allowed[place, list(levels_of(self.nest, name))] = True
        return allowed

    @cached_property
    def _streams(self) -> bool:
        """Whether streaming stores (past the caches) can help.

        Some output must have contiguous columns and, on a machine with measured stores, the outputs must be large enough.
        """
        if self.nest.scattered is not None:
            return False
        written = sum(value.nbytes for value in self.nest.graph.outputs)
        if self.hardware.has_measured_stores and written <= STREAMED * self.hardware.level("l2").capacity:
            return False
        return any(to.column == 1 and self.nest.cell[name].wide for name, to in self.nest.stores)

    @cached_property
    def _faults(self) -> dict[Placement, bool]:
        return {}

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each schedule of int32 [B, ROW] is legal, bool [B]."""
        header = GirSchedule.columns(rows)
        return self._header_fits(header) & self._placement_fits(rows, header)

    def _header_fits(self, header: dict[str, np.ndarray]) -> np.ndarray:
        """Return whether each schedule's fields are supported and not needlessly large, bool [B].

        A value is needlessly large if the next smaller value already covers all rows or columns.
        """
        nest, vector, tile, rows, loop = self.nest, *(header[name] for name in ("vector", "tile", "rows", "loop"))
        of_vector = rows_of(nest, vector)
        of_step = np.where(of_vector > 1, rows * tile * of_vector, rows)
        steps = -(-nest.rows // of_step)
        wide = (vector <= self.hardware.lanes) & ((vector == 1) | (of_vector > 1) | (vector // 2 < nest.columns))
        tiled = (tile == 1) | np.where(of_vector > 1, rows == FIELDS[2].values[-1], tile // 2 * vector < nest.columns)
        most_rows = nest.rows if nest.scattered is None else 1  # rows of one id are joined in order
        return (
            wide & tiled & (of_step <= most_rows) & (rows * tile <= MOST_VECTORS)
            & ((loop == 1) | (nest.scattered is None) & (GirSchedule.next_below("loop", loop) < steps))
            & ((header["streaming"] == 0) | (self._streams & (vector > 1) & (of_vector == 1)))
        )  # fmt: skip

    def _placement_fits(self, rows: np.ndarray, header: dict[str, np.ndarray]) -> np.ndarray:
        placed = rows[:, HEADER:]
        allowed = np.all(self._allowed[np.arange(MOST_PLACED), placed], axis=1)
        vectors = -(-self.nest.columns // header["vector"])
        whole = (placed == Level.REG).sum(axis=1)
        registers = whole * vectors * header["rows"]
        buffers = (placed == Level.SRAM).sum(axis=1)
        fitting = allowed & ((whole == 0) | (registers + 2 * header["rows"] * header["tile"] <= self.registers))
        fitting &= buffers * header["rows"] * self.row_bytes <= self.scratch_bytes
        online = (placed == Level.ONLINE).any(axis=1)
        fitting &= ~online | ((header["vector"] > 1) & (header["vector"] * header["tile"] >= LEAST_SIDE))
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            fitting[chosen] &= self._is_sound(placement)
        return fitting

    def _is_sound(self, placement: Placement) -> bool:
        if placement not in self._faults:
            self._faults[placement] = not passes_of(self.nest, placement).fault
        return self._faults[placement]


def by_placement(rows: np.ndarray, count: int) -> Iterator[tuple[Placement, np.ndarray]]:
    """Group schedules int32 [B, ROW] that have the same memory levels.

    Yield (levels of the `count` placed values, indices of the group's schedules as int64) for each group.
    """
    placed, inverse = np.unique(rows[:, HEADER : HEADER + count], axis=0, return_inverse=True)
    for number, one in enumerate(placed):
        yield tuple(Level(int(level)) for level in one), np.flatnonzero(inverse.reshape(-1) == number)
