"""The analytic model of row nests (fused operators as loops over rows and columns) on a GPU: seconds of many schedules at once.

The time of a kernel is the longest of three times, plus a share of the two shorter times, plus the launch. The three times are:
issuing its instructions, transferring its bytes, and the waits for loads, shuffles and barriers of the blocks that one
multiprocessor runs in succession. Bytes are counted from the slices that the instructions move. The transfer rate is limited by
the bytes in flight (Little's law). The form is our reconstruction and was not checked by measurements. Latencies and rates are
the machine's (hardware/nvidia.py, sources there); the other constants are our estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.gpu.rules import WIDEST, GpuRules
from gensor_gym.gir.gpu.teams import WARP, Teams, lies_across, teams_of
from gensor_gym.gir.igraph import KernelGraph
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.model import TERMS, GirModel, Header
from gensor_gym.gir.placement import Level
from gensor_gym.gir.profile import KINDS, KernelProfile, PassProfile, Profile
from gensor_gym.hardware.occupancy import PARTITIONS, blocks_per_unit
from gensor_gym.hardware.types import MemoryLevel

INSTRUCTIONS = {"simple": 1, "divide": 10, "root": 8, "exp": 8, "fraction": 22, "log": 16}
"""Number of instructions for each element, by kind of scalar function: estimates."""
_MOVE, _STEP, _ROW, _POINTER, _JOIN = 2.0, 6.0, 20.0, 6.0, 2.0
"""Number of instructions of a load or store, of one iteration along columns, of a row, of a row's pointer, of a shuffle and add.

The instructions of a load or store include its address.
"""
_SHUFFLE, _BARRIER = 25.0, 40.0
"""Cycles of a shuffle and of a barrier until the next instruction can start: estimates."""
_DEPENDENT = 4.0
"""Cycles until an instruction's result is ready; instructions on the lane's other elements can fill them."""
_SECTOR = 8
"""Number of elements in a sector of 32 bytes, which is always transferred as a whole."""
_HIDDEN = 0.2
"""Fraction of a kernel's two shorter times (of arithmetic, memory and waits) that is not hidden behind the longest."""
_ALIKE = 0.9
"""Fraction of a memory's peak rate that kernels reach. Copies reach 0.9 of the DRAM peak on Hopper (a rule of thumb)."""


@dataclass(frozen=True)
class Touched:
    """A kernel's accesses to tensors in DRAM.

    `first` is the number of bytes of first accesses and `again` that of repeated loads. `loads` counts the load instructions
    along columns and `tensors` the tensors that are read, at least 1 each.
    """

    first: float
    again: float
    loads: int
    tensors: int


