"""Measurement of the host: a small C program is compiled and run in separate processes, and its figures are kept on disk.

Nothing is loaded into this process. The figures are measured once for a CPU model and number of cores and read from the cache
afterwards, so that all runs on a machine see the same hardware after a quiet measurement. Figures taken while other programs used
part of the cores are lower bounds: they are used for ten minutes, then measured again; larger figures are kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_gym.cache.folders import cache_dir
from gensor_gym.cache.jsons import read_kept, write_json
from gensor_gym.hardware.compiler import Compiler, find_compiler
from gensor_gym.hardware.cpuinfo import CpuInfo, usable_time

PROBE_VERSION = 4
"""Version of the measuring program and of the meaning of its figures. Cache files of another version are measured again."""
COPIED = ("l3", "dram")
"""Memory levels whose copies are timed, through the caches and past them."""
HOW = {"copied": "copy", "streamed": "stream", "past": "past"}
"""Suffix of a figure's name -> operation of the measuring program that measures it."""
PRIVATE = ("l1", "l2")
"""Levels that are private to each core."""
FIGURES = ("clock", "float32", "l1", "l2", "l3", "dram", *(f"{level}_{how}" for level in COPIED for how in HOW))
"""Names of the figures: hertz, operations per second, then bytes per second of all cores together. The bytes per second are
those of reading each level, of copying (each byte counts once), of copying past the caches, and of storing past the caches."""
QUIET = 0.9
"""Share of the cores' time that the measuring program must have for its figures to be kept permanently."""
TRIES = 3
"""Maximum number of successive measurements. They end with the first quiet measurement."""
RETRY = 600.0
"""Seconds for which figures of a busy machine may be used before a new measurement."""
_WINDOW = 0.2  # seconds for each figure
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Reading:
    """Rates of a CPU that the measuring program found."""

    figures: dict[str, float]
    """Measured figures by name (FIGURES), such as bytes per second."""
    share: float
    """Share of the cores' time that the measuring program's threads had. Other programs had the rest."""

    @property
    def quiet(self) -> bool:
        """Whether the measuring program had almost all time of the cores (a share of at least `QUIET`)."""
        return self.share >= QUIET

    def merged(self, other: Reading | None) -> Reading:
        """Return a reading with the larger value of each figure in both readings, because load can only lower a figure."""
        if other is None:
            return self
        figures = {name: max(value, other.figures.get(name, 0.0)) for name, value in self.figures.items()}
        return Reading(figures, max(self.share, other.share))


def measured(info: CpuInfo) -> Reading | None:
    """Return the rates of the CPU, from the cache or measured now; None without a compiler and without cached rates."""
    path = cache_path(info)
    kept, settled = _kept(path, info)
    if settled:
        return kept
    try:
        compiler = find_compiler()
    except RuntimeError:
        return kept
    with _lock(path):
        kept, settled = _kept(path, info)  # another process may have measured while this one waited
        if not settled:
            kept = _measure(info, compiler, kept)
            _keep(path, info, kept, {"compiler": compiler.version, "at": time.time()})
    return kept


def _measure(info: CpuInfo, compiler: Compiler, kept: Reading | None) -> Reading:
    """Measure the CPU, up to `TRIES` times until the machine is quiet; return the figures merged with the cached figures."""
    reading = run(info, compiler).merged(kept)
    for _ in range(TRIES - 1):
        if reading.quiet:
            break
        reading = run(info, compiler).merged(reading)
    return reading


def doubt(info: CpuInfo) -> None:
    """Mark the cached rates as doubtful: the next call of `measured` measures again and keeps the larger rates.

    Called after a correct kernel ran faster than the cached rates allow.
    """
    path = cache_path(info)
    with _lock(path):
        kept, _ = _kept(path, info)
        if kept is not None:
            _keep(path, info, Reading(kept.figures, 0.0), {"at": 0.0})


