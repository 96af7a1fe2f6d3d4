"""The analytic model of row nests (fused operators as loops over rows and columns) on a CPU: seconds of many schedules at once.

The time of a kernel is the longer of arithmetic and traffic, plus a share of the shorter, plus the launch. Bytes are exact: they
are counted from the slices that the instructions move. The form is our reconstruction, since neither IntelliGen's model nor
PowerFusion's is public. Cycles are those of Intel's cores with AVX-512 (Agner Fog's tables for Ice Lake); overlaps were fitted to
measured programs. Constants that apply only to the host were fitted to nine operators on an Intel Xeon and checked on three
(`tests/gir/test_gir_ranking.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.parts import rows_of
from gensor_gym.gir.placement import Level
from gensor_gym.gir.profile import KINDS, KernelProfile, PassProfile, Profile, profile_of
from gensor_gym.gir.rules import by_placement
from gensor_gym.gir.schedule import FIELDS, GirSchedule
from gensor_gym.hardware.types import Hardware, MemoryLevel

TERMS = ("launch", "arithmetic", "chains", "rows", "spilling", "cache", "memory")
"""Names of the terms of the predicted time, in seconds.

In order: launches; instructions along columns; waits for dependent sums; work once per row; register spills; repeated reads from
caches; traffic of the tensors with the memory level that holds them.
"""
_WIDTHS = FIELDS[0].values
_CYCLES = {
    "simple": (0.5, 0.5, 0.5, 0.5), "divide": (3, 3, 5, 10), "root": (6, 6, 11, 22), "exp": (12, 7.5, 7.5, 7.5),
    "fraction": (30, 11, 13, 18), "log": (12, 48, 96, 192),
}  # fmt: skip
"""Cycles of each kind of scalar function on a vector, for each vector width.

An exponential has 15 instructions, two per cycle.
"""
_LOAD, _STORE, _LATENCY, _STEP, _FOLD, _NUMBER, _GATHER = 0.5, 1.0, 4.0, 1.5, (1, 8, 12, 16), 1.0, 1.0
_ROW, _ROW_ONCE = 12.0, 3.0
"""Cycles of a step of rows in addition to its passes: of a step that ends with reductions, and of any other step.

Without reductions, a step overlaps with the next one.
"""
_ALONE = 4.0
"""Extra cycles of a store that crosses two cache lines, unless the vector to its left was stored just before."""
_TORN = 70e-9
"""Extra seconds for each row with streaming stores (past the caches) if the row's end fills only part of a cache line."""
_FENCE = 100e-9
"""Seconds that a task waits at its end until its streaming stores (past the caches) are done."""
_LINE = 16
"""Number of float32 elements in a cache line."""
_OVERLAP = 0.3
"""Fraction of the shorter of arithmetic and traffic that does not overlap with the longer."""

_FULL = 0.75
"""Fraction of the private caches' capacity up to which all data of a call stay there.

It is below 1 because pages are scattered.
"""
_WRITTEN = 1.0
"""Extra cost of a byte that is stored to the second-level cache, as a multiple of the cost of reading a byte.

It arises because the cache line is read before it is written.
"""
_OPEN, _HALF = 4, 20e-9
"""Number of partly written cache lines from which on streaming stores evict lines early, and seconds of one such eviction."""
_BEGUN = (0.0, 0.0, 0.5, 1.0)
"""Fraction of the loads of each vector width that cross two cache lines.

NumPy's arrays begin a quarter line after a line's start.
"""
_KEPT, _WAIT = 1.5, 30.0
"""Cycles of a load or store of a row buffer in SRAM, and cycles of the wait for a reduction at the end of a step of rows."""
_CLAIM, _BATCHES = 20e-9, 16
"""Seconds in which a thread claims a batch of tasks, and number of batches per thread (`codegen/runtime/runtime.c`)."""
_BESIDE, _ACROSS = 0.03, 0.2
"""Relative increase of the time of memory accesses: for each further row of a step, and for loads that cross two cache lines."""

_APART = 2.0
"""Relative increase of the time of memory accesses if vectors run along rows, and a step reads one cache line of each column.

More lines divide it. The sums of 56x56 pixels of 256 channels take 2.3 times as long with one line as with all sixteen, with four
1.6 times, with eight 1.4 times (one core of an Intel Xeon with AMX).
"""

