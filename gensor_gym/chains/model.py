"""Limits and analytic model of chains of two products (attention) on a CPU, for many schedules at once.

The time is the longer of computation and traffic, plus a share of the shorter, plus a launch. Cycles of both products are counted
by instruction (at most two multiply-adds and two loads a cycle, four cycles between additions to one sum, decoding as in loop
nests), those of the row nest between them by the model of fused operators, and those of copies by element. The form is our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import Chain, Matrix, Product
from gensor_gym.chains.room import LINE, Room, is_copied, pitch_of, placement
from gensor_gym.chains.schedule import ChainSchedule
from gensor_gym.cost.constants import DECODE, constant_values
from gensor_gym.gir.model import GirModel
from gensor_gym.gir.schedule import make_schedule
from gensor_gym.graph.tables.tables import CONSTANT
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import ITEM_BYTES

TERMS = ("launch", "first", "nest", "second", "copies", "memory")
"""Names of the terms of the predicted time, in seconds.

In order: launch, first product, row nest, second product, copies, and traffic of the tensors.
"""
_LATENCY, _STORE, _CALL, _STEP, _NEAR, _FAR, _COPY, _TURN = 4.0, 1.0, 12.0, 1.0, 24.0, 26.0, 0.12, 0.15
"""Constants of the analytic model.

In order: cycles of a multiply-add's latency, of a store and of a register tile's call; instructions of a sum's step in addition
to its multiply-adds and loads; bytes per cycle from the second-level cache; cycles until a row arrives from beyond it; cycles to
copy and to transpose an element.
"""
_WAY = 4096
"""Distance in bytes between addresses that map to the same set of the first-level cache."""
_PIPES = 2
"""Most multiply-adds of vectors that a core begins in a cycle."""
_STAY, _GONE = 1 / 8, 3 / 8
"""Shares of the last cache: right operands of at most the first stay there from block to block, beyond the second none does.

Other cores use the rest. Measured on a Zen 4 with 32 MB of it and operands of 1 to 33 MB (`results/plans/README.md`).
"""
_SPARE = 1
"""Number of vector registers for the broadcast element of the left operand.

