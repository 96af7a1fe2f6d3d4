"""Memory of the process that calls a source: several sets of inputs and outputs, a workspace, and a table of calls.

Each set (slot) has its own inputs and outputs, so that a burst of calls sees no input twice. Every buffer lies between guard
words and unmapped pages, as those of `devices/buffers.py` do, and begins where those begin:

    [orders, table of calls][unmapped page][guard words .. ][data][guard words, < 64 bytes][unmapped page][guard words ..
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.devices.buffers import ALIGN
from gensor_gym.operators.inputs import ARRAY_OFFSET
from gensor_gym.operators.types import ARRAY_DTYPE

PAGE = mmap.PAGESIZE
GUARD = 0xA5
HUGE_PAGE = 2 << 20
_HUGE = 128 << 10
"""Number of bytes from which a buffer gets huge pages. The harness works on the same processor between bursts, and evicts small
pages from the table of translations (TLB): a kernel that reads 8 MB then took 2.6 times as long (Zen 4, virtual).
"""
MOST_SLOTS = 256
MOST_BYTES = 32 << 20
"""Largest number of slots, and of their bytes if there are several."""
TABLE = 64
"""Place of the table of calls, after the orders: how many calls to make, and whether to load the library."""


@dataclass(frozen=True)
class Region:
    """A buffer's pages: place of the first and number of bytes, and place and number of bytes of the data in them."""

    start: int
    size: int
    place: int
    nbytes: int


@dataclass
class Layout:
    """Places of all buffers, in bytes from the start of the memory. `inputs` and `outputs` have a list for each slot."""

    inputs: list[list[Region]] = field(default_factory=list)
    outputs: list[list[Region]] = field(default_factory=list)
    workspace: Region = Region(0, 0, 0, 0)
    closed: list[tuple[int, int]] = field(default_factory=list)
    huge: list[tuple[int, int]] = field(default_factory=list)
    pointers: int = 0
    """Place of the table of addresses that the table of calls refers to."""
    bytes: int = 0

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return len(self.outputs)

    def add(self, nbytes: int, past: int) -> Region:
        """Place a buffer of `nbytes` bytes that begin `past` bytes after a cache line, and an unmapped page behind it."""
        lines = -(-(past + nbytes) // ALIGN) * ALIGN
        if nbytes >= _HUGE:
            first = -(-self.bytes // HUGE_PAGE) * HUGE_PAGE
            self.bytes = first + -(-(lines + PAGE) // HUGE_PAGE) * HUGE_PAGE
            self.huge.append((first, self.bytes - first))
        else:
            self.bytes += -(-(lines + ALIGN) // PAGE) * PAGE
        place = self.bytes - lines + past
        start = (place - ALIGN) // PAGE * PAGE
        region = Region(start, self.bytes - start, place, nbytes)
        self.close()
        return region

    def close(self) -> None:
        """Place an unmapped page."""
        self.closed.append((self.bytes, PAGE))
        self.bytes += PAGE


def layout_of(kernel: Kernel, most: int) -> Layout:
    """Place the buffers of a kernel with as many slots as fit into `MOST_BYTES`, at least one and at most `most`."""
    op = kernel.operator
    read = [int(np.prod(t.shape)) * np.dtype(ARRAY_DTYPE[t.dtype]).itemsize for t in op.inputs]
    written = [int(np.prod(t.shape)) * np.dtype(ARRAY_DTYPE[t.dtype]).itemsize for t in op.outputs]
    slots = max(1, min(most, MOST_SLOTS, MOST_BYTES // (sum(read) + sum(written))))
    made = Layout()
    made.pointers = TABLE + 40 * slots
    made.bytes = -(-(made.pointers + 8 * slots * (len(read) + len(written))) // PAGE) * PAGE
    made.close()
    for _ in range(slots):
        made.inputs.append([made.add(nbytes, ARRAY_OFFSET) for nbytes in read])
        made.outputs.append([made.add(nbytes, 0) for nbytes in written])
    made.workspace = made.add(max(kernel.workspace_bytes, 1), 0)
    return made


def table_of(layout: Layout, base: int, runtime: int) -> np.ndarray:
    """Return the table of calls without the entry, and the addresses that it refers to, uint64 words from `TABLE` on.

    `base` is the address of the memory, `runtime` that of the `struct gg_runtime`.
    """
    calls: list[int] = []
    addresses: list[int] = []
    for read, written in zip(layout.inputs, layout.outputs, strict=True):
        inputs = base + layout.pointers + 8 * len(addresses)
        addresses += [base + region.place for region in read]
        several = base + layout.pointers + 8 * len(addresses)
        addresses += [base + region.place for region in written]
        output = several if len(written) > 1 else base + written[0].place
        calls += [0, inputs, output, base + layout.workspace.place, runtime]
    return np.array(calls + addresses, dtype=np.uint64)


def intact(region: Region, content: np.ndarray) -> bool:
    """Whether the guard words of a buffer are unchanged. `content` uint8 [region.size] are its pages."""
    front = region.place - region.start
    return bool((content[:front] == GUARD).all() and (content[front + region.nbytes :] == GUARD).all())


def guarded(regions: Sequence[Region]) -> np.ndarray:
    """Return places and numbers of bytes of the guard words on both sides of each buffer, uint64 [parts, 2]."""
    found = []
    for region in regions:
        end, last = region.place + region.nbytes, region.start + region.size
        found += [(region.start, region.place - region.start), (end, last - end)]
    return np.array([part for part in found if part[1]], np.uint64)