Header = dict[str, np.ndarray]


@dataclass(frozen=True)
class GirModel:
    """The analytic model of one row nest (a fused operator as loops over rows and columns) on one CPU."""

    nest: RowNest
    hardware: Hardware

    @cached_property
    def _profiles(self) -> dict[tuple[Level, ...], Profile]:
        return {}

    def profile(self, placement: tuple[Level, ...]) -> Profile:
        """Return the counts of instructions and storage for one choice of memory levels; they are computed once and then kept."""
        if placement not in self._profiles:
            self._profiles[placement] = profile_of(self.nest, placement)
        return self._profiles[placement]

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds of schedules int32 [B, ROW].

        Return float64 [B, 1 + len(TERMS)]: the total, then each term of `TERMS`.
        """
        found = np.zeros((len(rows), 1 + len(TERMS)))
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            found[chosen] = self._terms(self.profile(placement), GirSchedule.columns(rows[chosen]))
        return found

    def _terms(self, profile: Profile, header: Header) -> np.ndarray:
        """Predict the seconds of many schedules that keep values at the same memory levels.

        Return float64 [B, 1 + len(TERMS)]: the total, then each term. `header` has the other fields of the schedules by name, [B]
        each.
        """
        total = np.zeros((len(header["rows"]), 1 + len(TERMS)))
        footprint = self.nest.graph.compulsory_bytes + self.nest.item_bytes * profile.spilled
        for kernel in profile.kernels:
            parts = self._kernel(kernel, header, footprint)
            arithmetic = parts["arithmetic"] + parts["chains"] + parts["rows"] + parts["spilling"]
            moved = parts["cache"] + parts["memory"]
            total[:, 0] += parts["launch"] + np.maximum(arithmetic, moved) + _OVERLAP * np.minimum(arithmetic, moved)
            for place, name in enumerate(TERMS, 1):
                total[:, place] += parts[name]
        return total

    def _kernel(self, kernel: KernelProfile, header: Header, footprint: int) -> dict[str, np.ndarray]:
        """Predict the seconds [B] of one kernel on its slowest thread, by term of the model.

        `footprint` is the number of bytes of all tensors.
        """
        rows, tasks, threads = self._shares(header)
        width, of_vector = np.searchsorted(_WIDTHS, header["vector"]), self._across(header)
        vectors = -(-self.nest.columns // (header["vector"] // of_vector))
        second = rows / of_vector / self.hardware.clock
        found = {name: np.zeros(len(width)) for name in TERMS}
        for one in kernel.passes:
            arithmetic, chain, spilled = self._pass(one, header, width)
            found["arithmetic"] += second * vectors * arithmetic
            found["chains"] += second * vectors * chain
            found["spilling"] += second * vectors * spilled
        cycles = np.array([_CYCLES[kind] for kind in KINDS])[:, np.where(of_vector > 1, width, 0)]
        once = np.asarray(kernel.numbers) @ cycles
        folds = kernel.folds * np.where(of_vector > 1, 0, np.array(_FOLD)[width])
        step = (_ROW if kernel.folds else _ROW_ONCE) + (_WAIT * kernel.folds if self._is_measured else 0.0)
        found["rows"] += second * (once + folds + kernel.pointers * _NUMBER + step / header["rows"])
        if self.nest.parts > 1:  # one thread combines the results of the parts in order
            found["rows"] += kernel.folds * self.nest.rows * _LATENCY / self.hardware.clock
        found["launch"] += np.where(tasks > 1, self.hardware.launch_overhead + self._claims(tasks, threads), 0.0)
        found["cache"], found["memory"] = np.zeros((2, len(width)))
        for some in np.unique(threads):
            here = threads == some
            part = {name: values[here] for name, values in header.items()}
            found["cache"][here], found["memory"][here] = self._bytes(kernel, part, rows[here], int(some), footprint)
        fences = _FENCE * (header["streaming"] == 1) * any(one.outputs for one in kernel.passes)
        found["memory"] += fences * np.ceil(tasks / threads)
        return found

    def _claims(self, tasks: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Return the seconds [B] that one thread spends on claiming batches of tasks from a counter that threads share.

        It is 0 on machines whose stores were not measured.
        """
        batches = -(-tasks // np.maximum(tasks // (_BATCHES * threads), 1))
        return np.where(self._is_measured, _CLAIM * -(-batches // threads), 0.0)

    def _shares(self, header: Header) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Divide the rows into tasks for threads.

        Return (rows of the busiest thread, number of tasks, number of threads with tasks), int64 [B] each.
        """
        of_task = header["rows"] * self._across(header) * header["loop"]
        tasks = -(-self.nest.rows // of_task)
        threads = np.minimum(tasks, self.hardware.units)
        return np.minimum(-(-tasks // threads) * of_task, self.nest.rows), tasks, threads

    def _pass(self, one: PassProfile, header: Header, width: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the cycles per vector of one pass over the columns, in three parts of [B].

        The parts are (instructions, waits for dependent sums, register spills). `width` [B] is the index of the vector width.
        """
        cost = np.array([_CYCLES[kind] for kind in KINDS])[:, width]
        exponentials = 1.0 + 1.0 / header["tile"]  # of an online sum: one per vector, and one per step for the sum so far
        online = one.online * (exponentials * cost[KINDS.index("exp")] + 2 * cost[KINDS.index("simple")])
        work = np.asarray(one.counts) @ cost + online + 0.5 * one.reductions
        split, stores = self._split(header), one.outputs + one.spills
        moves = _LOAD * (one.inputs + one.again) * (1.0 + np.maximum(split, self._begin(header))) + _STORE * stores
        moves += (_KEPT if self._is_measured else (_LOAD + _STORE) / 2) * one.scratch
        moves += _ALONE * stores * split * self._alone(header)
        apart = self._across(header) == 1
        moves += apart * (one.gathers * _GATHER * header["vector"] + sum(self._turned(stride, header) for stride in one.turned))
        side = header["rows"] * header["tile"]
        busy = np.maximum(work, moves) + _STEP / side
        chain = np.maximum(0.0, _LATENCY * (one.reductions > 0) / side - busy)
        constants = 8 * (one.counts[KINDS.index("exp")] + one.online + one.counts[KINDS.index("fraction")] > 0)
        short = np.maximum(0, one.live * side + constants - self.hardware.vector_registers)
        return busy, chain, short / side

    def _across(self, header: Header) -> np.ndarray:
        """Return the number of rows [B] of a vector (`parts.rows_of`)."""
        return rows_of(self.nest, header["vector"])

    def _split(self, header: Header) -> np.ndarray:
        """Return the fraction [B] of vectors that cross two cache lines; 0 if rows are whole cache lines.

        Other rows begin anywhere in a line.
        """
        return (header["vector"] - 1) / _LINE * (self.nest.columns % _LINE > 0) * (self._across(header) == 1)

    def _begin(self, header: Header) -> np.ndarray:
        return np.where(self._is_measured, np.array(_BEGUN)[np.searchsorted(_WIDTHS, header["vector"])], 0.0)

    def _alone(self, header: Header) -> np.ndarray:
        """Return the fraction [B] of stored vectors whose left neighbour was not stored just before.

        With several interleaved rows, this is the first vector of each tile; with a single row, no vector.
        """
        tile = np.where(header["tile"] * header["vector"] <= self.nest.columns, header["tile"], 1)
        return (header["rows"] > 1) / tile

    def _turned(self, stride: int, header: Header) -> np.ndarray:
        """Return the cycles [B] per vector to load a block of rows and transpose it in registers.

        The cycles are those of short loads, joins and shuffles, one per cycle. `stride` is the distance of columns in memory.
        Contiguous blocks are loaded directly. The elements of a single row are gathered one by one.
        """
        block = np.minimum(np.gcd(self.nest.row_extents[-1], header["rows"]), header["vector"])
        pieces = header["vector"] / block
        joined = np.where(stride == block, 0.0, _LOAD * pieces + pieces - 1)
        return np.where(block > 1, joined + np.log2(block), _GATHER * header["vector"])

    def _bytes(
        self, kernel: KernelProfile, header: Header, rows: np.ndarray, threads: int, footprint: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds [B] of a kernel's memory accesses, in two parts.

        The parts are (repeated reads from caches, traffic with the memory level that holds the tensors).
        """
        row = self.nest.item_bytes * self.nest.columns
        again = float(sum(one.again + one.scratch for one in kernel.passes) * row)
        step = header["rows"] * self._across(header) * row * kernel.rows_touched
        cache = np.zeros(len(step))
        inside = 0
        for level in self.hardware.memory[1:]:
            here = (step > inside) & (step <= level.capacity) if level is not self.hardware.memory[-1] else step > inside
            rate = level.bandwidth / self.hardware.units
            cache = np.where(here & (level.name != "l1"), rows * again / rate, cache)
            inside = level.capacity
        home = self._home(footprint, threads)
        share = threads / self.hardware.units
        rates = share / home.pace
        read = sum(one.inputs for one in kernel.passes) * row
        written, kept = sum(one.outputs for one in kernel.passes) * row, sum(one.spills for one in kernel.passes) * row
        plain = home.stored * written / rates
        streams, whole = header["streaming"] == 1, self.nest.columns % _LINE == 0
        torn = self._partial(kernel, header) / threads
        torn += 0.0 if whole else _TORN * sum(one.outputs for one in kernel.passes) / threads
        past = (written / (home.streamed * share) if whole else plain) + torn
        stored = np.where(streams, past, plain) + home.stored * kept / rates
        slower = _BESIDE * (header["rows"] - 1) + _ACROSS * self._begin(header) if self._is_measured else 0.0
        side, of_vector = header["rows"] * header["tile"], self._across(header)
        slower = np.where(of_vector > 1, _APART * _LINE / (side * of_vector), slower)
        return cache, self.nest.rows * (read / rates + stored) * (1.0 + slower)

    @cached_property
    def _is_measured(self) -> bool:
        """Whether rates of stores were measured on the machine, as on the host.

        Only then do the constants `_FULL` to `_ACROSS` apply.

        Machines known by name keep the model with which the shipped policies were trained and certificates of optima were made.
        """
        return self.hardware.has_measured_stores

    def _partial(self, kernel: KernelProfile, header: Header) -> np.ndarray:
        """Return the seconds [B] per row for cache lines that are evicted before they are completely written.

        This happens if a step of rows writes to `_OPEN` or more lines at once.
        """
        outputs = sum(one.outputs for one in kernel.passes)
        open_lines = outputs * header["rows"] * (header["tile"] * header["vector"] < _LINE) * (self._across(header) == 1)
        lines = outputs * self.nest.columns / _LINE
        return np.where(self._is_measured & (open_lines >= _OPEN), lines * _HALF, 0.0)

    def _home(self, footprint: int, threads: int) -> _Home:
        """Return the costs per byte of the memory levels that hold `footprint` bytes between calls, for `threads` threads.

        Accesses to data slightly larger than a level mostly hit it; accesses to data of twice its capacity miss it. Beyond the
        private caches, a line is read before it is stored to, unless copies were measured there.
        """
        pace, stored, beyond = 0.0, 1.0, 1.0
        shares: list[float] = []
        levels = self.hardware.memory[1:]
        for level in levels:
            private = level.name in ("l1", "l2")
            sharing = threads if self._is_measured else self.hardware.units
            capacity = level.capacity * (sharing if private else 1)
            full = _FULL if private and self._is_measured else 1.0
            missed = 0.0 if level is levels[-1] else min(max(footprint / capacity - full, 0.0), 1.0)
            shares.append(beyond * (1.0 - missed))
            pace += shares[-1] / level.bandwidth
            if private:
                stored += shares[-1] * (_WRITTEN if self._is_measured and level.name != "l1" else 0.0)
            else:
                stored += shares[-1] * (level.bandwidth / level.copied - 2.0 if level.copied else 1.0)
            beyond *= missed
        return _Home(pace, stored, _past(levels[int(np.argmax(shares)) :]))


@dataclass(frozen=True)
class _Home:
    """Costs per byte of the memory levels that hold a call's tensors between calls."""

    pace: float
    """Seconds per byte that all cores together read."""
    stored: float
    """Cost of a byte that is stored through the caches, as a multiple of the cost of reading a byte."""
    streamed: float
    """Bytes per second of streaming stores (past the caches) by all cores together."""


def _past(levels: Sequence[MemoryLevel]) -> float:
    """Return the bytes per second of streaming stores (stores past the caches).

    The rate is that of the first of `levels` for which it was measured or, without measurements, the bandwidth of the last level.
    """
    for level in levels:
        if level.streamed:
            return 1.0 / max(1.0 / level.streamed - 1.0 / level.bandwidth, 0.1 / level.bandwidth)
    return levels[-1].bandwidth
