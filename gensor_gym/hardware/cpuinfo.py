"""Facts about the CPU from the operating system: model, usable cores, caches, vector registers."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

THREADS = "GENSOR_GYM_THREADS"
NARROW = "GENSOR_GYM_AVX2"
"""Environment variable: 1 makes a CPU with AVX-512 use AVX2 only, which gives a second machine to learn on."""
WITHOUT_AVX512 = "x86-64-v3"
"""Compilers' name of the architecture for kernels without AVX-512."""
KIB = 1024
MIB = 1024 * 1024
ASSUMED_CACHES = {1: 32 * KIB, 2: 512 * KIB, 3: 8 * MIB}
"""Cache level -> bytes that are assumed for it if the system does not describe it."""


@dataclass(frozen=True)
class CpuInfo:
    """Facts about a CPU that the operating system gives, such as cores and cache sizes. Nothing is measured."""

    model: str
    cores: int
    """Physical cores that this process may use at once, or $GENSOR_GYM_THREADS."""
    lanes: int
    vector_registers: int
    flags: frozenset[str]
    caches: tuple[int, int, int]
    """Bytes of the L1 data cache per core, of L2 per core, and of L3 in total."""
    described: tuple[bool, bool, bool]
    """Whether the system described each of the three caches. Sizes of the others are assumed."""
    line: int
    """Bytes of a cache line."""
    memory: int
    """Bytes of main memory."""
    arch: str = "native"
    """Architecture for which C kernels are compiled: `native`, or WITHOUT_AVX512."""


def cpu_info() -> CpuInfo:
    """Describe the CPU of this machine. ValueError if $GENSOR_GYM_THREADS or $GENSOR_GYM_AVX2 has an invalid value."""
    model, flags = parse_cpuinfo(_read(Path("/proc/cpuinfo")))
    if narrow := _narrows(flags):
        flags = frozenset(flag for flag in flags if not flag.startswith(("avx512", "avx_vnni", "amx")))
    lanes, registers = vector_unit(flags, platform.machine())
    found, line = caches(Path("/sys/devices/system/cpu"), usable_cpus())
    sizes = (found.get(1, ASSUMED_CACHES[1]), found.get(2, ASSUMED_CACHES[2]), found.get(3, ASSUMED_CACHES[3]))
    described = (1 in found, 2 in found, 3 in found)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    arch = WITHOUT_AVX512 if narrow else "native"
    return CpuInfo(model, usable_cores(), lanes, registers, flags, sizes, described, line, memory, arch)


def _narrows(flags: frozenset[str]) -> bool:
    """Whether $GENSOR_GYM_AVX2 asks to use AVX2 only. ValueError if it is neither 0 nor 1, or is 1 without AVX-512."""
    value = os.environ.get(NARROW, "").strip()
    if value not in ("", "0", "1"):
        raise ValueError(f"${NARROW}={value!r} must be 0 or 1")
    if value == "1" and "avx512f" not in flags:
        raise ValueError(f"${NARROW}=1: this processor has no AVX-512 to leave unused; unset it")
    return value == "1"


def is_narrow() -> bool:
    """Whether $GENSOR_GYM_AVX2 makes this machine's kernels use AVX2 only. ValueError if its value is invalid."""
    return cpu_info().arch == WITHOUT_AVX512


