"""The analytic model of row nests on a CPU: seconds of many schedules at once, from bytes by level and instructions by kind.

A kernel takes the time of its arithmetic or of its bytes, the longer one, and a launch. Bytes are exact: those of the slices that
its instructions move. The form is our reconstruction: neither IntelliGen's model nor PowerFusion's is public. Cycles are of
Intel's cores with AVX-512 (Agner Fog's tables for Ice Lake); overlaps were chosen on measured programs. Constants for the host
only were chosen on nine operators on an Intel Xeon and checked on three (`tests/gir/test_gir_ranking.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level
from gensor_gym.gir.profile import KINDS, KernelProfile, PassProfile, Profile, profile_of
from gensor_gym.gir.rules import by_placement
from gensor_gym.gir.schedule import FIELDS, GirSchedule
from gensor_gym.hardware.types import Hardware, MemoryLevel

TERMS = ("launch", "arithmetic", "chains", "rows", "spilling", "cache", "memory")
"""Parts of the latency in seconds: launches; instructions along columns; waiting for sums; work once a row; register spills.

Repeated reads from caches; traffic of the tensors with their memory level.
"""
_WIDTHS = FIELDS[0].values
_CYCLES = {
    "simple": (0.5, 0.5, 0.5, 0.5), "divide": (3, 3, 5, 10), "root": (6, 6, 11, 22), "exp": (12, 7.5, 7.5, 7.5),
    "fraction": (30, 11, 13, 18), "log": (12, 48, 96, 192),
}  # fmt: skip
"""Cycles of a scalar function on a vector of each width, one after another; of an exponential 15 instructions, two a cycle."""
_LOAD, _STORE, _LATENCY, _STEP, _FOLD, _NUMBER, _GATHER = 0.5, 1.0, 4.0, 1.5, (1, 8, 12, 16), 1.0, 1.0
_ROW, _ROW_ONCE = 12.0, 3.0
"""Cycles of a step of rows besides its passes, and of a step that ends with its columns, which overlaps the next one."""
_ALONE = 4.0
"""Extra cycles of a store across two cache lines between other stores: an adjacent store would fill the line."""
_TORN = 70e-9
"""Seconds of a row's end in a line that is stored past the caches in part."""
_FENCE = 100e-9
"""Seconds in which a task waits at its end for its stores past the caches."""
_LINE = 16
"""Elements of a line of the cache."""
_OVERLAP = 0.3
"""Share of the smaller of arithmetic and bytes that is not hidden behind the larger."""

_FULL = 0.75
"""Share of the cores' own caches above which a call's bytes do not all stay there, because pages are scattered."""
_WRITTEN = 1.0
"""Bytes that could be read while one is stored in the second cache, beyond one: its line is read before."""
_OPEN, _HALF = 4, 20e-9
"""Lines that a step stores partially past the caches from which on they leave incomplete, and seconds of each then."""
_BEGUN = (0.0, 0.0, 0.5, 1.0)
"""Share of the loads of each width that lie across two lines: NumPy's arrays begin a quarter of a line past one."""
_KEPT, _WAIT = 1.5, 30.0
"""Cycles of a load or store of a row's buffer, and of waiting for a reduction at a step's end."""
_CLAIM, _BATCHES = 20e-9, 16
"""Seconds in which a thread takes one batch of tasks, and batches of its run (`codegen/runtime/runtime.c`)."""
_BESIDE, _ACROSS = 0.03, 0.2
"""So much longer bytes take for every further row of a step, and where loads lie across two lines."""

Header = dict[str, np.ndarray]


