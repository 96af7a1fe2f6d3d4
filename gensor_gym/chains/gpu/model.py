"""The analytic model of chains (attention) on a GPU: predicted seconds of many schedules at once.

A block's step processes one tile of keys: two products on tensor cores, and between them the row nest's instructions on the
scores. Exponentials run at the rate of the special-function units. With mma.sync, products of one warp overlap the nest of
another. A step waits for shuffles, a barrier, and the part of a load that the stages do not hide. The time is the longer of
computation (on the slowest multiprocessor) and traffic, plus a share of the shorter, plus a launch. The form is our
reconstruction after FlashAttention-2 (arXiv 2307.08691, section 3) and was not checked by measurements. Rates and latencies are
the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.legal import has_wgmma
from gensor_gym.chains.gpu.ring import GROUP
from gensor_gym.chains.gpu.room import Room
from gensor_gym.chains.gpu.schedule import MMA_MOST, GpuChainSchedule
from gensor_gym.chains.gpu.stream import Stream
from gensor_gym.chains.gpu.tiles import HEIGHT, ITEM, WARP
from gensor_gym.cost.gpu.tensor import narrow_share
from gensor_gym.cost.roofline import bandwidth_of
from gensor_gym.gir.gpu.model import INSTRUCTIONS
from gensor_gym.gir.nest import Access
from gensor_gym.gir.profile import counts_of
from gensor_gym.hardware.occupancy import PARTITIONS
from gensor_gym.hardware.types import Hardware

TERMS = ("launch", "products", "nest", "staging", "exposed", "memory")
"""Names of the terms of the predicted time, in seconds.

In order: launch, both products, instructions of the row nest, shared memory, waits, and memory traffic.
"""
_SPECIAL, _BANK = 16, 128
"""Exponentials and bytes of shared memory that a multiprocessor processes in one clock.

Source of the exponentials: CUDA C++ Programming Guide, arithmetic throughput from 8.0 on.
"""
_LOAD, _SCORE, _POWER, _ROW, _COPY_BYTES = 4.0, 2.5, 5.0, 30.0, 16
"""Estimates for the model of a block's time.

Instructions of a load with its address, of a score besides the nest's functions, of an exponential and of a step; then bytes of a
copy. An exponential with a running maximum takes a maximum, a multiply-add, the function itself and a sum.
"""
_TURN, _BEGIN = 200.0, 1500.0
"""Cycles in which a step waits for shuffles, exponentials and barrier; cycles of a block besides its steps. Our estimates."""
_HIDDEN = 0.25
"""Share of the shorter of computation and traffic that one stage does not hide behind the longer.

