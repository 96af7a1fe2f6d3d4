"""Small tuning spaces for tests: the files in tests/data, those of the benchmark hub where they are, and random ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data" / "kernel_tuner"
CACHE, T4 = DATA / "product_cache.json", DATA / "product_t4.json"
HUB = os.environ.get("GENSOR_GYM_HUB", "")
HUB_FILES = sorted(path for path in Path(HUB).glob("*.json.gz") if HUB)
"""Spaces of the benchmark hub: files X.json.gz (caches) and X_T4.json.gz, in the folder that GENSOR_GYM_HUB names."""


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def random_cache(seed: int, share: float = 0.5) -> dict[str, Any]:
    """A cache of up to 60 configurations of text, numbers and truth values, with failures of every kind and gaps."""
    rng = np.random.default_rng(seed)
    values: dict[str, list[Any]] = {"x": [1, 2, 4, 8, 16], "kind": ["b", "a, b", '"c"'], "on": [False, True]}
    values |= {"y": [0.5, 3], "z": [7]}
    entries = {}
    for place in np.ndindex(*map(len, values.values())):
        if entries and rng.random() > share:
            continue
        entry: dict[str, Any] = {name: options[i] for (name, options), i in zip(values.items(), place, strict=True)}
        key = ",".join(map(str, entry.values()))
        samples = (rng.gamma(9.0, 0.1, size=7) + 0.1).tolist()
        fault = rng.choice(["", "", "InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig"]) if entries else ""
        entry |= {"time": fault} if fault and rng.random() < 0.5 else {"__error__": fault} if fault else {}
        entry |= {} if fault else {"time": float(np.mean(samples)), "times": samples, "GFLOP/s": 1.5}
        entry |= {"compile_time": 9.5, "verification_time": 0, "benchmark_time": 1.25} if rng.random() < 0.8 else {}
        entry |= {"timestamp": "2026-01-01", "extra": {"a": [1, None, True]}} if rng.random() < 0.5 else {}
        entries[key] = entry
    head = {"device_name": "d", "kernel_name": "k", "problem_size": [4, 4], "tune_params_keys": list(values)}
    return {**head, "tune_params": values, "objective": ["time"], "unknown": {"deep": [None]}, "cache": entries}


def random_t4(seed: int) -> dict[str, Any]:
    """A T4 document with things that Kernel Tuner does not write."""
    rng = np.random.default_rng(seed)
    words = ["correct", "correct", "timeout", "compile", "runtime", "correctness", "constraints"]
    results: list[dict[str, Any]] = []
    for x in range(5):
        for name in ("u", "v"):
            word = str(rng.choice(words)) if results else "correct"
            times = {"compilation_time": 0.5, "runtimes": rng.uniform(0.1, 1.0, size=6).tolist() if word == "correct" else []}
            extra = {"tag": x} if rng.random() < 0.5 else {}
            measured = [{"name": "power", "value": [1, 2], "unit": "W"}, {"name": "power", "value": 3}]
            results.append({
                "configuration": {"x": x, "name": name}, "objectives": ["time", "power"], "times": times, "invalidity": word,
                "correctness": 0.5, "measurements": measured, **extra,
            })  # fmt: skip
    meta = {"timeunit": ["s", "ms", "microseconds"][seed % 3], "who": ["me"]}
    return {"schema_version": "1.0.0", "results": results, "metadata": meta, "more": 1}