class GpuModel(GirModel):
    """The analytic model of one row nest (a fused operator as loops over rows and columns) on one GPU."""

    def _terms(self, profile: Profile, header: Header) -> np.ndarray:
        """Predict the seconds of many schedules that keep values at the same memory levels.

        Return float64 [B, 1 + len(TERMS)]: the total, then each term. `header` has the other fields of the schedules by name, [B]
        each.
        """
        rules = GpuRules(self.nest, self.hardware)
        teams = teams_of(self.nest, header, self.hardware)
        count = len(header["rows"])
        shared = rules.shared_bytes(teams, np.full(count, profile.buffered))
        registers = rules.registers_of(teams, header, np.full(count, profile.registered))
        resident = self._resident(teams, registers, shared)
        total = np.zeros((count, 1 + len(TERMS)))
        footprint = self.nest.graph.compulsory_bytes + self.nest.item_bytes * profile.spilled
        graphs = lower(self.nest, self._placement_of(profile)).kernels
        for kernel, graph in zip(profile.kernels, graphs, strict=True):
            parts = self._gpu_kernel(kernel, graph, header, teams, resident, footprint)
            times = np.stack([parts["arithmetic"] + parts["rows"], parts["cache"] + parts["memory"], parts["chains"]])
            longest = times.max(axis=0)
            total[:, 0] += parts["launch"] + longest + _HIDDEN * (times.sum(axis=0) - longest)
            for place, name in enumerate(TERMS, 1):
                total[:, place] += parts.get(name, 0.0)
        return total

    def _placement_of(self, profile: Profile) -> tuple[Level, ...]:
        return next(placement for placement, one in self._profiles.items() if one is profile)

    def _resident(self, teams: Teams, registers: np.ndarray, shared: np.ndarray) -> np.ndarray:
        """Return the number [B] of blocks that one multiprocessor runs at the same time, at least 1."""
        hw = self.hardware
        limits = (hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit, hw.level("shared").capacity)
        triples, inverse = np.unique(np.stack([teams.threads, registers, shared], axis=1), axis=0, return_inverse=True)
        found = [
            blocks_per_unit(int(one), int(two), int(three), *limits, hw.shared_granularity, hw.shared_reserved)
            for one, two, three in triples
        ]
        return np.maximum(np.array(found), 1)[inverse.reshape(-1)]

    def _gpu_kernel(
        self, kernel: KernelProfile, graph: KernelGraph, header: Header, teams: Teams, resident: np.ndarray, footprint: int
    ) -> dict[str, np.ndarray]:
        """Predict the seconds [B] of one kernel, by term of the model.

        The term `chains` is the time of waits for memory and for reductions.
        """
        hw, own = self.hardware, header["tile"] * header["vector"]
        parts, turns, blocks = teams.shares(self.nest, len(kernel.passes), header["loop"])
        steps = np.minimum(teams.steps, header["loop"]) if len(kernel.passes) == 1 else teams.steps
        waves = np.ceil(blocks / (hw.units * resident))
        busy = np.minimum(blocks, hw.units * resident)
        per_lane = sum(self._of_lane(one, header) for one in kernel.passes) * steps
        once = float(np.dot(kernel.numbers, list(INSTRUCTIONS.values()))) + kernel.pointers * _POINTER + _ROW
        folds = kernel.folds * _JOIN * np.log2(np.maximum(teams.lanes, 2))
        # Each partition of a unit issues for one warp at a time. With few blocks, some units have no block.
        warps = np.minimum(resident, np.ceil(busy / hw.units)) * teams.threads / WARP
        cycles = np.maximum(np.maximum(warps / PARTITIONS, 1.0) * PARTITIONS * WARP / hw.lanes, _DEPENDENT / own)
        issue = waves * turns * cycles / hw.clock
        found = {"arithmetic": issue * per_lane, "rows": issue * (once + folds)}
        found["launch"] = hw.launch_overhead * (1.0 + (parts > 1) * (kernel.folds > 0))
        home = self._lies_in(footprint)
        wait = home.latency
        join = _SHUFFLE * np.log2(np.clip(teams.lanes, 2, WARP)) + (teams.lanes > WARP) * (_BARRIER + 5 * _SHUFFLE)
        path = len(kernel.passes) * wait * np.ceil(steps / np.maximum(1, WIDEST // header["tile"]))
        path = path + kernel.folds * join / hw.clock + (parts > 1) * (kernel.folds > 0) * (wait * np.ceil(parts / 1024))
        found["chains"] = waves * turns * path
        touched = self._touched(graph)
        flight = 4.0 * own * touched.loads * busy * teams.threads / wait
        rate = np.minimum(_ALIKE * home.bandwidth, flight)
        found["memory"] = (touched.first + self._wasted(graph, teams)) / rate
        rows_bytes = 4.0 * self.nest.columns * resident * teams.rows * touched.tensors
        near, l2 = hw.level("shared"), hw.level("l2")
        again = np.where(rows_bytes <= near.capacity, touched.again / near.bandwidth, touched.again / l2.bandwidth)
        found["cache"] = again + self._whole * sum(one.scratch for one in kernel.passes) / near.bandwidth
        return found

    def _of_lane(self, one: PassProfile, header: Header) -> np.ndarray:
        own = header["tile"] * header["vector"]
        online = one.online * (1.0 + 1.0 / own) * (INSTRUCTIONS["exp"] + 2)  # one per element, one per step for the sum so far
        work = float(np.dot(one.counts, list(INSTRUCTIONS.values()))) + one.reductions + online
        moves = one.inputs + one.again + one.outputs + one.spills + one.scratch
        wide = header["vector"] if self.nest.columns % WIDEST == 0 else 1
        return own * (work + _MOVE * moves / wide) + _STEP

    @property
    def _whole(self) -> float:
        """Number of bytes of a value that varies along rows and columns, as float32."""
        return 4.0 * self.nest.rows * self.nest.columns

    def _touched(self, graph: KernelGraph) -> Touched:
        first, again, loads = 0.0, 0.0, 0
        seen: set[str] = set()
        for one in graph.instructions():
            for part, is_load in ((one.target, False), *((part, True) for _, part in one.sources)):
                if part.access is None:
                    continue
                axes = zip(part.access.rows, self.nest.row_extents, strict=True)
                steps = math.prod(extent for step, extent in axes if step)
                own, whole = (4.0 * rows * (self.nest.columns if part.wide else 1) for rows in (steps, self.nest.rows))
                fresh = part.buffer.name not in seen
                first += own if fresh or not is_load else 0.0
                again += (whole - own if fresh else whole) if is_load else 0.0
                loads += is_load and part.wide and fresh
                seen |= {part.buffer.name} if is_load else set()
        return Touched(first, again, max(loads, 1), max(len(seen), 1))

    def _wasted(self, graph: KernelGraph, teams: Teams) -> np.ndarray:
        """Return the bytes [B] that are transferred but not used.

        A sector of 32 bytes is transferred as a whole, although strided columns use only some of its elements.
        """
        found = np.zeros(len(teams.rows))
        for one in graph.instructions():
            for part in (one.target, *(part for _, part in one.sources)):
                if part.wide and part.access is not None and part.access.column not in (0, 1):
                    across = lies_across(part.access, self.nest.row_extents)
                    beside = np.minimum(teams.rows, self.nest.row_extents[-1]) if across else np.ones(len(teams.rows))
                    used = np.minimum(beside * np.maximum(1, _SECTOR // part.access.column), _SECTOR)
                    found += self._whole * (_SECTOR / used - 1.0)
        return found

    def _lies_in(self, footprint: int) -> MemoryLevel:
        """Return the memory level from which a repeated call reads its tensors of `footprint` bytes.

        It is L2 if all of them fit, else DRAM, because a larger cyclic stream evicts itself.
        """
        l2 = self.hardware.level("l2")
        return l2 if footprint <= l2.capacity else self.hardware.level("dram")


assert tuple(INSTRUCTIONS) == KINDS
