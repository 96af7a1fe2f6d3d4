"""The CPU that Python runs on, as a `Hardware`: described by the operating system, with rates that are measured once."""

from __future__ import annotations

import functools

from gensor_gym.cache.folders import cache_dir
from gensor_gym.hardware import probe
from gensor_gym.hardware.cpuinfo import CpuInfo, cpu_info
from gensor_gym.hardware.probe import COPIED, FIGURES, measured
from gensor_gym.hardware.types import Hardware, MemoryLevel

_PAIRS = "avx512_bf16"
"""CPU flag of processors that add two products of bfloat16 to a lane by one instruction."""
_TILES = {"bfloat16": ("amx_bf16", 1024), "int8": ("amx_int8", 2048)}
"""Data type -> (CPU flag of products in tile registers, operations per clock: 16 clocks for 16 x 16 sums of 64 bytes each).

Source: Intel 64 optimisation manual, throughput of TDPBF16PS and TDPBUSD.
"""
_LATENCY_CLOCKS = {"register": 4, "l1": 5, "l2": 14, "l3": 50}
_DRAM_LATENCY = 100e-9
_ESTIMATED_CLOCK = 2.5e9
_MEASURED = "measured on this machine by hardware/probe.c"
_ESTIMATE = "estimate, not measured: no C compiler was found"


def detect() -> Hardware:
    """Describe the CPU that Python runs on, as the machine `host`.

    The first call on a machine measures for some seconds; later calls read a file. $GENSOR_GYM_THREADS sets the number of cores.
    Without a C compiler rates are estimates, and `source` says so.
    """
    return _detect(cpu_info(), str(cache_dir()))


@functools.cache
def _detect(info: CpuInfo, _folder: str) -> Hardware:
    reading = measured(info)
    if reading is None:
        return build(info, estimates(info), _ESTIMATE)
    had = "" if reading.quiet else f", at least, beside other work (the probe had {max(0, reading.share):.0%} of the cores)"
    return build(info, reading.figures, _MEASURED + had)


@functools.cache
def doubted() -> Hardware:
    """Measure the machine `host` again, because a correct kernel ran faster than the stored figures allow.

    A process measures again at most once. Results of `detect` in this process do not change; the next process begins with the new
    figures.
    """
    info = cpu_info()
    probe.doubt(info)
    reading = measured(info)
    return build(info, reading.figures, _MEASURED) if reading else detect()


def estimates(info: CpuInfo) -> dict[str, float]:
    """Estimate clock and rates without measuring: 2.5 GHz, two vector multiply-adds a clock, round numbers of bytes per clock.

    Copying a byte takes three transfers: the byte is read; the line that it is stored to is read first and written back later.
    """
    per_core = info.cores * _ESTIMATED_CLOCK
    l3, dram = 10 * per_core, 10e9 * info.cores
    values = (
        _ESTIMATED_CLOCK, 4 * info.lanes * per_core, 8 * info.lanes * per_core, 4 * info.lanes * per_core, l3, dram,
        l3 / 3, 1 / (1 / l3 + 1 / dram), dram, dram / 3, dram / 2, dram,
    )  # fmt: skip
    return dict(zip(FIGURES, values, strict=True))


def build(info: CpuInfo, figures: dict[str, float], origin: str) -> Hardware:
    """Make the machine `host` from the system's description and from measured or estimated rates.

    `origin` is the source of the rates.
    """
    clock, float32 = figures["clock"], figures["float32"]
    bfloat16 = float32 * (2 if _PAIRS in info.flags else 1)
    int8 = float32 * (4 if info.flags & {"avx512_vnni", "avx_vnni", "asimddp"} else 2)
    return Hardware(
        name="host",
        kind="cpu",
        arch=info.arch,
        units=info.cores,
        clock=clock,
        lanes=info.lanes,
        vector_registers=info.vector_registers,
        peak=(("float32", float32), ("float16", float32), ("bfloat16", bfloat16), ("int8", int8)),
        memory=_memory(info, figures),
        launch_overhead=5e-7 if info.cores > 1 else 1e-7,
        tensor_peak=tuple((t, rate * clock * info.cores) for t, (flag, rate) in _TILES.items() if flag in info.flags),
        source=_source(info, origin),
    )


