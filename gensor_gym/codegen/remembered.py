"""Kernels whose text was generated on this machine before: a repeated program is neither checked nor generated again.

The user's cache holds texts under a hash of computation, schedule, machine and all of this package's sources, so changed sources
do not find them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from gensor_gym.cache.folders import cache_dir, private_dir
from gensor_gym.cache.owned import read_own
from gensor_gym.codegen import targets
from gensor_gym.codegen.build import BuiltKernel, build
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.files import write_whole
from gensor_gym.foreign import parse_object
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

FOLDER = "texts"
LATELY = 256
"""Kernels that a process has at hand, those used last: a network has some dozens."""
_KEPT = ("language", "arch", "source", "workspace_bytes", "prepares", "task_rows", "tasks_of_block")
"""Fields of a kernel in its cache file besides its launches."""


def remembered(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> BuiltKernel:
    """As `build`, compiled; the text comes from the cache if it was written before.

    Texts of GPUs are not cached. ValueError and CompileError as of those.
    """
    folder, key = cache_dir(), _key(op, schedule, hw)
    kernel = _lately(folder, key)
    if not kernel:
        kernel.append(_written(op, schedule, hw, key))
    targets.get(kernel[0].language).prepare(kernel[0])
    return kernel[0]


@functools.lru_cache(maxsize=LATELY)
def _lately(folder: Path, key: str) -> list[BuiltKernel]:
    """A place for the kernel of a key, which this process keeps."""
    return []


def _written(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware, key: str) -> BuiltKernel:
    """The kernel from its file, or generated and written now."""
    path = private_dir(FOLDER) / f"{key}.json"
    kernel = _read(path, op)
    if kernel is None:
        made = build(op, schedule, hw)
        kernel = BuiltKernel(**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)})
        if not kernel.maps and kernel.language == "c":
            write_whole(path, _text(kernel).encode(), 0o600)
    return kernel


def _key(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> str:
    """Everything that a text depends on. Operators and graphs count by content, because a name may change its meaning."""
    parts = [sources(), repr(op), str(schedule), repr(hw)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def sources() -> str:
    """A hash of the package's own files, the key of cached results."""
    folder = Path(__file__).parents[1]
    files = sorted(path for kind in ("*.py", "*.c", "*.h") for path in folder.rglob(kind))
    found = hashlib.sha256()
    for path in files:
        found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def _text(kernel: Kernel) -> str:
    """A kernel as JSON."""
    launches = [dataclasses.asdict(launch) for launch in kernel.launches]
    return json.dumps({name: getattr(kernel, name) for name in _KEPT} | {"launches": launches})


def _read(path: Path, op: Operator | Dataflow) -> BuiltKernel | None:
    """The kernel in a file; None unless this user wrote it completely."""
    try:
        found = parse_object(read_own(path).decode())
        launches = tuple(_launch(one) for one in found["launches"])
        return BuiltKernel(operator=op, launches=launches, **{name: found[name] for name in _KEPT})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is written anew


def _launch(found: dict[str, Any]) -> Launch:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return Launch(**plain)
