"""The analytic model of chains on a GPU: seconds of many schedules at once.

A block's step is a tile of keys: two products on tensor cores, and between them the nest's instructions on the scores, among them
exponentials at the rate of the special-function units. Warps of a multiprocessor's partition overlap one another's products and
nests. A step waits for shuffles, a barrier, and the part of a load that the stages do not hide. The time is the longer of two,
the steps of the slowest multiprocessor and the traffic, plus a share of the shorter, plus a launch. The form is our
reconstruction after FlashAttention-2 (arXiv 2307.08691, section 3) and was not checked by measurements; rates and latencies are
the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.room import HEIGHT, ITEM, WARP, Room
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.chains.gpu.stream import Stream
from gensor_gym.cost.roofline import bandwidth_of
from gensor_gym.gir.gpu.model import INSTRUCTIONS
from gensor_gym.gir.nest import Access
from gensor_gym.gir.profile import counts_of
from gensor_gym.hardware.occupancy import PARTITIONS
from gensor_gym.hardware.types import Hardware

TERMS = ("launch", "products", "nest", "staging", "exposed", "memory")
"""Parts of the latency in seconds: launch, both products, instructions between them, shared memory, waits, and traffic."""
_SPECIAL, _BANK = 16, 128
"""Exponentials (CUDA C++ Programming Guide, arithmetic throughput from 8.0 on) and bytes of shared memory, per clock and unit."""
_LOAD, _SCORE, _POWER, _ROW, _COPY_BYTES = 4.0, 2.5, 5.0, 30.0, 16
"""Instructions of a load or copy with its address, a score in addition to its cells, a power, and a step: our estimates.