Each further stage halves it.
"""

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class GpuChainModel:
    """Limits and analytic model of one chain of two products (attention) on one GPU."""

    chain: Chain
    hardware: Hardware

    @cached_property
    def room(self) -> Room:
        """Shared memory, registers and threads of the chain's blocks."""
        return Room(self.chain, self.hardware)

    @cached_property
    def stream(self) -> Stream:
        """Passes over tiles of keys in which the work between the products is done."""
        return Stream.of(self.chain)

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each schedule of int32 [B, ROW] is legal, bool [B].

        A block must fit the machine, and no field may be needlessly large.
        """
        header, chain = GpuChainSchedule.columns(rows), self.chain
        below = GpuChainSchedule.next_below
        wide = header["tensor"] == 2
        fitting = self.room.fits(header) & np.where(wide, has_wgmma(chain, self.hardware), header["overlap"] == 0)
        for name, most in MMA_MOST.items():
            fitting &= wide | (header[name] <= most)
        for name, beside in (("warps", "heights"), ("heights", "warps")):
            smaller = below(name, header[name]) * header[beside] * HEIGHT
            fitting &= (header[name] == 1) | (smaller < chain.rows)
        least = GpuChainSchedule.known["keys"][0]
        fitting &= (header["keys"] == least) | (below("keys", header["keys"]) < chain.columns)
        tiles = self._tiles(header)
        overlapped = header["overlap"] > 0
        fitting &= (header["overlap"] < 2) | (header["warps"] > GROUP)
        return fitting & (header["stages"] <= tiles) & (2 * overlapped < tiles)  # NVRTC merges two tiles and spills

    def _tiles(self, header: Columns) -> np.ndarray:
        found: np.ndarray = -(-self.chain.columns // header["keys"])
        return found

    def _seen(self, header: Columns) -> np.ndarray:
        """Return the mean number [B] of tiles of keys that a block needs: those up to the diagonal, if there is one."""
        chain, found = self.chain, self._tiles(header).astype(np.float64)
        if chain.diagonal is None:
            return found
        rows, keys = self.room.rows(header), header["keys"]
        for tall, wide in {*zip(rows.tolist(), keys.tolist(), strict=True)}:
            ends = np.arange(tall, chain.rows + tall, tall) + chain.diagonal
            found[(rows == tall) & (keys == wide)] = np.minimum(-(-ends // wide), -(-chain.columns // wide)).mean()
        return found

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds of schedules int32 [B, ROW].

        Return float64 [B, 1 + len(TERMS)]: the total, then each term of `TERMS`.
        """
        header, chain, hw = GpuChainSchedule.columns(rows), self.chain, self.hardware
        longest_block = -(-min(chain.columns, chain.rows + chain.last_seen) // header["keys"])
        most, steps = (self.stream.passes * count for count in (longest_block, self._seen(header)))
        blocks = chain.elements * -(-chain.rows // self.room.rows(header))
        resident = np.minimum(self.room.resident(header), -(-blocks // hw.units))
        parts = self._step(header)
        longest = np.maximum.reduce(list(parts.values()))
        busy = self._busy(header, parts, longest, resident)
        wait = _TURN + self._late(header, busy)
        rounds, rest = np.divmod(blocks, hw.units * resident)
        last = -(-rest // hw.units)
        cycles = rounds * self._round(steps, busy, wait, resident) + np.where(last > 0, self._round(steps, busy, wait, last), 0)
        cycles = np.maximum(cycles, self._round(most, busy, wait, np.ones(1)))  # the longest block, if blocks differ
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
        """Return the cycles in which a multiprocessor finishes `resident` concurrent blocks of `steps` steps each.

        In each step a block computes for `busy` cycles and waits for `wait` cycles, in which the other blocks can compute.
        """
        found: np.ndarray = steps * np.maximum(resident * busy, busy + wait)
        return found

    @staticmethod
    def _busy(header: Columns, parts: Columns, longest: np.ndarray, resident: np.ndarray) -> np.ndarray:
        """Return the cycles [B] of one step of a block when other blocks run on the same multiprocessor.

        `parts` are the cycles by functional unit, `longest` the largest of them. With mma.sync, warps overlap. With wgmma, a step
        computes products, then the nest: half of the shorter is hidden if a consumer overlaps both, two thirds if consumers also
        take turns. This predicts 517, 610 and 649 TFLOP/s for heads of 128 on an H100; arXiv 2407.08608, section 3, reports 570
        with neither and 640 to 660 with both (quoted from memory).
        """
        together = np.maximum(1.0, resident * header["warps"] / PARTITIONS)
        warps = longest + (sum(parts.values()) - longest) / together
        products = np.maximum(parts["products"], parts["staging"])
        consumers = longest + np.minimum(products, parts["nest"]) / (1 + header["overlap"])
        found: np.ndarray = np.where(header["tensor"] == 2, consumers, warps)
        return found

    def _step(self, header: Columns) -> Columns:
        """Return the cycles [B] of one step of a block that is alone on a multiprocessor, for each functional unit.

        The units are tensor cores (`products`), arithmetic between the products (`nest`) and shared memory (`staging`).
        """
        hw, room = self.hardware, self.room
        rows, keys = self.room.rows(header), header["keys"]
        scores, wide = rows * keys, header["tensor"] == 2
        rate = np.where(wide, *(hw.tensor_rate(self.chain.dtype, kind) / hw.units / hw.clock for kind in (2, 1)))
        narrow = np.where(wide, narrow_share(room.out), 1.0)
        products = 2.0 * scores * (room.inner + room.out / narrow / self.stream.passes) / rate
        instructions, powers = self._of_score
        issued = scores * instructions / WARP + header["warps"] * self._beside(header)
        nest = np.maximum(issued / PARTITIONS, scores * powers / _SPECIAL)
        left = np.where(header["hold"] == 1, 0, ITEM * rows * room.inner)
        readers = np.where(wide, header["warps"] // GROUP, header["warps"])
        staging = (room.buffer_bytes(header) * (1 + readers) + left) / _BANK
        return {"products": products, "nest": nest, "staging": staging}

    def _beside(self, header: Columns) -> np.ndarray:
        """Return the number [B] of a warp's instructions per step that do not depend on its number of scores.

        They are copies, the end of reductions, and the rescaling of sums.
        """
        copies = self.room.buffer_bytes(header) / _COPY_BYTES / (header["warps"] * WARP) * (header["tensor"] == 1)
        rescaled = self.room.out // 2 if self.stream.running is not None else 0
        found: np.ndarray = _LOAD * copies + header["heights"] * (rescaled + _ROW) + _ROW
        return found

    @cached_property
    def _of_score(self) -> tuple[float, float]:
        """(instructions, exponentials) for each score in one pass over the keys, on average over all passes."""
        instructions = powers = 0.0
        for place in range(self.stream.passes):
            instructions += _SCORE
            for cell in self.stream.wide(place):
                if isinstance(cell.made, Access):
                    instructions += _LOAD * self.chain.is_read(cell)
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
        """Return the cycles [B] that a step waits for its tile from the L2 cache.

        Tiles are loaded some stages ahead, so the time of earlier steps is subtracted.
        """
        latency = self.hardware.level("l2").latency * self.hardware.clock
        return np.maximum(0.0, latency - (header["stages"] - 1) * busy)

    def _memory(self, header: Columns, blocks: np.ndarray) -> np.ndarray:
        """Return the seconds [B] of the memory traffic.

        Every block reads all keys and values, and its rows of the tensors that the row nest reads.
        """
        one, other = self.chain.products
        read = self.room.rows(header) * self.chain.columns * 4 * self._loads
        seen = self._seen(header) / self._tiles(header)
        tiles = ITEM * self.chain.columns * (self.stream.passes * one.inner + other.columns) * seen
        cache = blocks * (tiles + read) / self.hardware.level("l2").bandwidth
        whole = self.chain.graph.compulsory_bytes
        found: np.ndarray = np.maximum(cache, whole / bandwidth_of(whole, self.hardware))
        return found

    @property
    def _loads(self) -> int:
        cells = [cell for place in range(self.stream.passes) for cell in self.stream.wide(place)]
        return sum(map(self.chain.is_read, cells))
