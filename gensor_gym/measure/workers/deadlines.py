"""Time limits of a worker process for each stage of a request. `codegen/deadlines.py` has the limits of compilations."""

from __future__ import annotations

STAGE_SECONDS = {
    "start": 120.0,
    "wait": 900.0,
    "load": 30.0,
    "reference": 300.0,
    "verify": 10.0,
    "time": 10.0,
    "check": 10.0,
}
"""Stage of a worker's request -> seconds after which the worker counts as hanging. In stage `wait` it waits for the timing lock.
"""
