"""Files that ship: goldens, recorded tables and spaces, certificates by their bytes; policies by their numbers.

Files are found by their own name and their folder's, wherever in the project that folder is: they may move.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.identical.digests import of, of_bytes

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("gensor_gym", "agents", "experiments", "results", "tests")
TABLES = ("recordings/*/*.parquet", "recordings/*/*.json", "golden/recorded/*.parquet", "golden/recorded/*.json",
          "benchmark_hub/*/*.json.gz", "kernel_tuner/*.json")  # fmt: skip
"""Tables that were recorded, and spaces."""


def found(*patterns: str) -> Iterator[tuple[str, Path]]:
    """(name with its folder's, path) of the files below TOPS that a pattern fits; ValueError for a name that comes twice."""
    paths = {path for pattern in patterns for top in TOPS for path in (ROOT / top).rglob(pattern)}
    names: dict[str, Path] = {}
    for path in sorted(paths):
        name = "/".join(path.parts[-2:])
        if name in names:
            raise ValueError(f"{name} is there twice: {names[name]} and {path}")
        names[name] = path
    yield from sorted(names.items())


def tables() -> dict[str, str]:
    """Recorded tables and recorded spaces."""
    return {name: of_bytes(path.read_bytes()) for name, path in found(*TABLES)}


def certificates() -> dict[str, str]:
    """Files of certificates."""
    return {name: of_bytes(path.read_bytes()) for name, path in found("certificates/*.jsonl")}


def goldens() -> dict[str, str]:
    """Every entry of the golden files."""
    digests = {}
    for name, path in found("golden/episodes.json", "golden/kernels.json"):
        golden = json.loads(path.read_text(encoding="utf-8"))
        digests |= {f"{name}: {entry}": of(value) for entry, value in golden["entries"].items()}
    return digests


def policies() -> dict[str, str]:
    """Weights of every shipped policy, whatever they are called; their entries have the name of the file that held them first."""
    held = {path.parent.name: path for _, path in found("policies/*/policy.safetensors")}
    return {f"{name}/policy.zip": of(sorted(map(_array, load_file(path).values()))) for name, path in held.items()}


def _array(array: np.ndarray) -> list[object]:
    """Type, shape and digest of an array."""
    return [str(array.dtype), list(array.shape), of_bytes(np.ascontiguousarray(array).tobytes())]
