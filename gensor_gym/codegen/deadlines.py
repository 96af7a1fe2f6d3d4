"""Time limits of one compilation, in seconds. `measure/workers/deadlines.py` has the limits of a worker's other stages."""

from __future__ import annotations

COMPILE_SECONDS = {"c": 60.0, "cuda": 60.0, "hip": 120.0}
"""Language -> time limit of a compilation, in seconds.

Only huge unrolled kernels exceed it; they are slow anyway. clang for AMD GPUs needs more time.
"""
DEVICE_COMPILE_SECONDS = 30.0
"""Time limit, in seconds, of a compilation for which a device waits: the slowest of 3000 took 27.5 s."""
