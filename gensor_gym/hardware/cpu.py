"""CPUs as constants, for models of a CPU that is not present. The CPU that Python runs on is the machine `host`."""

from __future__ import annotations

from gensor_gym.hardware.types import Hardware, MemoryLevel

KIB = 1024
MIB = 1024 * 1024

_RECALLED = "vendor optimisation manual (recalled)"
_SEEN = "measured on a 2-core Cascade Lake virtual machine"
_CLOCK = 2.4e9
_FLOAT32 = 2 * 2 * 16 * 2 * _CLOCK  # cores x FMA ports x lanes x (multiply and add) x clock

CASCADE_LAKE = Hardware(
    name="cascade_lake",
    kind="cpu",
    arch="cascadelake",
    units=2,
    clock=_CLOCK,
    lanes=16,
    vector_registers=32,
    peak=(("float32", _FLOAT32), ("float16", _FLOAT32), ("bfloat16", _FLOAT32), ("int8", 4 * _FLOAT32)),
    memory=(
        MemoryLevel("register", 2 * KIB, 2 * 3 * 2 * 64 * _CLOCK, 4 / _CLOCK, 64),
        MemoryLevel("l1", 32 * KIB, 2 * 128 * _CLOCK, 5 / _CLOCK, 64),
        MemoryLevel("l2", MIB, 2 * 64 * _CLOCK, 14 / _CLOCK, 64),
        MemoryLevel("l3", int(35.75 * MIB), 2 * 10 * _CLOCK, 70 / _CLOCK, 64),
        MemoryLevel("dram", 8 * 10**9, 24e9, 90e-9, 64),
    ),
    launch_overhead=4e-6,
    source={
        "units": "two cores of a server part, as a virtual machine; two real cores, not two threads of one",
        "arch": "-march value of gcc and clang",
        "clock": f"about 2.4 GHz under AVX-512 load, {_SEEN}",
        "lanes": "AVX-512",
        "vector_registers": "AVX-512",
        "peak": f"float32: 2 ports x 16 lanes x 2 per clock and core; register loops reached 306 GFLOP/s, {_SEEN}; "
        "float16 and bfloat16 at the float32 rate (converted, then accumulated in float32); int8 by vpdpbusd, 1.11 "
        "TOP/s seen",
        "launch_overhead": "estimate of one fork and join of two threads",
        "memory.register.capacity": "32 registers of 64 bytes",
        "memory.register.bandwidth": "derived: two multiply-adds of three 64-byte operands per clock and core",
        "memory.register.latency": f"4 clocks for a dependent multiply-add, {_RECALLED}",
        "memory.register.transaction": "one vector register",
        "memory.l1.capacity": _SEEN,
        "memory.l1.bandwidth": f"two 64-byte loads per clock and core, {_RECALLED}",
        "memory.l1.latency": _RECALLED,
        "memory.l1.transaction": "cache line",
        "memory.l2.capacity": _SEEN,
        "memory.l2.bandwidth": f"64 bytes per clock and core, upper limit, {_RECALLED}",
        "memory.l2.latency": _RECALLED,
        "memory.l2.transaction": "cache line",
        "memory.l3.capacity": f"{_SEEN}; shared by the whole socket",
        "memory.l3.bandwidth": "estimate, not measured: 10 bytes per clock and core",
        "memory.l3.latency": "estimate, not measured",
        "memory.l3.transaction": "cache line",
        "memory.dram.capacity": "assumed 8 GB",
        "memory.dram.bandwidth": "estimate, not measured: 12 GB/s a core",
        "memory.dram.latency": "estimate, not measured",
        "memory.dram.transaction": "cache line",
    },
)
"""Figures of a two-core virtual machine on a Cascade Lake server."""

CPUS = (CASCADE_LAKE,)
