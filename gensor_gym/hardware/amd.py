"""AMD GPUs as constants, every figure with its source. "Recalled" means that a document was not read again for it.

No kernel was timed on these machines: the model's figures for them are uncalibrated (docs/hip.md).
"""

from __future__ import annotations

from gensor_gym.hardware.types import Hardware, MemoryLevel

KIB = 1024
MIB = 1024 * 1024

_PAPER = "AMD CDNA 3 white paper (recalled)"
_ISA = "AMD Instinct MI300 (CDNA 3) instruction set architecture guide (recalled)"
_LLVM = "LLVM's AMDGPU backend for gfx942 (recalled)"
_GUESS = "estimate, not measured"
_CLOCK = 2.1e9
_UNITS = 304
_FLOAT32 = 2.0 * _UNITS * 128 * _CLOCK

MI300X = Hardware(
    name="mi300x",
    kind="gpu",
    arch="gfx942",
    units=_UNITS,
    clock=_CLOCK,
    lanes=128,
    vector_registers=0,
    peak=(("float32", _FLOAT32), ("float16", _FLOAT32), ("bfloat16", _FLOAT32), ("int8", 2 * _FLOAT32)),
    memory=(
        MemoryLevel("register", 512 * KIB, 12.0 * _UNITS * 128 * _CLOCK, 4 / _CLOCK, 4),
        MemoryLevel("shared", 64 * KIB, 128.0 * _UNITS * _CLOCK, 64 / _CLOCK, 128),
        MemoryLevel("l2", 32 * MIB, 8 * 2048.0 * _CLOCK, 250 / _CLOCK, 128),
        MemoryLevel("dram", 192 * 10**9, 5.3e12, 800 / _CLOCK, 64),
    ),
    launch_overhead=5e-6,
    warp=64,
    threads_per_block=1024,
    threads_per_unit=2048,
    blocks_per_unit=16,
    registers_per_unit=131072,
    registers_per_thread=256,
    shared_per_block=64 * KIB,
    shared_granularity=512,
    shared_reserved=0,
    banks=32,
    source={
        "arch": _LLVM,
        "units": f"304 compute units over eight dies, {_PAPER}",
        "clock": f"2100 MHz, the peak engine clock, {_PAPER}; sustained clocks were not measured",
        "lanes": f"256 float32 operations a clock and compute unit, {_PAPER}: 64 lanes, each two in a packed multiply-add",
        "vector_registers": "none on a GPU",
        "peak": f"derived: 2 x units x lanes x clock, 163.4 TFLOP/s in float32 as in {_PAPER}; float16 and bfloat16 at that rate "
        "because they accumulate in float32; int8 as four-way dot products on 64 lanes (recalled); no matrix cores",
        "launch_overhead": _GUESS,
        "warp": f"a wave has 64 lanes, {_ISA}",
        "threads_per_block": f"1024, {_LLVM}",
        "threads_per_unit": f"8 waves of 64 on each of four SIMDs, {_LLVM}",
        "blocks_per_unit": f"16 workgroups of more than one wave, {_LLVM}",
        "registers_per_unit": f"512 registers of 64 lanes on each of four SIMDs, {_ISA}",
        "registers_per_thread": f"256 architectural ones; 256 accumulation registers beside them are not counted, {_ISA}",
        "shared_per_block": f"64 KiB of LDS, {_ISA}",
        "shared_granularity": f"128 words, {_LLVM}",
        "shared_reserved": "none known",
        "banks": f"32 banks of 4 bytes, {_ISA}",
        "compilable": "clang of LLVM 17 and newer knows gfx942",
        "tensor_peak": "none: generated text does not use matrix cores (MFMA)",
        "tensor_sustained": "1: no figure known",
        "mma_share": "1: no such instruction",
        "memory.register.capacity": f"four SIMDs of 128 KiB, {_ISA}",
        "memory.register.bandwidth": "derived: three 4-byte operands per lane and clock",
        "memory.register.latency": _GUESS,
        "memory.register.transaction": "one 32-bit register",
        "memory.shared.capacity": f"64 KiB of LDS, {_PAPER}",
        "memory.shared.bandwidth": f"128 bytes per clock and compute unit, {_PAPER}",
        "memory.shared.latency": _GUESS,
        "memory.shared.transaction": "one row of 32 banks x 4 bytes",
        "memory.l2.capacity": f"4 MiB on each of eight dies, {_PAPER}; the Infinity Cache of 256 MiB behind it is left out",
        "memory.l2.bandwidth": f"2 KiB per clock and die, {_PAPER}",
        "memory.l2.latency": _GUESS,
        "memory.l2.transaction": f"128-byte line, {_PAPER}",
        "memory.dram.capacity": f"192 GB of HBM3, {_PAPER}",
        "memory.dram.bandwidth": f"5.3 TB/s, {_PAPER}; peak, not measured",
        "memory.dram.latency": _GUESS,
        "memory.dram.transaction": f"64 bytes, {_GUESS}",
    },
)

GPUS = (MI300X,)
