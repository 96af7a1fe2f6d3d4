"""Constants of a machine that the graph's rules and the analytic model read, each with its source."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal


@dataclass(frozen=True)
class MemoryLevel:
    """One level of memory.

    `capacity` is bytes per parallel unit for private levels and total bytes for shared levels; `bandwidth` is bytes per second of
    the whole device; `latency` is seconds; `transaction` is the smallest transfer in bytes. `copied` is bytes per second of a
    copy from this level through the caches, `streamed` of a copy past them to main memory; both are 0 if not measured.
    """

    name: str
    capacity: int
    bandwidth: float
    latency: float
    transaction: int
    copied: float = 0.0
    streamed: float = 0.0


@dataclass(frozen=True)
class Hardware:
    """Description of a target machine, which need not be present.

    Memory levels are ordered from the registers outwards. GPU: register, shared, l2, dram. CPU: register, l1, l2, l3, dram.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    arch: str
    """`sm_90` for NVRTC; `-march` value for a C compiler (`native`, `cascadelake`)."""
    units: int
    """Number of streaming multiprocessors, or of cores that a kernel may use."""
    clock: float
    """Hertz, sustained under arithmetic load."""
    lanes: int
    """Number of float32 lanes of a multiprocessor (GPU) or of a vector register (CPU)."""
    vector_registers: int
    """Number of architectural vector registers of a CPU; 0 for a GPU."""
    peak: tuple[tuple[str, float], ...]
    """(data type, operations per second) pairs for the whole device, without tensor cores."""
    memory: tuple[MemoryLevel, ...]
    launch_overhead: float
    """Seconds that each kernel launch (GPU) or each fork and join of the thread pool (CPU) takes."""
    warp: int = 1
    threads_per_block: int = 1
    threads_per_unit: int = 1
    blocks_per_unit: int = 1
    registers_per_unit: int = 0
    registers_per_thread: int = 0
    shared_per_block: int = 0
    """Bytes of shared memory that one block may use, the opt-in limit."""
    shared_granularity: int = 1
    shared_reserved: int = 0
    """Bytes of shared memory that the driver reserves for each block."""
    banks: int = 32
    tensor_peak: tuple[tuple[str, float], ...] = ()
    """(data type, operations per second) pairs of tensor cores, or of a CPU's tile registers (AMX), accumulating in 32 bits."""
    tensor_sustained: float = 1.0
    """Share of `tensor_peak` that remains if the power limit lowers the clock, as with random data."""
    mma_share: float = 1.0
    """Share of `tensor_peak` that mma.sync can reach; wgmma reaches all of it."""
    compilable: bool = True
    """False if the installed CUDA toolkit has dropped the architecture (V100 under CUDA 13)."""
    source: dict[str, str] = field(default_factory=dict, hash=False, compare=False)
    """Source of each figure, by field name (or `memory.<level>.<field>`)."""

    @cached_property
    def digest(self) -> str:
        """Return sixteen hex digits of a hash of all figures of the machine, without their sources.

        The hash distinguishes measurements on machines that have one name but different figures.
        """
        figures = {name: value for name, value in asdict(self).items() if name != "source"}
        return hashlib.sha256(repr(figures).encode()).hexdigest()[:16]

    @property
    def has_measured_stores(self) -> bool:
        """Whether the rates of stores to memory were measured, as on the host. False for machines known by name."""
        return any(level.copied for level in self.memory)

    def level(self, name: str) -> MemoryLevel:
        """Return the memory level with a name. KeyError names the existing levels."""
        for level in self.memory:
            if level.name == name:
                return level
        raise KeyError(f"{self.name} has no memory level {name!r}; it has {[m.name for m in self.memory]}")

    def peak_of(self, dtype: str) -> float:
        """Return the peak operations per second for a data type, without tensor cores. KeyError names the existing types."""
        table = dict(self.peak)
        if dtype not in table:
            raise KeyError(f"{self.name} has no peak for {dtype!r}; it has {sorted(table)}")
        return table[dtype]

    def widens(self, dtype: str) -> bool:
        """Whether mma.sync converts operands of a data type to float16 before it multiplies them.

        True for floats of 8 bits on sm_90, which multiplies them directly only by wgmma (SASS of ptxas 13.0:
        F2FP.F16.E4M3.UNPACK_B, HMMA).
        """
        return self.arch == "sm_90" and dtype == "float8_e4m3fn"

    def tensor_rate(self, dtype: str, tensor_core: int) -> float:
        """Return the operations per second that tensor cores sustain with mma.sync (1) or wgmma (2); 0 if they lack the type."""
        if tensor_core == 1 and self.widens(dtype):
            dtype = "float16"
        share = min(self.mma_share, self.tensor_sustained) if tensor_core == 1 else self.tensor_sustained
        return dict(self.tensor_peak).get(dtype, 0.0) * share
