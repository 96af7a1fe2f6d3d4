"""Legality of a row nest's schedules on a GPU: limits on the threads, registers and shared memory of a block."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gensor_gym.gir.gpu.teams import KNOWN, Teams, lies_across, teams_of
from gensor_gym.gir.placement import Level, passes_of
from gensor_gym.gir.rules import GirRules, by_placement
from gensor_gym.gir.schedule import FIELDS, HEADER

WIDEST = 4
"""Number of elements of the widest load, which has 16 bytes."""
OWN_REGISTERS = 40
"""Number of registers of a thread for addresses, loops and temporary values."""
LEAST_LIVE = 2
"""Least number of values of a step that are in registers at once, in addition to rows that are kept in registers."""


class GpuRules(GirRules):
    """The limits that a GPU sets to the schedules of one row nest (a fused operator as loops over rows and columns).

    The base class has the limits of all machines.
    """

    @cached_property
    def across(self) -> int:
        """Number of loads and stores whose rows are contiguous and whose columns are strided (`lies_across`).

        A block of several rows transposes their tiles in shared memory.
        """
        loads = (cell.made for cell in self.nest.cells if cell.is_load and cell.wide)
        stores = (to for name, to in self.nest.stores if self.nest.cell[name].wide)
        return sum(lies_across(access, self.nest.row_extents) for access in {*loads, *stores})  # type: ignore[arg-type]

    @cached_property
    def _joins(self) -> int:
        """Number of the nest's reductions; each needs one element of shared memory for every warp."""
        return sum(cell.is_reduction for cell in self.nest.cells)

    @cached_property
    def live(self) -> int:
        """Number of values that a thread keeps in registers at once for a column.

        It is the number of loads of the pass with most loads, because they are in flight together.
        """
        loads = [self.nest.uses[cell.name] for cell in self.nest.cells if cell.is_load and cell.wide]
        return max(LEAST_LIVE, *(sum(number in uses for uses in loads) for number in range(self.nest.passes)))

    def shared_bytes(self, teams: Teams, buffers: np.ndarray) -> np.ndarray:
        """Return the bytes of a block's shared memory, int64 [B].

        `buffers` [B] is the number of values that are kept there as whole rows.
        """
        turned = np.where(teams.rows > 1, self.across, 0) * self.nest.item_bytes * teams.rows * (teams.wide + 1)
        return buffers * teams.rows * self.row_bytes + turned + self.nest.item_bytes * self._joins * (teams.threads // 32)

    def registers_of(self, teams: Teams, header: dict[str, np.ndarray], whole: np.ndarray) -> np.ndarray:
        """Return the approximate number of registers of a thread, int64 [B].

        `whole` [B] is the number of values that are kept in registers as whole rows.
        """
        own = header["tile"] * header["vector"] * (self.nest.item_bytes // 4)
        return OWN_REGISTERS + own * (whole * teams.steps + self.live)

    def _header_fits(self, header: dict[str, np.ndarray]) -> np.ndarray:
        """Return whether each schedule has no field that is larger than needed, bool [B].

        A value above 1 is needed if half of it would not cover all rows or columns.
        """
        vector, tile, rows = (header[name] for name in ("vector", "tile", "rows"))
        teams = teams_of(self.nest, header, self.hardware)
        fitting = (vector <= WIDEST) & ((vector == 1) | (vector // 2 < self.nest.columns))
        fitting &= (tile == 1) | (tile // 2 * vector < self.nest.columns)
        fitting &= (rows == 1) | (teams.rows // 2 < self.nest.rows)
        fitting &= (header["streaming"] == 0) | self._streams
        for field in FIELDS:
            if field.name not in KNOWN:
                fitting &= header[field.name] == field.values[0]
        return fitting

    def _placement_fits(self, rows: np.ndarray, header: dict[str, np.ndarray]) -> np.ndarray:
        placed = rows[:, HEADER:]
        teams = teams_of(self.nest, header, self.hardware)
        fitting = np.all(self._allowed[np.arange(placed.shape[1]), placed], axis=1)
        registers = self.registers_of(teams, header, (placed == Level.REG).sum(axis=1))
        fitting &= registers <= np.minimum(self.hardware.registers_per_thread, self.hardware.registers_per_unit // teams.threads)
        fitting &= self.shared_bytes(teams, (placed == Level.SRAM).sum(axis=1)) <= self.hardware.shared_per_block
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            fitting[chosen] &= self._is_sound(placement)
            once = self._goes_once(placement)
            steps = -(-self.nest.rows // teams.rows[chosen]) * (teams.steps[chosen] if once else 1)
            fitting[chosen] &= self._loops(header["loop"][chosen], steps)
        return fitting

    def _loops(self, loop: np.ndarray, steps: np.ndarray) -> np.ndarray:
        values = np.array(next(field.values for field in FIELDS if field.name == "loop"))
        below = values[np.maximum(np.searchsorted(values, loop) - 1, 0)]
        return (loop == 1) | (below < steps)

    @cached_property
    def _once(self) -> dict[tuple[Level, ...], bool]:
        return {}

    def _goes_once(self, placement: tuple[Level, ...]) -> bool:
        """Return whether some kernel has a single pass over the columns, for the memory levels in `placement`.

        Each step of such a kernel is one tile of columns instead of whole rows.
        """
        if placement not in self._once:
            passes = passes_of(self.nest, placement)
            ends = sorted({-1, *passes.cuts, passes.nest.passes - 1})
            self._once[placement] = any(end - start == 1 for start, end in zip(ends, ends[1:], strict=False))
        return self._once[placement]
