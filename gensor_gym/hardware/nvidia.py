"""NVIDIA GPUs as constants, every figure with its source. "Recalled" means that a document was not read again for it."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.hardware.types import Hardware, MemoryLevel

KIB = 1024
MIB = 1024 * 1024

_DATASHEET = "datasheet (recalled)"
_OCCUPANCY = "cuda_occupancy.h of the CUDA 13 runtime"
_ARXIV = "arXiv 2402.13499, measured"
_HEADER_FIELDS = (
    "warp",
    "threads_per_block",
    "threads_per_unit",
    "blocks_per_unit",
    "registers_per_unit",
    "registers_per_thread",
    "shared_per_block",
    "shared_granularity",
    "shared_reserved",
    "memory.register.capacity",
    "memory.shared.capacity",
)


@dataclass(frozen=True)
class _Limits:
    """Limits of all GPUs of one compute capability: one row of the occupancy table."""

    arch: str
    lanes: int
    warps: int
    blocks: int
    shared: int
    shared_per_block: int
    granularity: int
    reserved: int


_LIMITS = {
    limits.arch: limits
    for limits in (
        _Limits("sm_70", 64, 64, 32, 96 * KIB, 96 * KIB, 256, 0),
        _Limits("sm_75", 64, 32, 16, 64 * KIB, 64 * KIB, 256, 0),
        _Limits("sm_80", 64, 64, 32, 164 * KIB, 163 * KIB, 128, KIB),
        _Limits("sm_86", 128, 48, 16, 100 * KIB, 99 * KIB, 128, KIB),
        _Limits("sm_87", 128, 48, 16, 164 * KIB, 163 * KIB, 128, KIB),
        _Limits("sm_89", 128, 48, 24, 100 * KIB, 99 * KIB, 128, KIB),
        _Limits("sm_90", 128, 64, 32, 228 * KIB, 227 * KIB, 128, KIB),
    )
}


@dataclass(frozen=True)
class _Outer:
    """Bytes and bytes per second of L2 and DRAM, and latencies of shared memory, L2 and DRAM in clocks."""

    l2: int
    l2_bandwidth: float
    dram: int
    dram_bandwidth: float
    clocks: tuple[int, int, int]


@dataclass(frozen=True)
class _Tensor:
    """Dense operations per second of tensor cores in float16 and bfloat16, tf32, int8 and 8-bit floats, accumulating in 32 bits.

    `sustained` and `mma_share` are the fields `tensor_sustained` and `mma_share` of `Hardware`.
    """

    half: float = 0.0
    tf32: float = 0.0
    int8: float = 0.0
    float8: float = 0.0
    sustained: float = 1.0
    mma_share: float = 1.0

    def peaks(self) -> tuple[tuple[str, float], ...]:
        """Return operations per second by data type. tf32x3 takes three tf32 products per product; Turing has no bfloat16."""
        types = {"float16": self.half, "tf32": self.tf32, "tf32x3": self.tf32 / 3, "int8": self.int8}
        if self.tf32 > 0:
            types["bfloat16"] = self.half
        types["float8_e4m3fn"] = self.float8
        return tuple((dtype, rate) for dtype, rate in types.items() if rate > 0)


def _memory(limits: _Limits, units: int, clock: float, outer: _Outer) -> tuple[MemoryLevel, ...]:
    shared, l2, dram = (clocks / clock for clocks in outer.clocks)
    # A multiply-add reads three registers of 4 bytes per lane and clock; shared memory serves 128 bytes per clock.
    return (
        MemoryLevel("register", 256 * KIB, 12.0 * limits.lanes * units * clock, 4 / clock, 4),
        MemoryLevel("shared", limits.shared, 128.0 * units * clock, shared, 128),
        MemoryLevel("l2", outer.l2, outer.l2_bandwidth, l2, 32),
        MemoryLevel("dram", outer.dram, outer.dram_bandwidth, dram, 32),
    )


def _source(own: dict[str, str]) -> dict[str, str]:
    common = dict.fromkeys(_HEADER_FIELDS, _OCCUPANCY)
    common |= {
        "arch": _DATASHEET,
        "units": _DATASHEET,
        "lanes": _DATASHEET,
        "clock": f"boost clock, {_DATASHEET}",
        "vector_registers": "none on a GPU",
        "peak": "derived: 2 x units x lanes x clock, equal to the datasheet's float32 figure to 1 percent; float16 and "
        "bfloat16 at the float32 rate because they accumulate in float32; int8 as four-way dot products on 64 integer "
        "lanes (recalled)",
        "launch_overhead": "about 2 us between dependent launches, rule of thumb; calibrate on the device",
        "banks": "32 banks of 4 bytes, CUDA programming guide (recalled)",
        "compilable": "CUDA 13 compiles for sm_75 and newer",
        "tensor_peak": f"dense rates with 32-bit accumulation, {_DATASHEET}; tf32x3 a third of tf32; 8-bit floats from sm_89 on",
        "tensor_sustained": "1: no figure under power known",
        "mma_share": "1: the instruction reaches the tensor cores' peak before Hopper, arXiv 2402.13499",
        "memory.register.bandwidth": "derived: three 4-byte operands per lane and clock",
        "memory.register.latency": "4 clocks for a dependent multiply-add, recalled",
        "memory.register.transaction": "one 32-bit register",
        "memory.shared.bandwidth": "derived: 128 bytes per clock and multiprocessor, arXiv 2402.13499",
        "memory.shared.latency": _ARXIV,
        "memory.shared.transaction": "one wavefront of 32 banks x 4 bytes",
        "memory.l2.capacity": _DATASHEET,
        "memory.l2.bandwidth": _ARXIV,
        "memory.l2.latency": _ARXIV,
        "memory.l2.transaction": "32-byte sector, CUDA programming guide (recalled)",
        "memory.dram.capacity": _DATASHEET,
        "memory.dram.bandwidth": _DATASHEET,
        "memory.dram.latency": _ARXIV,
        "memory.dram.transaction": "32-byte sector, CUDA programming guide (recalled)",
    }
    return common | own


def _gpu(
    name: str, arch: str, units: int, clock: float, outer: _Outer, source: dict[str, str], tensor: _Tensor = _Tensor()
) -> Hardware:
    limits = _LIMITS[arch]
    float32 = 2.0 * units * limits.lanes * clock
    int8 = 2.0 * 4 * units * 64 * clock
    return Hardware(
        name=name,
        kind="gpu",
        arch=arch,
        units=units,
        clock=clock,
        lanes=limits.lanes,
        vector_registers=0,
        peak=(("float32", float32), ("float16", float32), ("bfloat16", float32), ("int8", int8)),
        memory=_memory(limits, units, clock, outer),
        launch_overhead=2e-6,
        warp=32,
        threads_per_block=1024,
        threads_per_unit=32 * limits.warps,
        blocks_per_unit=limits.blocks,
        registers_per_unit=65536,
        registers_per_thread=255,
        shared_per_block=limits.shared_per_block,
        shared_granularity=limits.granularity,
        shared_reserved=limits.reserved,
        banks=32,
        tensor_peak=tensor.peaks(),
        tensor_sustained=tensor.sustained,
        mma_share=tensor.mma_share,
        compilable=arch != "sm_70",
        source=_source(source),
    )


_AS_H800 = "H800 in arXiv 2402.13499, taken for this card of the same architecture"
_AS_A100 = "A100 in arXiv 2402.13499, taken for this card of a near architecture"
_AS_4090 = "RTX 4090 in arXiv 2402.13499, taken for this card of a near architecture"

_HOPPER = _Tensor(989.4e12, 494.7e12, 1979e12, 1979e12, sustained=788 / 894, mma_share=490.7 / 756.5)
_HOPPER_SOURCE = {
    "tensor_sustained": "bfloat16 products of random data ran at 788, of zeros at 894 TFLOP/s on one H200: the power limit; "
    "the H100 is the same chip with the same 700 W",
    "mma_share": "490.7 of 756.5 TFLOP/s by mma.sync on an H800, arXiv 2402.13499",
}

H200 = _gpu(
    "h200",
    "sm_90",
    132,
    1.98e9,
    _Outer(60 * MIB, 7.0e12, 141 * 10**9, 4.8e12, (29, 263, 479)),
    {
        "clock": "1980 MHz under float32 load, seen on an H200",
        "memory.shared.latency": _AS_H800,
        "memory.l2.capacity": "60 MB as the device reports it, seen on an H200",
        "memory.l2.bandwidth": "7.0 TB/s effective on an H100, taken for the H200",
        "memory.l2.latency": _AS_H800,
        "memory.dram.bandwidth": f"{_DATASHEET}; a device-to-device copy reached 4.3 TB/s on an H200",
        "memory.dram.latency": _AS_H800,
    }
    | _HOPPER_SOURCE,
    _HOPPER,
)

H100 = _gpu(
    "h100",
    "sm_90",
    132,
    1.98e9,
    _Outer(50 * MIB, 7.0e12, 80 * 10**9, 3.35e12, (29, 263, 479)),
    {
        "memory.shared.latency": _AS_H800,
        "memory.l2.bandwidth": "7.0 TB/s effective; H800 in arXiv 2402.13499: 3942 to 4472 bytes per clock",
        "memory.l2.latency": _AS_H800,
        "memory.dram.bandwidth": f"{_DATASHEET}, SXM; 3.24 TB/s read by pranjalssh/fast.cu sum.cu",
        "memory.dram.latency": _AS_H800,
    }
    | _HOPPER_SOURCE,
    _HOPPER,
)

A100 = _gpu(
    "a100",
    "sm_80",
    108,
    1.41e9,
    _Outer(40 * MIB, 4.6e12, 40 * 10**9, 1.555e12, (29, 262, 466)),
    {
        "memory.l2.bandwidth": "4.4 to 4.7 TB/s from 0.3 to 19 MB by the card's own counters, cuda-cache/a100_80.txt in "
        "te42kyfo/gpu-benches, of 5120 bytes per clock in the whitepaper (7.2 TB/s); arXiv 2402.13499 got 1854 to 2008",
        "memory.dram.bandwidth": f"{_DATASHEET}, SXM 40 GB; 1.407 TB/s seen",
        "tensor_sustained": "half-precision products of random data ran at 257, of zeros at 295 TFLOP/s on one A100: the power "
        "limit (thonking.ai)",
    },
    _Tensor(312e12, 156e12, 624e12, sustained=257 / 295),
)

RTX4090 = _gpu(
    "rtx4090",
    "sm_89",
    128,
    2.52e9,
    _Outer(72 * MIB, 4.2e12, 24 * 10**9, 1.008e12, (30, 273, 542)),
    {
        "memory.l2.bandwidth": f"1622 to 1708 bytes per clock, {_ARXIV}",
        "memory.dram.bandwidth": f"{_DATASHEET}; 0.93 TB/s seen",
    },
    _Tensor(165.2e12, 82.6e12, 660.6e12, 330.3e12),
)

RTX3090 = _gpu(
    "rtx3090",
    "sm_86",
    82,
    1.695e9,
    _Outer(6 * MIB, 1.8e12, 24 * 10**9, 0.936e12, (30, 273, 542)),
    {
        "memory.shared.latency": _AS_4090,
        "memory.l2.bandwidth": "estimate, not measured: 13 bytes per clock and multiprocessor as on the RTX 4090",
        "memory.l2.latency": _AS_4090,
        "memory.dram.latency": _AS_4090,
    },
    _Tensor(71e12, 35.6e12, 284e12),
)

ORIN_NANO = _gpu(
    "orin_nano",
    "sm_87",
    8,
    0.625e9,
    _Outer(2 * MIB, 1.6e11, 8 * 10**9, 0.068e12, (29, 262, 466)),
    {
        "clock": f"625 MHz, the 15 W mode before Super, {_DATASHEET}",
        "memory.shared.latency": _AS_A100,
        "memory.l2.capacity": "2 MB, recalled; query the device",
        "memory.l2.bandwidth": "estimate, not measured: 32 bytes per clock and multiprocessor",
        "memory.l2.latency": _AS_A100,
        "memory.dram.bandwidth": f"{_DATASHEET}; shared with the CPU",
        "memory.dram.latency": f"{_AS_A100}; a weak guess for LPDDR5",
        "tensor_peak": "derived: 8 multiprocessors x 1024 multiply-adds in float16 per clock as on the A100, half that in tf32, "
        "twice in int8; about 10 and 20 in the datasheet (recalled)",
    },
    _Tensor(10.2e12, 5.1e12, 20.5e12),
)

V100 = _gpu(
    "v100",
    "sm_70",
    80,
    1.53e9,
    _Outer(6 * MIB, 2.16e12, 16 * 10**9, 0.9e12, (19, 193, 440)),
    {
        "memory.shared.latency": "Jia et al. 2018 (recalled)",
        "memory.l2.bandwidth": "Jia et al. 2018 (recalled)",
        "memory.l2.latency": "Jia et al. 2018 (recalled)",
        "memory.dram.latency": "estimate, not measured",
    },
)

T4 = _gpu(
    "t4",
    "sm_75",
    40,
    1.59e9,
    _Outer(4 * MIB, 1.27e12, 16 * 10**9, 0.32e12, (19, 188, 440)),
    {
        "clock": f"1590 MHz boost, {_DATASHEET}; the 70 W limit throttles it under load",
        "memory.shared.latency": "Jia et al. 2019 (recalled)",
        "memory.l2.bandwidth": "Jia et al. 2019 (recalled)",
        "memory.l2.latency": "Jia et al. 2019 (recalled)",
        "memory.dram.bandwidth": f"{_DATASHEET}; about 220 GB/s achieved, Jia et al. 2019 (recalled)",
        "memory.dram.latency": "estimate, not measured",
    },
    _Tensor(half=65e12, int8=130e12),
)

GPUS = (H200, H100, A100, RTX4090, RTX3090, ORIN_NANO, V100, T4)
