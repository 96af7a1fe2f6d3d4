"""Description of a GPU machine for results: device, driver, versions, clocks, date. Nothing here opens a CUDA context."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys

_FIELDS = (
    "name", "driver_version", "memory.total", "compute_cap", "pci.bus_id", "pstate", "clocks.sm", "clocks.mem",
    "clocks.max.sm", "clocks.max.mem", "clocks.applications.graphics", "power.draw", "power.limit", "temperature.gpu",
    "persistence_mode", "mig.mode.current", "ecc.mode.current", "utilization.gpu", "memory.used",
)  # fmt: skip
_PACKAGES = (
    "numpy", "numba", "llvmlite", "gymnasium", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "cuda-bindings",
    "nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-cudnn-cu13", "stable-baselines3", "sb3-contrib",
)  # fmt: skip


def machine_card() -> dict[str, object]:
    """Return what the machine reports: date, system, cores, package versions, git commit and the state of its GPU."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "packages": versions(),
        "commit": _said(["git", "rev-parse", "HEAD"]),
        "gpu": gpu_state(),
        "nvidia_smi": _said(["nvidia-smi"]),
    }


def gpu_state() -> dict[str, str]:
    """Return what nvidia-smi reports about GPU 0, by field; empty without it. Fields unknown to the driver are left out."""
    whole = _query(_FIELDS)
    if whole:
        return whole
    found: dict[str, str] = {}
    for field in _FIELDS if _query(("name",)) else ():
        found |= _query((field,))
    return found


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that measurements depend on; missing packages are left out."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _query(fields: tuple[str, ...]) -> dict[str, str]:
    """Return the values of these fields of nvidia-smi, by field; {} if it rejects one of them."""
    text = _said(["nvidia-smi", "-i", "0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"])
    values = [value.strip() for value in text.split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) and text else {}


def _said(command: list[str]) -> str:
    """Run a command and return its output; empty if the command is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
