"""Time limit of one compilation. Stages of a worker: `measure/workers/deadlines.py`."""

from __future__ import annotations

COMPILE_SECONDS = {"c": 60.0, "cuda": 60.0, "hip": 120.0}
"""Time limit by language. Longer compilations are fully unrolled giants, slow kernels anyway; clang for AMD GPUs is slower."""
DEVICE_COMPILE_SECONDS = 30.0
"""Time limit while a device waits for its kernels: the slowest of three thousand took 27.5 s."""
