"""Limits and analytic model of convolutions by Winograd's algorithm on a CPU, for many schedules at once.

The time is that of products and transformations, plus traffic of the tensors and a launch. Cycles of products are counted by
instruction, as in the model of chains. The form is our own; its constants are of one core of an Intel Xeon with AVX-512.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.cost.constants import DECODE, constant_values
from gensor_gym.graph.tables.tables import CONSTANT
from gensor_gym.operators.kinds.winograd import POINTS
from gensor_gym.winograd.layout import Sizes
from gensor_gym.winograd.schedule import WinogradSchedule

TERMS = ("launch", "image", "product", "results", "memory")
"""Names of the terms of the predicted time, in seconds.

In order: launch, transformation of image tiles, products, transformation of sums, and traffic of the tensors.
"""
_LATENCY, _STORE, _CALL, _STEP = 4.0, 1.0, 12.0, 1.0
"""As in the model of chains: cycles of a multiply-add's latency, of a store and of a register tile's call; more instructions."""
_IMAGE, _RESULTS = 60.0, 50.0
"""Cycles to transform one vector of an image tile's points, and of an image tile's sums."""
_EXPOSED = 0.3
"""Share of the shorter of computation and traffic that the longer one does not hide, as in the model of chains."""
_FLOAT, _PIPES, _SPARE = 4, 2, 1
_SCRATCH = 8
"""A thread's points and sums take at most this multiple of its L2."""
_HELD = 0.8
"""Share of L2 within which scratch memory stays there."""

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class WinogradModel(Sizes):
    """Limits and analytic model of one convolution by Winograd's algorithm on one CPU."""

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each schedule of int32 [B, ROW] is legal, bool [B].

        Registers and caches must suffice, and no field may be needlessly large.
        """
        found, outputs = WinogradSchedule.columns(rows), self.outputs
        panel, below = found["vectors"] * self.hardware.lanes, WinogradSchedule.next_below
        fitting = found["height"] * found["vectors"] + found["vectors"] + _SPARE <= self.hardware.vector_registers
        fitting &= (found["vectors"] == 1) | (panel - self.hardware.lanes < outputs)
        fitting &= (found["height"] == 1) | (found["height"] <= np.minimum(found["block"], self.tiles))
        fitting &= (found["block"] == WinogradSchedule.known["block"][0]) | (below("block", found["block"]) < self.tiles)
        fitting &= (found["panels"] == 1) | (below("panels", found["panels"]) * panel < outputs)
        fitting &= (found["apart"] == 0) | (found["panels"] * panel < outputs)
        held: np.ndarray = _FLOAT * self._scratch(found) <= _SCRATCH * self.hardware.level("l2").capacity
        return fitting & held

    def _group(self, found: Columns) -> np.ndarray:
        group: np.ndarray = self.group_of(found["panels"], found["vectors"] * self.hardware.lanes)
        return group

    def _blocks(self, found: Columns) -> np.ndarray:
        blocks: np.ndarray = self.blocks_of(found["block"], found["apart"])
        return blocks

    def _scratch(self, found: Columns) -> np.ndarray:
        """Return the number [B] of elements of a thread's points and sums."""
        size = -(-self.tiles // self.together // self._blocks(found)) * self.together
        whole = -(-self.channels // self.hardware.lanes) * self.hardware.lanes
        return POINTS * size * (whole + self._group(found))

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds of schedules int32 [B, ROW].

        Return float64 [B, 1 + len(TERMS)]: the total, then each term of `TERMS`.
        """
        found, hw = WinogradSchedule.columns(rows), self.hardware
        blocks, group = self._blocks(found), self._group(found)
        groups = -(-self.outputs // group)
        parts = np.where(found["apart"] == 1, groups, 1)
        turns = -(-blocks * parts // hw.units)  # tasks of the thread that has most
        size, share = self.tiles / blocks, 1 / parts
        made = {
            "launch": np.where(blocks * parts > 1, hw.launch_overhead, 0.0),
            "image": turns * size * -(-self.channels // hw.lanes) * _IMAGE / hw.clock,
            "product": self._products(found, size, turns, share),
            "results": turns * share * size * self.outputs / hw.lanes * _RESULTS / hw.clock,
            "memory": np.full(len(rows), self._traffic / hw.memory[-1].bandwidth),
        }
        spilled = _FLOAT * self._scratch(found) > _HELD * hw.level("l2").capacity
        again = turns * POINTS * _FLOAT * size * (self.channels + self.outputs * share) * hw.units
        made["memory"] = made["memory"] + np.where(spilled, again / hw.level("l3").bandwidth, 0.0)
        return np.stack([sum(made.values()), *(made[name] for name in TERMS)], axis=1)

    @property
    def _traffic(self) -> int:
        """Bytes of all tensors but the filters, whose traffic is a part of `product`."""
        return self.op.compulsory_bytes - self.op.reads[1].tensor.nbytes

    def _products(self, found: Columns, size: np.ndarray, turns: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return the seconds [B] of the products of a thread: `turns` tasks of `size` tiles, each with a share of the filters.

        Filters come from memory once for every core that reads them, and are read again by its later tasks, while sums are
        computed. In networks, filters leave the last cache between calls.
        """
        height, vectors, hw = found["height"], found["vectors"], self.hardware
        whole, rest = np.floor(size / height), np.ceil(size % height)
        steps = whole * self._step(height, vectors) + np.where(rest > 0, self._step(rest, vectors), 0.0)
        tiles = whole + (rest > 0)
        panels = -(-self.outputs // (vectors * hw.lanes))
        cycles = self.channels * steps + tiles * (_CALL + _STORE * height * vectors)
        busy = turns * share * POINTS * panels * cycles / hw.clock
        filters = _FLOAT * POINTS * self.channels * self.outputs
        near = filters * share + _FLOAT * self._scratch(found) <= _HELD * hw.level("l2").capacity
        readers = np.maximum(1.0, np.minimum(hw.units, self.tiles / size) * share)
        again = np.maximum(0.0, turns * share * hw.units - readers)
        rate = np.where(near, hw.level("l2").bandwidth, hw.level("l3").bandwidth)
        waiting = filters * (readers / hw.memory[-1].bandwidth + again / rate)
        seconds: np.ndarray = np.maximum(busy, waiting) + _EXPOSED * np.minimum(busy, waiting)
        return seconds

    def _step(self, height: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the cycles [B] of one step of a register tile's sums."""
        side = height * vectors
        issue = np.maximum((height + vectors) / 2, (side + height + vectors + _STEP) / self._decoded)
        return np.maximum(np.maximum(side / self._pipes, issue), _LATENCY)

    @cached_property
    def _pipes(self) -> float:
        """Multiply-adds of vectors that a core begins in a cycle."""
        lanes = self.hardware.peak_of("float32") / (2 * self.hardware.clock * self.hardware.units)
        return min(_PIPES, lanes / self.hardware.lanes)

    @cached_property
    def _decoded(self) -> float:
        """Instructions that a core decodes in a cycle, as in the model of loop nests."""
        return constant_values(self.hardware.name)[DECODE - CONSTANT]
