"""What a GPU program takes and whether it fits, a second time; see `tests/support/oracle.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gensor_gym.operators.types import Access
from tests.support import oracle_matrix as matrix

if TYPE_CHECKING:
    from tests.support.oracle import State

ITEM = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4}


class Gpu:
    """Part of the oracle; `op`, `hw`, `spatial`, `depends` and the like come from the rest."""

    def workers(self, state: State) -> int:
        return math.prod(state.tiles[1][a] // state.tiles[0][a] for a in self.spatial)

    def threads(self, state: State) -> int:
        workers, cores = self.workers(state), state.knob("tensor_core")
        return {0: workers * state.knob("reduce_threads"), 1: workers * 32, 2: workers * 128 + 128}[cores]

    def registers(self, state: State) -> int:
        outputs = math.prod(state.tiles[0][a] for a in self.spatial)
        if state.knob("tensor_core") == 2:
            rows = state.tiles[0][matrix.roles(self.op)[2]]
            return 40 + outputs // rows * max(64, rows) // 128
        parts = [math.prod(state.tiles[0][a] for a in self.spatial if self.depends(r, a)) for r in self.op.reads]
        if state.knob("tensor_core") == 0:
            points = math.prod(state.tiles[0][a] for a in self.reduce) * state.knob("unroll")
            windows = sum(1 for read in self.op.reads if sum(1 for c in read.coefficients[-1] if c) > 1)
            return 32 + outputs + 2 * sum(parts) + (16 * windows if points >= 16 else 0)
        step = matrix.instruction(self.op, self.hw) * (3 if self.op.dtype == "tf32x3" or matrix.widened(self.op, self.hw) else 1)
        bytes_ = [ITEM[read.tensor.dtype] for read in self.op.reads]
        held = [math.ceil(n * step * size / 128) for n, size in zip(parts, bytes_, strict=True)]
        return 40 + outputs // 32 + state.knob("register_buffer") * sum(held)

    def shared_bytes(self, state: State) -> int:
        if state.knob("tensor_core") > 0:
            return matrix.shared_bytes(self, state)
        total = 0
        for read in self.op.reads:
            if self.staged(read):
                inner, rows = self._staged_shape(read, state)
                padding = 4 if state.knob("shared_layout") == 1 and rows > 1 else 0
                total += math.ceil(rows * (inner + padding) * ITEM[read.tensor.dtype] / 16) * 16
        total *= state.knob("stages")
        if state.knob("reduce_threads") > 32:
            exchange = 4 * (self.threads(state) // 32) * math.prod(state.tiles[0][a] for a in self.spatial)
            return max(total, exchange)
        return total

    def _staged_shape(self, read: Access, state: State) -> tuple[int, int]:
        """(length, number) of the rows of a staged tile: a box, or a matrix with a row for each reduction point."""
        if state.knob("convolution") == 3:
            moved = [(a, state.tiles[1][a]) for a in self.axes if self.depends(read, a)]
            return math.prod(t for a, t in moved if a in self.spatial), math.prod(t for a, t in moved if a in self.reduce)
        shape = list(self.box(read, state.tiles[1]))
        shape[-1] = self._copied(read, state, shape[-1])
        inner = shape[self.shared_inner(read)]
        return inner, math.prod(shape) // inner

    def _copied(self, read: Access, state: State, length: int) -> int:
        """Length of a row in shared memory: of a window as many copies of `vector` elements as may be needed."""
        row = read.coefficients[-1]
        moving = [a for a in self.axes if row[a] and max(self.op.axes[a].extent, state.tiles[1][a]) > 1]
        steps = [row[a] * state.tiles[1][a] for a in moving if state.tiles[1][a] < self.op.axes[a].extent]
        width = math.gcd(state.knob("vector"), read.view[-1], *steps)
        if len(moving) < 2 or width == 1:
            return length
        before = width - 1 if read.is_padded(self.op.extents) else 0
        return math.ceil((length + before) / width) * width

    def _fits_gpu(self, state: State) -> bool:
        threads, registers = self.threads(state), self.registers(state)
        warps = math.ceil(threads / self.hw.warp)
        granted = math.ceil(registers * self.hw.warp / 256) * 256 * math.ceil(warps / 4) * 4
        body = math.prod(state.tiles[0])
        if state.knob("tensor_core") > 0:
            body = 8 * matrix.instructions(self, state)
        return (
            threads <= self.hw.threads_per_block
            and registers <= self.hw.registers_per_thread
            and granted <= self.hw.registers_per_unit
            and self.shared_bytes(state) <= self.hw.shared_per_block
            and body * state.knob("unroll") <= 4096
            and matrix.accepts(self, state)
            and self._is_patched(state)
            and state.knob("reduce_threads") <= self._points(state, 1) // self._points(state, 0)
            and state.knob("split_k") <= self._steps(state, 1)
        )

    def _is_patched(self, state: State) -> bool:
        """Whether every warp is a whole patch of the block's threads, and lanes are interleaved only in square ones."""
        rows, columns = {0: (1, 1), 1: (4, 8), 2: (8, 4), 3: (2, 16)}[state.knob("warp_tile")]
        if state.knob("lane_map") == 1 and 4 not in (rows, columns):
            return False
        if rows == 1:
            return True
        across = [state.tiles[1][a] // state.tiles[0][a] for a in self.spatial[-2:]]
        return state.knob("reduce_threads") == 1 and across[0] % rows == 0 and across[1] % columns == 0
