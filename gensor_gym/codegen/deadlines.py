"""Time limits of one compilation, in seconds. `measure/workers/deadlines.py` has the limits of a worker's other stages."""

from __future__ import annotations

COMPILE_SECONDS = {"c": 60.0, "cuda": 60.0, "hip": 120.0}
"""Time limit by language. Only huge unrolled kernels, which are slow anyway, take longer; clang for AMD GPUs needs more time."""
DEVICE_COMPILE_SECONDS = 30.0
"""Time limit of a compilation while a device waits for its result: the slowest of three thousand took 27.5 s."""
