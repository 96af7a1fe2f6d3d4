"""A made-up kernel recorded on three made-up devices, whose best configurations lie apart."""

from __future__ import annotations

import json
from pathlib import Path

BEST = {"near": (16, 4), "same": (16, 4), "far": (128, 1)}
"""Best values of x and y by device."""
X, Y = (8, 16, 32, 64, 128, 256), (1, 2, 4, 8, 16)


def seconds(device: str, x: int, y: int) -> float:
    """A bowl around the best: one place off costs a fifth, more along x."""
    best_x, best_y = BEST[device]
    return 1e-3 * 1.2 ** (1.5 * abs(X.index(x) - X.index(best_x)) + abs(Y.index(y) - Y.index(best_y)))


def write_space(folder: Path, device: str) -> Path:
    """A cache of X times Y; x = 256 with y = 16 fails everywhere."""
    cache = {}
    for x in X:
        for y in Y:
            failed = (x, y) == (256, 16)
            cache[f"{x},{y}"] = {"time": "RuntimeFailedConfig"} if failed else {"time": 1e3 * seconds(device, x, y)}
    document = {
        "device_name": device, "kernel_name": "bowl", "tune_params_keys": ["x", "y"],
        "tune_params": {"x": list(X), "y": list(Y)}, "cache": cache,
    }  # fmt: skip
    path = folder / f"{device}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
