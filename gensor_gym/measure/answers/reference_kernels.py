"""Loads `reference.cu` on the device and launches its kernels, through CuPy or a test's replacement of CuPy.

The file is compiled once on a machine (1 to 2 s, cached with other cubins). It is loaded for the first reference, outside timed
regions and verification deadlines. CuPy compiles nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen.cuda.nvrtc import CompiledKernel, compile_text
from gensor_gym.measure.answers.reference_plan import CODES, ReadPlan, ReferencePlan

SOURCE = Path(__file__).with_name("reference.cu")
ENTRIES = (
    "expected_products", "expected_products_spread", "expected_reduction", "expected_map", "expected_stage",
    "expected_bound", "count_wrong", "count_changed", "sum_words", "sum_distance",
)  # fmt: skip
THREADS, TILE = 256, 64
_PRODUCT_SHARED = 2 * 16 * 65 * 8
_PARTIAL_SHARED = 2 * THREADS * 8
_BLOCKS = 1024
"""Largest number of thread blocks of the kernels that compare arrays."""
_MOST_BATCHES = 65535
_SMALL = 1 << 16
"""Largest number of elements of an array that is copied whole to read some of its elements."""
_LOWEST = {"max": float("-inf"), "sum": 0.0}
NULL = np.int64(0)

Array = Any
"""An array on the device, of CuPy or of a test's replacement."""


def compiled(arch: str) -> CompiledKernel:
    """Compile `reference.cu` for `arch` (such as `sm_90`), or return its cubin from the cache. Compiling needs no device."""
    return compile_text(SOURCE.read_text("utf-8"), arch)