def usable_cpus() -> list[int]:
    """Return the numbers of the logical CPUs that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def forced_threads() -> int | None:
    """Return the value of $GENSOR_GYM_THREADS; None if it is unset. ValueError if it is not an integer of at least 1."""
    forced = os.environ.get(THREADS, "").strip()
    if forced and (not forced.isdecimal() or int(forced) < 1):
        raise ValueError(f"${THREADS}={forced!r} must be a whole number of at least 1")
    return int(forced) if forced else None


def usable_cores() -> int:
    """Return the number of cores that a kernel may use.

    It is $GENSOR_GYM_THREADS if set, else the number of physical cores in the affinity mask, at most the control group's quota.
    """
    if forced := forced_threads():
        return forced
    topology = Path("/sys/devices/system/cpu")
    # Two hardware threads of one core share its arithmetic units; a kernel gains nothing from the second.
    cores = {_read(topology / f"cpu{n}" / "topology" / "thread_siblings_list") or str(n) for n in usable_cpus()}
    quota = own_quota()
    return len(cores) if quota is None else max(1, min(len(cores), int(quota)))


def usable_time() -> float:
    """Return the CPU seconds that this process may use per second: the number of its logical CPUs, at most its quota."""
    quota = own_quota()
    return float(len(usable_cpus())) if quota is None else min(float(len(usable_cpus())), quota)


def own_quota() -> float | None:
    """Return the CPU quota of this process's control group, in CPU seconds per second; None without a limit."""
    return cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def cgroup_quota(membership: Path, root: Path) -> float | None:
    """Return how many CPU seconds per second a control group (version 1 or 2) allows; None without a limit.

    `membership` is the file /proc/self/cgroup, `root` the folder in which control groups are mounted.
    """
    own = [entry.split(":", 2)[2].strip("/") for entry in _read(membership).splitlines() if entry.count(":") >= 2]
    limits = []
    for folder in {root / name for name in ["", *own]} | {root / "cpu" / name for name in ["", *own]}:
        limits.append(_limit(*(_read(folder / "cpu.max").split() or ["max", "1"])[:2]))
        limits.append(_limit(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")))
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(quota: str, period: str) -> float | None:
    if not (quota.isdecimal() and period.isdecimal()) or int(period) == 0:
        return None
    return int(quota) / int(period)


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Return (model name, feature flags) from the text of /proc/cpuinfo (x86 or ARM).

    If no model is named, the name is the platform's.
    """
    fields: dict[str, str] = {}
    for entry in text.splitlines():
        key, _, value = entry.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    flags = frozenset(fields.get("flags", fields.get("features", "")).split())
    model = fields.get("model name") or " ".join(
        f"{key.split()[-1]} {fields[key]}" for key in ("cpu implementer", "cpu part") if key in fields
    )
    return model or platform.processor() or platform.machine(), flags


def vector_unit(flags: frozenset[str], machine: str) -> tuple[int, int]:
    """Return (float32 lanes of a vector register, number of vector registers): AVX-512, AVX2 with FMA, NEON, or SSE.

    `machine` is the architecture's name, such as `aarch64`.
    """
    if "avx512f" in flags:
        return 16, 32
    if {"avx2", "fma"} <= flags:
        return 8, 16
    if "asimd" in flags or machine in ("aarch64", "arm64"):
        return 4, 32
    return 4, 16


def caches(folder: Path, cpus: list[int]) -> tuple[dict[int, int], int]:
    """Return (bytes of the caches by level, bytes of a cache line), read from sysfs.

    L1 (data) and L2 are one core's share, L3 is the sum of all L3 caches. A level that is not described is missing.
    """
    shared: dict[int, dict[str, int]] = {}
    line = 64
    for cpu in cpus:
        siblings = _count(_read(folder / f"cpu{cpu}" / "topology" / "thread_siblings_list")) or 1
        for index in sorted((folder / f"cpu{cpu}" / "cache").glob("index*")):
            size = parse_size(_read(index / "size"))
            level = _read(index / "level")
            if size is None or not level.isdecimal() or _read(index / "type") == "Instruction":
                continue
            users = _read(index / "shared_cpu_list") or str(cpu)
            share = size if int(level) >= 3 else size // max(1, _count(users) // siblings)
            shared.setdefault(int(level), {})[users] = share
            line = int(_read(index / "coherency_line_size") or line)
    found = {level: sum(s.values()) if level >= 3 else min(s.values()) for level, s in shared.items()}
    return found, line


def parse_size(text: str) -> int | None:
    """Return the bytes of a size such as `48K`, `1M` or `512`; None for any other text."""
    unit = {"K": KIB, "M": MIB, "G": KIB * MIB}.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    return int(digits) * unit if digits.isdecimal() and int(digits) > 0 else None


def _count(cpus: str) -> int:
    """Return the number of CPUs in a list such as `0-3,8`."""
    total = 0
    for part in filter(None, cpus.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _read(path: Path) -> str:
    """Return the text of a file; empty if the file does not exist or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