The tile and a row of the right operand have registers of their own.
"""

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class ChainModel:
    """Limits and analytic model of one chain of two products (attention) on one CPU."""

    chain: Chain
    hardware: Hardware

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each schedule of int32 [B, ROW] is legal, bool [B].

        Registers and caches must suffice, and no field may be needlessly large.
        """
        header, chain = ChainSchedule.columns(rows), self.chain
        fitting = header["vector"] <= self.hardware.lanes
        for name, product in zip(("first", "second"), chain.products, strict=True):
            vectors = header[name]
            fitting &= header["height"] * vectors + vectors + _SPARE <= self.hardware.vector_registers
            fitting &= (vectors == 1) | ((vectors - 1) * header["vector"] < product.columns)
        fitting &= (header["height"] == 1) | (header["height"] <= header["block"])
        fitting &= (header["block"] == 1) | (ChainSchedule.next_below("block", header["block"]) < chain.rows)
        fitting &= (header["loop"] == 1) | (ChainSchedule.next_below("loop", header["loop"]) * header["block"] < chain.rows)
        fitting &= (header["depth"] == 0) | (header["depth"] < max(one.inner for one in chain.products))
        fitting &= (header["rows"] <= header["block"]) & ((header["copy"] == 0) | (not self._always))
        wide = header["tile"] * header["vector"]
        fitting &= (header["tile"] == 1) | (wide // 2 < chain.columns)
        if chain.middle is None:
            fitting &= (header["rows"] == 1) & (header["tile"] == 1)
        return fitting & (4 * self._unit(header) <= self.hardware.level("l2").capacity)

    @property
    def _always(self) -> bool:
        """Whether every schedule copies the right operands of both products, because their rows are not contiguous."""
        return is_copied(self.chain.first, False) and is_copied(self.chain.second, False)

    def _unit(self, header: Columns) -> np.ndarray:
        """Return an upper bound [B] on the number of elements of a thread's scratch memory (`Room.unit`)."""
        found = header["block"] * pitch_of(self.chain) + header["rows"] * self._kept
        for matrix, product, name in self._rights:
            width = header[name] * header["vector"]
            whole = product.inner * (-(-product.columns // width) * width) + LINE
            found = found + np.where(_copied(matrix, header), whole, 0)
        return found + LINE

    @property
    def _rights(self) -> tuple[tuple[Matrix, Product, str], ...]:
        chain = self.chain
        return ((chain.first, chain.products[0], "first"), (chain.second, chain.products[1], "second"))

    @cached_property
    def _kept(self) -> int:
        """Number of elements of scratch memory in which the row nest keeps values for one row."""
        return Room(self.chain, 0, (1, 1), (False, False), 1).unit

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds of schedules int32 [B, ROW].

        Return float64 [B, 1 + len(TERMS)]: the total, then each term of `TERMS`.
        """
        header, chain = ChainSchedule.columns(rows), self.chain
        block = np.minimum(header["block"], chain.rows)
        of_task = np.minimum(block * header["loop"], chain.rows)
        tasks = chain.elements * -(-chain.rows // of_task)
        threads = np.minimum(tasks, self.hardware.units)
        share = -(-tasks // threads) * of_task / self.hardware.clock
        found = {name: np.zeros(len(rows)) for name in TERMS}
        seen = self._seen(block, header["tile"] * header["vector"])
        for (matrix, product, name), stores in zip(self._rights, (1.0, 2.0), strict=True):
            found[name] = seen * share * self._product(header, matrix, product, name, stores)
            pace = _TURN if matrix.row == 1 else _COPY
            copied = np.where(_copied(matrix, header), product.inner * product.columns * pace, 0.0)
            found["copies"] += share / of_task * copied
        found["nest"] = seen * share * self._nest(header)
        found["launch"] = np.where(tasks > 1, self.hardware.launch_overhead, 0.0)
        found["memory"] = np.full(len(rows), chain.graph.compulsory_bytes / self.hardware.memory[-1].bandwidth)
        busy = sum(found[name] for name in ("first", "second", "nest", "copies"))
        whole = found["launch"] + np.maximum(busy, found["memory"]) + 0.3 * np.minimum(busy, found["memory"])
        return np.stack([whole, *(found[name] for name in TERMS)], axis=1)

    def _seen(self, block: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Return the share [B] of the scores that blocks of `block` rows compute, in steps of `step` columns of the nest."""
        chain, found = self.chain, np.ones(len(block))
        if chain.diagonal is None:
            return found
        for rows, wide in {*zip(block.tolist(), step.tolist(), strict=True)}:
            ends = np.minimum(np.arange(rows, chain.rows + rows, rows), chain.rows)
            seen = np.minimum(chain.columns, -(-(ends + chain.diagonal) // wide) * wide)
            found[(block == rows) & (step == wide)] = np.diff(ends, prepend=0) @ seen / (chain.rows * chain.columns)
        return found

    def _product(self, header: Columns, matrix: Matrix, product: Product, name: str, stores: float) -> np.ndarray:
        """Return the cycles [B] in which one row of a product is computed.

        `matrix` is the product's right operand, `name` the field with the width of its register tile, `stores` the accesses to C
        per vector.
        """
        height, vectors, width = header["height"], header[name], header["vector"]
        depth = np.where((header["depth"] == 0) | (header["depth"] > product.inner), product.inner, header["depth"])
        side = height * vectors
        pipes = np.minimum(_PIPES, self._lanes / width)
        issue = np.maximum((height + vectors) / 2, (side + height + vectors + _STEP) / self._decoded)
        step = np.maximum(np.maximum(side / pipes, issue), _LATENCY)
        far = self._waiting(header, matrix, depth, 4 * vectors * width)
        parts = -(-product.inner // depth)
        stored = side * _STORE * stores * (2 * parts - 1)
        cycles = product.inner * np.maximum(step, far) + stored + _CALL * parts
        tiles = product.columns / width / vectors
        last = -(-product.columns // (width * vectors)) - tiles  # empty share of the last tile, counted half
        blocks = -(-header["block"] // height) * height / header["block"]
        fresh = np.where(_copied(matrix, header), 0.0, product.inner * product.columns * self._far_cycles)
        return cycles * (tiles + 0.5 * last) / height * blocks + fresh / np.minimum(header["block"], self.chain.rows)

    @cached_property
    def _lanes(self) -> float:
        """Number of lanes whose multiply-adds a core begins in a cycle: 32 on Cascade Lake, 16 on Zen 4."""
        return self.hardware.peak_of("float32") / (2 * self.hardware.clock * self.hardware.units)

    @cached_property
    def _decoded(self) -> float:
        """Instructions that a core decodes in a cycle, as in the model of loop nests."""
        return constant_values(self.hardware.name)[DECODE - CONSTANT]

    @cached_property
    def _far_cycles(self) -> float:
        """Cycles that a block waits for an element of a right operand that left the last cache since the block before.

        Every block reads both right operands once. The first register tile waits for them at the rate of DRAM, because rows are
        pages apart, which no prefetcher follows. With 19 MB on a Zen 4, 16 blocks take 24 ms, and 4 blocks 14 ms.
        """
        item = ITEM_BYTES[self.chain.dtype]
        held = item * sum(product.inner * product.columns for product in self.chain.products)
        gone = (held / self.hardware.memory[-2].capacity - _STAY) / (_GONE - _STAY)
        rate = self.hardware.memory[-1].bandwidth / self.hardware.units / self.hardware.clock
        return min(1.0, max(0.0, gone)) * item / rate

    def _waiting(self, header: Columns, matrix: Matrix, depth: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the cycles [B] that one step of a sum waits for its row of `row` bytes of the right operand.

        `depth` rows are used again and again. Rows whose distance is a multiple of a large power of two map to few sets of a
        cache, so that only a share of it is usable and rows evict one another. With a cache of 2 MB, 384 rows that are 4 KB apart
        take 5.0 ms, and copied rows 3.7 ms.
        """
        apart = math.gcd(4 * matrix.row, _WAY) or _WAY
        share = np.where(_copied(matrix, header), 1.0, np.minimum(1.0, row / apart))
        near = depth * row > 0.75 * share * self.hardware.level("l1").capacity
        far = depth * row >= 0.75 * share * self.hardware.level("l2").capacity
        found: np.ndarray = np.where(far, _FAR, np.where(near, row / _NEAR, 0.0))
        return found

    def _nest(self, header: Columns) -> np.ndarray:
        """Return the cycles [B] for one row of the row nest between the products.

        They are those of the model of fused operators, for rows in a near cache.
        """
        found = np.zeros(len(header["rows"]))
        if self.chain.middle is None:
            return found
        for key in {*zip(*(header[name].tolist() for name in ("vector", "rows", "tile")), strict=True)}:
            chosen = np.all([header[name] == value for name, value in zip(("vector", "rows", "tile"), key, strict=True)], axis=0)
            found[chosen] = self._cycles_of(key)
        return found

    @cached_property
    def _known(self) -> dict[tuple[int, int, int], float]:
        return {}

    def _cycles_of(self, key: tuple[int, int, int]) -> float:
        """Return the cycles of the row nest between the products for one row; `key` is (vector, rows, tile) of its schedule."""
        if key not in self._known:
            nest = self.chain.middle
            assert nest is not None
            schedule = make_schedule(dict(zip(("vector", "rows", "tile"), key, strict=True)), placement(nest))
            terms = GirModel(nest, self.hardware).terms(schedule.row[None])[0]
            busy = float(sum(terms[2:6]))  # arithmetic, chains, rows, spilling
            share = math.ceil(nest.rows / self.hardware.units)
            self._known[key] = busy * self.hardware.clock / share
        return self._known[key]


def _copied(matrix: Matrix, header: Columns) -> np.ndarray:
    return (header["copy"] == 1) | is_copied(matrix, False)