A power is a maximum, a multiply-add, the function itself and a sum.
"""
_TURN, _BEGIN = 200.0, 1500.0
"""Cycles until a step's shuffles, exponentials and barrier are done, and of a block in addition to its steps: our estimates."""
_HIDDEN = 0.25
"""Share of the shorter of computation and traffic that one stage does not hide, as in the model of products; halved by each."""

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class GpuChainModel:
    """The limits and the analytic model of one chain on one GPU."""

    chain: Chain
    hardware: Hardware

    @cached_property
    def room(self) -> Room:
        """Resources of blocks."""
        return Room(self.chain, self.hardware)

    @cached_property
    def stream(self) -> Stream:
        """The passes along tiles of keys."""
        return Stream.of(self.chain)

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of rows int32 [B, ROW] is legal, bool [B]: a block fits the machine, and no value is needlessly large."""
        header, chain = GpuChainSchedule.columns(rows), self.chain
        below = GpuChainSchedule.next_below
        fitting = self.room.fits(header)
        for name, beside in (("warps", "heights"), ("heights", "warps")):
            smaller = below(name, header[name]) * header[beside] * HEIGHT
            fitting &= (header[name] == 1) | (smaller < chain.rows)
        least = GpuChainSchedule.known["keys"][0]
        fitting &= (header["keys"] == least) | (below("keys", header["keys"]) < chain.columns)
        return fitting & (header["stages"] <= self._tiles(header))

    def _tiles(self, header: Columns) -> np.ndarray:
        found: np.ndarray = -(-self.chain.columns // header["keys"])
        return found

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Seconds, float64 [B, 1 + len(TERMS)], of rows int32 [B, ROW]: the total, then each term."""
        header, chain, hw = GpuChainSchedule.columns(rows), self.chain, self.hardware
        steps = self.stream.passes * self._tiles(header)
        blocks = chain.elements * -(-chain.rows // self.room.rows(header))
        resident = np.minimum(self.room.resident(header), -(-blocks // hw.units))
        parts = self._step(header)
        together = np.maximum(1.0, resident * header["warps"] / PARTITIONS)
        longest = np.maximum.reduce(list(parts.values()))
        busy = longest + (sum(parts.values()) - longest) / together
        wait = _TURN + self._late(header, busy)
        rounds, rest = np.divmod(blocks, hw.units * resident)
        last = -(-rest // hw.units)
        cycles = rounds * self._round(steps, busy, wait, resident) + np.where(last > 0, self._round(steps, busy, wait, last), 0)
        idle = np.minimum(1.0, resident * header["warps"] / PARTITIONS)
        cycles = cycles / idle + (rounds + (last > 0)) * _BEGIN
        compute, memory = cycles / hw.clock, self._memory(header, blocks)
        shorter = np.minimum(compute, memory) * _HIDDEN / 2.0 ** (header["stages"] - 1)
        total = hw.launch_overhead + np.maximum(compute, memory) + shorter
        share = -(-blocks // hw.units) * steps / hw.clock / idle
        spent = [np.full(len(rows), hw.launch_overhead), *(share * parts[name] for name in TERMS[1:4])]
        exposed = np.maximum(0.0, compute - share * longest)
        return np.stack([total, *spent, exposed, memory], axis=1)

    @staticmethod
    def _round(steps: np.ndarray, busy: np.ndarray, wait: np.ndarray, resident: np.ndarray) -> np.ndarray:
        """Cycles in which a multiprocessor runs `resident` blocks at a time."""
        found: np.ndarray = steps * np.maximum(resident * busy, busy + wait)
        return found

    def _step(self, header: Columns) -> Columns:
        """Cycles [B] of one step of a block that has a multiprocessor to itself, by the part of the multiprocessor."""
        hw, room = self.hardware, self.room
        rows, keys = self.room.rows(header), header["keys"]
        scores = rows * keys
        rate = hw.tensor_rate(self.chain.dtype, 1) / hw.units / hw.clock
        products = 2.0 * scores * (room.inner + room.out / self.stream.passes) / rate
        instructions, powers = self._of_score
        issued = scores * instructions / WARP + header["warps"] * self._beside(header)
        nest = np.maximum(issued / PARTITIONS, scores * powers / _SPECIAL)
        left = np.where(header["hold"] == 1, 0, ITEM * rows * room.inner)
        staging = (room.buffer_bytes(header) * (1 + header["warps"]) + left) / _BANK
        return {"products": products, "nest": nest, "staging": staging}

    def _beside(self, header: Columns) -> np.ndarray:
        """Instructions [B] of a warp in a step that do not depend on its number of scores: copies, folds, rescaling of sums."""
        copies = self.room.buffer_bytes(header) / _COPY_BYTES / (header["warps"] * WARP)
        rescaled = self.room.out // 2 if self.stream.running is not None else 0
        found: np.ndarray = _LOAD * copies + header["heights"] * (rescaled + _ROW) + _ROW
        return found

    @cached_property
    def _of_score(self) -> tuple[float, float]:
        """(instructions, exponentials) of one score in a pass, on average over all passes."""
        instructions = powers = 0.0
        for place in range(self.stream.passes):
            instructions += _SCORE
            for cell in self.stream.wide(place):
                if isinstance(cell.made, Access):
                    instructions += _LOAD * (cell.made.tensor != self.chain.scores)
                    continue
                counts = counts_of(cell.made)  # type: ignore[arg-type]
                instructions += sum(INSTRUCTIONS[kind] * count for kind, count in counts.items())
                powers += counts["exp"] + counts["fraction"]
            instructions += 2.0 * len(self.stream.reductions(place))
        if self.stream.running is not None:
            instructions += _POWER
            powers += 1.0
        return instructions / self.stream.passes, powers / self.stream.passes

    def _late(self, header: Columns, busy: np.ndarray) -> np.ndarray:
        """Cycles [B] that a step waits for its tile from the second-level cache, beyond those that earlier steps hide."""
        latency = self.hardware.level("l2").latency * self.hardware.clock
        return np.maximum(0.0, latency - (header["stages"] - 1) * busy)

    def _memory(self, header: Columns, blocks: np.ndarray) -> np.ndarray:
        """Seconds of the traffic [B]: every block reads all keys, values and its rows between the products."""
        one, other = self.chain.products
        read = self.room.rows(header) * self.chain.columns * 4 * self._loads
        tiles = ITEM * self.chain.columns * (self.stream.passes * one.inner + other.columns)
        cache = blocks * (tiles + read) / self.hardware.level("l2").bandwidth
        whole = self.chain.graph.compulsory_bytes
        found: np.ndarray = np.maximum(cache, whole / bandwidth_of(whole, self.hardware))
        return found

    @property
    def _loads(self) -> int:
        """Number of loads for one score in all passes."""
        cells = [cell for place in range(self.stream.passes) for cell in self.stream.wide(place)]
        return sum(isinstance(cell.made, Access) and cell.made.tensor != self.chain.scores for cell in cells)