def _memory(info: CpuInfo, figures: dict[str, float]) -> tuple[MemoryLevel, ...]:
    clock = figures["clock"]
    l1, l2, l3 = info.caches
    # A multiply-add is two operations and reads three operands of 4 bytes: 6 bytes an operation.
    sizes = {
        "register": (info.vector_registers * info.lanes * 4, 6 * figures["float32"], info.lanes * 4),
        "l1": (l1, figures["l1"], info.line),
        "l2": (l2, figures["l2"], info.line),
        "l3": (l3, figures["l3"], info.line),
        "dram": (info.memory, figures["dram"], info.line),
    }
    latency = {name: clocks / clock for name, clocks in _LATENCY_CLOCKS.items()} | {"dram": _DRAM_LATENCY}
    stores = {name: {"copied": figures[f"{name}_copied"], "streamed": _streamed(name, figures)} for name in COPIED}
    return tuple(MemoryLevel(n, size, speed, latency[n], unit, **stores.get(n, {})) for n, (size, speed, unit) in sizes.items())


def _streamed(name: str, figures: dict[str, float]) -> float:
    """Return the bytes per second of a copy past the caches: the smaller of two measured rates.

    These are the rate of the copy, and the rate of reading and then storing. The measured copy proceeds line by line, which hides
    more of a store's time than in a kernel that stores in pieces.
    """
    apart = 1.0 / figures[name] + 1.0 / figures[f"{name}_past"]
    return min(figures[f"{name}_streamed"], 1.0 / apart)


def _source(info: CpuInfo, origin: str) -> dict[str, str]:
    source = {
        "name": info.model,
        "units": "affinity mask, physical cores and control group's quota, or $GENSOR_GYM_THREADS",
        "clock": f"{origin}: dependent integer additions",
        "lanes": "feature flags in /proc/cpuinfo",
        "vector_registers": "follows from the vector unit",
        "peak": f"float32 {origin}: register-resident multiply-adds, all cores at once; float16 at its rate (converted, then "
        f"accumulated in float32), bfloat16 {'derived: x2 by vdpbf16ps' if _PAIRS in info.flags else 'too'}; int8 derived: x4 "
        "with dot-product instructions, x2 without",
        "launch_overhead": "estimate of one fork and join (several cores) or one call (one core)",
        "memory.register.capacity": "follows from the vector unit",
        "memory.register.bandwidth": "derived from the float32 peak: three operands a multiply-add",
        "memory.dram.capacity": "sysconf",
        "memory.dram.latency": "estimate, not measured",
    }
    if any(flag in info.flags for flag, _ in _TILES.values()):
        source["tensor_peak"] = "derived from the clock: products in tile registers (AMX)"
    for number, (name, known) in enumerate(zip(("l1", "l2", "l3"), info.described, strict=True)):
        source[f"memory.{name}.capacity"] = "sysfs" if known else f"assumed {info.caches[number]} bytes, not described"
    for name in ("l1", "l2", "l3", "dram"):
        source[f"memory.{name}.bandwidth"] = f"{origin}: sums over a buffer, all cores at once"
        source[f"memory.{name}.transaction"] = "cache line"
    for name in COPIED:
        source[f"memory.{name}.copied"] = f"{origin}: half of a buffer stored into the other, all cores at once"
        source[f"memory.{name}.streamed"] = (
            f"{origin}: the same, stored past the caches; at most what reading and such stores by themselves take"
        )
    for name, clocks in _LATENCY_CLOCKS.items():
        source[f"memory.{name}.latency"] = f"estimate, not measured: {clocks} clocks"
    source["memory.register.transaction"] = "one vector register"
    return source
