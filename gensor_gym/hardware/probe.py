"""Measuring the host: a small C program, compiled and run in processes of its own, its figures kept on disk.

Nothing is loaded into this process. The figures are measured once for a CPU model and number of cores and read from the
cache afterwards, so that every run on a machine sees the same hardware.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gensor_gym.hardware.cache import cache_dir, read_json, write_json
from gensor_gym.hardware.compiler import Compiler, find_compiler
from gensor_gym.hardware.cpuinfo import CpuInfo

PROBE_VERSION = 1
"""Raised when the program or the meaning of its figures changes; older cache files are then measured again."""
FIGURES = ("clock", "float32", "l1", "l2", "l3", "dram")
"""Hertz, operations per second, bytes per second of each level (all cores together)."""
_WINDOW = 0.2  # seconds for each figure
_MIB = 1024 * 1024


def measured(info: CpuInfo) -> dict[str, float] | None:
    """The six FIGURES of this CPU, from the cache or measured now; None when there is no compiler to measure with."""
    path = cache_path(info)
    figures = _valid(read_json(path), info)
    if figures is not None:
        return figures
    try:
        compiler = find_compiler()
    except RuntimeError:
        return None
    with _lock(path):
        figures = _valid(read_json(path), info)  # another process may have measured while this one waited
        if figures is None:
            figures = run(info, compiler)
            key = {"version": PROBE_VERSION, "model": info.model, "cores": info.cores, "lanes": info.lanes}
            write_json(path, {**key, "compiler": compiler.version, "figures": figures})
    return figures


def cache_path(info: CpuInfo) -> Path:
    """Where the figures of a CPU model with that many cores are kept."""
    # Virtual machines of different hosts may share a model name; caches and flags tell most of them apart.
    text = repr((info.model, info.cores, info.lanes, info.caches, sorted(info.flags)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_dir() / f"host-{digest}.json"


def run(info: CpuInfo, compiler: Compiler, memory: bool = True) -> dict[str, float]:
    """Compile the program and run it, about two seconds. Raises RuntimeError with its output when either fails.

    `memory=False` leaves out the four bandwidths: the clock and the multiply-add loop alone take half a second.
    """
    with tempfile.TemporaryDirectory(prefix="gensor_gym_probe_") as folder:
        program = Path(folder) / "probe"
        source = Path(__file__).with_name("probe.c")
        line = compiler.line(source, program, "native", info.lanes, shared=False)
        _call([*line, f"-DLANES={info.lanes}", f"-DREGISTERS={info.vector_registers}"], "compile")
        words = [str(info.cores), str(_WINDOW)]
        for name, size, shared in _buffers(info) if memory else ():
            words += [name, str(size), str(int(shared))]
        text = _call([str(program), *words], "run")
    figures = {name: float(value) for name, value in (entry.split() for entry in text.splitlines())}
    return {name: figures[name] for name in FIGURES if memory or name in figures}


def _buffers(info: CpuInfo) -> list[tuple[str, int, bool]]:
    """(level, bytes per thread, whether cores share the level): each fits its level and not the one before."""
    l1, l2, l3 = info.caches
    main = min(max(4 * l3, 128 * _MIB), 512 * _MIB, info.memory // 4)
    middle = max(2 * l2, min(l3 // (2 * info.cores), 4 * l2))
    return [
        ("l1", l1 // 2, False),
        ("l2", max(l2 // 2, min(2 * l1, l2)), False),
        ("l3", middle, True),
        ("dram", main // info.cores, True),
    ]


def _call(command: list[str], what: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"could not {what} the host probe: {error}") from error
    if done.returncode != 0:
        raise RuntimeError(f"could not {what} the host probe (exit {done.returncode}): {done.stderr.strip()[-2000:]}")
    return done.stdout


def _valid(stored: dict[str, object] | None, info: CpuInfo) -> dict[str, float] | None:
    """The figures in a cache file if it belongs to this CPU and every figure is a positive number."""
    if stored is None or stored.get("version") != PROBE_VERSION or stored.get("model") != info.model:
        return None
    figures = stored.get("figures")
    if stored.get("cores") != info.cores or stored.get("lanes") != info.lanes or not isinstance(figures, dict):
        return None
    values = {name: figures[name] for name in FIGURES if isinstance(figures.get(name), float)}
    good = len(values) == len(FIGURES) and all(math.isfinite(v) and v > 0 for v in values.values())
    return values if good else None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process measure at a time; where the folder cannot be written there is nothing to guard."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".lock").open("w", encoding="utf-8")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