@dataclass(frozen=True)
class GirModel:
    """The model of one nest on one machine."""

    nest: RowNest
    hardware: Hardware

    @cached_property
    def _profiles(self) -> dict[tuple[Level, ...], Profile]:
        return {}

    def profile(self, placement: tuple[Level, ...]) -> Profile:
        """The profile of a placement, made once."""
        if placement not in self._profiles:
            self._profiles[placement] = profile_of(self.nest, placement)
        return self._profiles[placement]

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of every term of rows int32 [B, ROW], float64 [B, 1 + len(TERMS)], their total first."""
        found = np.zeros((len(rows), 1 + len(TERMS)))
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            found[chosen] = self._terms(self.profile(placement), GirSchedule.columns(rows[chosen]))
        return found

    def _terms(self, profile: Profile, header: Header) -> np.ndarray:
        """Terms of one placement under many headers."""
        total = np.zeros((len(header["rows"]), 1 + len(TERMS)))
        footprint = self.nest.graph.compulsory_bytes + 4 * profile.spilled
        for kernel in profile.kernels:
            parts = self._kernel(kernel, header, footprint)
            arithmetic = parts["arithmetic"] + parts["chains"] + parts["rows"] + parts["spilling"]
            moved = parts["cache"] + parts["memory"]
            total[:, 0] += parts["launch"] + np.maximum(arithmetic, moved) + _OVERLAP * np.minimum(arithmetic, moved)
            for place, name in enumerate(TERMS, 1):
                total[:, place] += parts[name]
        return total

    def _kernel(self, kernel: KernelProfile, header: Header, footprint: int) -> dict[str, np.ndarray]:
        """Seconds of each term of one kernel, along the slowest thread."""
        rows, tasks, threads = self._shares(header)
        width = np.searchsorted(_WIDTHS, header["vector"])
        vectors = -(-self.nest.columns // header["vector"])
        second = rows / self.hardware.clock
        found = {name: np.zeros(len(width)) for name in TERMS}
        for one in kernel.passes:
            arithmetic, chain, spilled = self._pass(one, header, width)
            found["arithmetic"] += second * vectors * arithmetic
            found["chains"] += second * vectors * chain
            found["spilling"] += second * vectors * spilled
        once = float(np.dot(kernel.numbers, [_CYCLES[kind][0] for kind in KINDS]))
        folds = kernel.folds * np.array(_FOLD)[width]
        step = (_ROW if kernel.folds else _ROW_ONCE) + (_WAIT * kernel.folds if self._is_measured else 0.0)
        found["rows"] += second * (once + folds + kernel.pointers * _NUMBER + step / header["rows"])
        if self.nest.parts > 1:  # one thread joins what all have reduced, number after number
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
        """Seconds in which a thread takes batches of tasks from its own run, and then from others'."""
        batches = -(-tasks // np.maximum(tasks // (_BATCHES * threads), 1))
        return np.where(self._is_measured, _CLAIM * -(-batches // threads), 0.0)

    def _shares(self, header: Header) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows of the thread that has most, tasks, threads that have some)."""
        of_task = header["rows"] * header["loop"]
        tasks = -(-self.nest.rows // of_task)
        threads = np.minimum(tasks, self.hardware.units)
        return np.minimum(-(-tasks // threads) * of_task, self.nest.rows), tasks, threads

    def _pass(self, one: PassProfile, header: Header, width: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cycles of a vector: instructions, waiting, moves of registers that do not suffice."""
        cost = np.array([_CYCLES[kind] for kind in KINDS])[:, width]
        exponentials = 1.0 + 1.0 / header["tile"]  # of an online sum: of the vectors of a step, and of what was added up before
        online = one.online * (exponentials * cost[KINDS.index("exp")] + 2 * cost[KINDS.index("simple")])
        work = np.asarray(one.counts) @ cost + online + 0.5 * one.reductions
        split, stores = self._split(header), one.outputs + one.spills
        moves = _LOAD * (one.inputs + one.again) * (1.0 + np.maximum(split, self._begin(header))) + _STORE * stores
        moves += (_KEPT if self._is_measured else (_LOAD + _STORE) / 2) * one.scratch
        moves += _ALONE * stores * split * self._alone(header)
        moves += one.gathers * _GATHER * header["vector"]
        moves += sum(self._turned(stride, header) for stride in one.turned)
        side = header["rows"] * header["tile"]
        busy = np.maximum(work, moves) + _STEP / side
        chain = np.maximum(0.0, _LATENCY * (one.reductions > 0) / side - busy)
        constants = 8 * (one.counts[KINDS.index("exp")] + one.online + one.counts[KINDS.index("fraction")] > 0)
        short = np.maximum(0, one.live * side + constants - self.hardware.vector_registers)
        return busy, chain, short / side

    def _split(self, header: Header) -> np.ndarray:
        """Share of the vectors that lie across two lines of the cache: rows that are no whole lines begin anywhere in one."""
        return (header["vector"] - 1) / _LINE * (self.nest.columns % _LINE > 0)

    def _begin(self, header: Header) -> np.ndarray:
        """Share of the loads across two lines since arrays of NumPy begin a quarter of a line past one."""
        return np.where(self._is_measured, np.array(_BEGUN)[np.searchsorted(_WIDTHS, header["vector"])], 0.0)

    def _alone(self, header: Header) -> np.ndarray:
        """Share of the vectors whose neighbour is not stored next: the first of a row's tile, if rows are stored alternately."""
        tile = np.where(header["tile"] * header["vector"] <= self.nest.columns, header["tile"], 1)
        return (header["rows"] > 1) / tile

    def _turned(self, stride: int, header: Header) -> np.ndarray:
        """Cycles of a vector of a block that is transposed in registers: short loads, joins and shuffles, one a cycle.

        Contiguous blocks are loaded directly; elements of a single row are gathered.
        """
        block = np.minimum(np.gcd(self.nest.row_extents[-1], header["rows"]), header["vector"])
        pieces = header["vector"] / block
        joined = np.where(stride == block, 0.0, _LOAD * pieces + pieces - 1)
        return np.where(block > 1, joined + np.log2(block), _GATHER * header["vector"])

    def _bytes(
        self, kernel: KernelProfile, header: Header, rows: np.ndarray, threads: int, footprint: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Seconds for repeated reads, and for traffic with the memory level of the tensors."""
        row = 4 * self.nest.columns
        again = float(sum(one.again + one.scratch for one in kernel.passes) * row)
        step = header["rows"] * row * kernel.rows_touched
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
        return cache, self.nest.rows * (read / rates + stored) * (1.0 + slower)

    @cached_property
    def _is_measured(self) -> bool:
        """Whether stores were measured: on the host. The constants `_FULL` to `_ACROSS` were chosen for it.

        Machines that are known by name keep the model of the policies and certificates.
        """
        return any(level.copied for level in self.hardware.memory)

    def _partial(self, kernel: KernelProfile, header: Header) -> np.ndarray:
        """Seconds of a row for lines that leave half written: a step stores parts of more lines than there are buffers."""
        outputs = sum(one.outputs for one in kernel.passes)
        open_lines = outputs * header["rows"] * (header["tile"] * header["vector"] < _LINE)
        lines = outputs * self.nest.columns / _LINE
        return np.where(self._is_measured & (open_lines >= _OPEN), lines * _HALF, 0.0)

    def _home(self, footprint: int, threads: int) -> _Home:
        """Memory level of `footprint` bytes that `threads` threads touch repeatedly.

        Data slightly larger than a level still mostly hit it; data of twice its capacity miss it. Beyond the cores' own caches a
        line is read before it is stored to, unless copies were measured there.
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
    """Where most of a call's data lie between calls."""

    pace: float
    """Seconds in which all cores together read a byte."""
    stored: float
    """Bytes that could be read while one is stored by way of the caches."""
    streamed: float
    """Bytes a second that all cores store past the caches."""


def _past(levels: Sequence[MemoryLevel]) -> float:
    """Bytes a second stored past the caches for data read in the first of those levels with a measurement."""
    for level in levels:
        if level.streamed:
            return 1.0 / max(1.0 / level.streamed - 1.0 / level.bandwidth, 0.1 / level.bandwidth)
    return levels[-1].bandwidth