class ReferenceKernels:
    """The kernels of `reference.cu`, loaded on one device."""

    def __init__(self, module: Any, arch: str, guarded: Callable[[], AbstractContextManager[None]]) -> None:
        """Compile the kernels for `arch`, or reuse an earlier compilation, and load them; NvrtcError without a compiler.

        `module` is CuPy, which is called inside the context `guarded()`; the context translates its errors.
        """
        self.module = module
        self._guarded = guarded
        cubin = compiled(arch).cubin
        handle, name = tempfile.mkstemp(suffix=".cubin")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(cubin)
            with guarded():
                loaded = module.RawModule(path=name)
                self._functions = {entry: loaded.get_function(entry) for entry in ENTRIES}
                self.registers = {entry: function.num_regs for entry, function in self._functions.items()}  # loads it now
                self._stream = module.cuda.Stream()
        finally:
            os.unlink(name)

    def upload(self, array: np.ndarray) -> Array:
        """Copy an array to the device, with the same shape and dtype."""
        with self._guarded():
            made = self.module.empty(array.size, dtype=array.dtype)
            made.set(np.ascontiguousarray(array).reshape(-1))
            return made.reshape(array.shape)

    def expected(
        self, plan: ReferencePlan, inputs: Sequence[Array], dtypes: Sequence[str], size: int
    ) -> tuple[Array, Array]:
        """Compute an operator's reference output and error bound on the device. Return (reference, bound), each float64 [size].

        `plan` describes the operator. `inputs` are on the device, with data types `dtypes`.
        """
        reads = plan.read_count
        with self._guarded():
            made = [self.module.empty(size, dtype=np.float64) for _ in range(2 + plan.spread)]
            targets = (*made, NULL)[:3]
            if plan.body == "multiply_add":
                kept = self._products(plan, inputs[:2], dtypes[:2], targets)
            elif plan.body == "map":
                kept = []
                second, kind = inputs[1] if reads == 2 else NULL, np.int32(CODES[dtypes[0]])
                self._each("expected_map", size, inputs[0], second, kind, np.int32(plan.function), np.int64(size), *made[:2])
            else:
                kept = self._reduction(plan, inputs[0], dtypes[0], targets)
            self._stages(plan, inputs[reads:], dtypes[reads:], size, targets)
            terms = plan.terms
            scalars = (terms.accumulated, terms.rounded, terms.steep, terms.stored, terms.smallest)
            self._each("expected_bound", size, *targets, *map(np.float64, scalars), np.int64(size))
            self._stream.synchronize()
            del kept  # the tables and the spread were in use until now
            return made[0], made[1]

    def _products(
        self, plan: ReferencePlan, inputs: Sequence[Array], dtypes: Sequence[str], targets: tuple[Any, ...]
    ) -> list[Array]:
        """Launch the kernel for sums of products, one block for each tile of rows and columns of the result.

        Return the device arrays that must be kept until the stream is done.
        """
        operands: list[Any] = []
        for read, array, dtype, group in zip(plan.reads, inputs, dtypes, ("rows", "columns"), strict=True):
            operands += [array, *self._tables(read, group, "deep", "batch"), np.int32(CODES[dtype])]
            operands += [*map(np.int32, read.limits), np.int32(plan.count(group))]
        places = [self.upload(plan.outputs[group]) for group in ("rows", "columns", "batch")]
        batches = plan.count("batch")
        tiles = -(-plan.count("rows") // TILE) * -(-plan.count("columns") // TILE)
        arguments = (*operands, *places, np.int32(batches), np.int32(plan.depth), *targets)
        entry = "expected_products_spread" if plan.spread else "expected_products"
        self._launch(entry, (tiles, min(batches, _MOST_BATCHES)), arguments, _PRODUCT_SHARED)
        return [*operands, *places]

    def _reduction(self, plan: ReferencePlan, x: Array, dtype: str, targets: tuple[Any, ...]) -> list[Array]:
        """Launch the kernel for a reduction, one thread per output element.

        Return the device arrays that must be kept until the stream is done.
        """
        (read,) = plan.reads
        tables = self._tables(read, "rows", "columns", "deep")
        places = [self.upload(plan.outputs[group]) for group in ("rows", "columns")]
        rows, columns = plan.count("rows"), plan.count("columns")
        counts = (rows, columns, plan.depth, int(plan.body == "max"))
        arguments = (x, *tables, *map(np.int32, (CODES[dtype], *read.limits)), *places, *map(np.int32, counts))
        arguments += (np.float64(plan.divisor), np.float64(_LOWEST[plan.body]), *targets[:2])
        self._each("expected_reduction", rows * columns, *arguments)
        return [*tables, *places]

    def _stages(self, plan: ReferencePlan, operands: Sequence[Array], dtypes: Sequence[str], size: int, targets: Any) -> None:
        """Launch the kernels of the epilogue's stages (such as bias or relu) in order. Each updates `targets` in place."""
        left = iter(zip(operands, dtypes, strict=True))
        for stage in plan.stages:
            operand, dtype = next(left) if stage.has_operand else (NULL, "float32")
            shape = (np.int64(stage.inner), np.int64(stage.size), np.int64(size))
            self._each("expected_stage", size, np.int32(stage.function), operand, np.int32(CODES[dtype]), *shape, *targets)

    def _tables(self, read: ReadPlan, *groups: str) -> list[Array]:
        return [self.upload(read.places[group].view(np.uint8)) for group in groups]

    def wrong(self, output: Array, dtype: str, reference: Array, bound: Array, index: Array | None = None) -> tuple[int, int]:
        """Count the elements outside their error bounds. Return (their number, position of the first among the references).

        `index` [size] has the output positions of the references; None if they are all positions in order.
        """
        arguments = (output, np.int32(CODES[dtype]), reference, bound, NULL if index is None else index)
        return self._found("count_wrong", reference.size, arguments)

    def missing(self, output: Array, dtype: str) -> int:
        """Count the NaN elements of an output."""
        return self._found("count_wrong", output.size, (output, np.int32(CODES[dtype]), NULL, NULL, NULL))[0]

    def differ(self, a: Array, b: Array) -> bool:
        """Whether two arrays of the same size differ in any byte."""
        return self._found("count_changed", a.nbytes, (a, b))[0] > 0

    def checksum(self, array: Array) -> int:
        """Return the checksum of an array."""
        parts = self._partial("sum_words", array.nbytes, (array,), np.int64)
        return int(parts[:, 0].view(np.uint64).sum())

    def distance(self, output: Array, dtype: str, reference: Array, index: Array | None) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), both 2-norms.

        The norms are over the output elements at `index`, or over all elements if it is None.
        """
        arguments = (output, np.int32(CODES[dtype]), reference, NULL if index is None else index)
        parts = self._partial("sum_distance", reference.size, arguments, np.float64)
        return float(np.sqrt(parts[:, 0].sum())), float(np.sqrt(parts[:, 1].sum()))

    def at(self, array: Array, places: Sequence[int]) -> np.ndarray:
        """Copy elements of an array at flat positions to the host.

        A small array is copied whole, a large one element by element.
        """
        with self._guarded():
            flat = array.reshape(-1)
            if flat.size <= _SMALL and len(places) > 1:
                return self.module.asnumpy(flat)[np.asarray(places)]
            return np.concatenate([self.module.asnumpy(flat[place : place + 1]) for place in places])

    def _found(self, entry: str, size: int, arguments: tuple[Any, ...]) -> tuple[int, int]:
        """Launch a kernel that counts faults in each block.

        Return (number of faults, index of the first fault) over all blocks.
        """
        parts = self._partial(entry, size, arguments, np.int64)
        return int(parts[:, 0].sum()), int(parts[:, 1].min())

    def _partial(self, entry: str, size: int, arguments: tuple[Any, ...], dtype: Any) -> np.ndarray:
        """Launch a kernel over `size` elements. Return the results of its blocks, [blocks, 2]."""
        blocks = max(1, min(_BLOCKS, -(-size // THREADS)))
        with self._guarded():
            partial = self.module.empty(2 * blocks, dtype=dtype)
            self._launch(entry, (blocks,), (*arguments, np.int64(size), partial), _PARTIAL_SHARED)
            self._stream.synchronize()
            return self.module.asnumpy(partial).reshape(blocks, 2)

    def _each(self, entry: str, size: int, *arguments: Any) -> None:
        self._launch(entry, (-(-size // THREADS),), arguments, 0)

    def _launch(self, entry: str, grid: tuple[int, ...], arguments: tuple[Any, ...], shared: int) -> None:
        """Launch a kernel on a separate stream, which waits for the default stream."""
        with self._stream:
            self._functions[entry](grid, (THREADS,), arguments, shared_mem=shared)