def cache_path(info: CpuInfo) -> Path:
    """Return the cache file with the rates of a CPU model and number of cores."""
    # Virtual machines of different hosts may share a model name; caches and flags distinguish most of them.
    text = repr((info.model, info.cores, info.lanes, info.caches, sorted(info.flags)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_dir() / f"host-{digest}.json"


def run(info: CpuInfo, compiler: Compiler, memory: bool = True) -> Reading:
    """Compile the measuring program and run it, which takes about three seconds. RuntimeError with its output if either fails.

    `memory=False` skips the bandwidths: the clock and the multiply-add loop take half a second.
    """
    with tempfile.TemporaryDirectory(prefix="gensor_gym_probe_") as folder:
        program = Path(folder) / "probe"
        source = Path(__file__).with_name("probe.c")
        line = compiler.line(source, program, info.arch, info.lanes, shared=False)
        _call([*line, f"-DLANES={info.lanes}", f"-DREGISTERS={info.vector_registers}"], "compile")
        words = [str(info.cores), str(_WINDOW)]
        for name, what, size, shared in _buffers(info) if memory else ():
            words += [name, what, str(size), str(int(shared))]
        text = _call([str(program), *words], "run")
    values = {name: float(value) for name, value in (entry.split() for entry in text.splitlines())}
    # If a forced number of threads exceeds the CPUs or the quota, each thread has less than a whole CPU.
    possible = min(1.0, usable_time() / info.cores)
    return Reading({name: values[name] for name in FIGURES if memory or name in values}, values["share"] / possible)


def _buffers(info: CpuInfo) -> list[tuple[str, str, int, bool]]:
    """Return (figure, operation, bytes per thread, whether cores share the level) for every buffer to measure with.

    A buffer fits in its level of memory and not in the level inside it.
    """
    l1, l2, l3 = info.caches
    main = min(max(4 * l3, 128 * _MIB), 512 * _MIB, info.memory // 4)
    sizes = {
        "l1": l1 // 2,
        "l2": max(l2 // 2, min(2 * l1, l2)),
        "l3": max(2 * l2, min(l3 // (2 * info.cores), 4 * l2)),
        "dram": main // info.cores,
    }
    read = [(name, "read", size, name not in PRIVATE) for name, size in sizes.items()]
    copied = [(f"{name}_{how}", what, sizes[name], True) for name in COPIED for how, what in HOW.items()]
    return read + copied


def _call(command: list[str], what: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"could not {what} the host probe: {error}") from error
    if done.returncode != 0:
        raise RuntimeError(f"could not {what} the host probe (exit {done.returncode}): {done.stderr.strip()[-2000:]}")
    return done.stdout


def _keep(path: Path, info: CpuInfo, reading: Reading, facts: dict[str, Any]) -> None:
    """Write the cache file: the CPU's key, `facts` about the measurement, and the reading."""
    key = {"version": PROBE_VERSION, "model": info.model, "cores": info.cores, "lanes": info.lanes}
    write_json(path, {**key, **facts, "share": reading.share, "figures": reading.figures})


def _kept(path: Path, info: CpuInfo) -> tuple[Reading | None, bool]:
    """Return (cached reading for the CPU or None, whether it suffices because it is quiet or recent)."""
    stored = read_kept(path)
    if stored is None or stored.get("version") != PROBE_VERSION or stored.get("model") != info.model:
        return None, False
    figures, share, at = (stored.get(name) for name in ("figures", "share", "at"))
    if stored.get("cores") != info.cores or stored.get("lanes") != info.lanes or not isinstance(figures, dict):
        return None, False
    values = {name: figures[name] for name in FIGURES if isinstance(figures.get(name), float)}
    good = len(values) == len(FIGURES) and all(math.isfinite(v) and v > 0 for v in values.values())
    if not (good and isinstance(share, float) and isinstance(at, float)):
        return None, False
    reading = Reading(values, share)
    return reading, reading.quiet or 0 <= time.time() - at < RETRY


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock in the `with` block, so that one process measures at a time. No lock if the folder is not writable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".lock").open("w", encoding="utf-8")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
