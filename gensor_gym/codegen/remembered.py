"""A cache of generated C kernels on disk: a program that was generated before is neither checked nor generated again.

The key is a hash of the computation, the schedule, the machine and all sources of this package, so a change of the sources
invalidates the cache.
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
from gensor_gym.cache.sources import sources
from gensor_gym.codegen import targets
from gensor_gym.codegen.build import BuiltKernel, build, built
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
"""Number of kernels that a process keeps in memory: those used most recently. A network has some dozens."""
_KEPT = ("language", "arch", "source", "workspace_bytes", "prepares", "task_rows", "tasks_of_block")
"""Fields of a kernel that its cache file contains, in addition to the launches."""


def remembered(
    op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware, generated: Kernel | None = None
) -> BuiltKernel:
    """Return a callable kernel as `build` does, with its source from the cache if it was generated before.

    `generated` is the kernel if the caller has it. The cache file of a GPU kernel is never written. ValueError and CompileError
    as from `build`.
    """
    folder, key = cache_dir(), _key(op, schedule, hw)
    kernel = _lately(folder, key)
    if not kernel:
        kernel.append(_written(op, schedule, hw, key, generated))
    targets.get(kernel[0].language).prepare(kernel[0])
    return kernel[0]


@functools.lru_cache(maxsize=LATELY)
def _lately(folder: Path, key: str) -> list[BuiltKernel]:
    """Return the list that keeps the kernel of `key` in this process; it is empty until the caller appends the kernel.

    Calls with equal arguments return the same list, for the last `LATELY` pairs of arguments.
    """
    return []


def _written(
    op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware, key: str, generated: Kernel | None
) -> BuiltKernel:
    path = private_dir(FOLDER) / f"{key}.json"
    kernel = _read(path, op)
    if kernel is None:
        made = build(op, schedule, hw) if generated is None else built(generated)
        kernel = BuiltKernel(**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)})
        if not kernel.maps and kernel.language == "c":
            write_whole(path, _text(kernel).encode(), 0o600)
    return kernel


def _key(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> str:
    """Return a hash of everything that a kernel's source depends on.

    Operators and graphs enter by content, since names may be redefined.
    """
    parts = [sources(), repr(op), str(schedule), repr(hw)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _text(kernel: Kernel) -> str:
    launches = [dataclasses.asdict(launch) for launch in kernel.launches]
    return json.dumps({name: getattr(kernel, name) for name in _KEPT} | {"launches": launches})


def _read(path: Path, op: Operator | Dataflow) -> BuiltKernel | None:
    """Return the kernel in a cache file; None if the file is missing or incomplete, or if other users can write to it."""
    try:
        found = parse_object(read_own(path).decode())
        launches = tuple(_launch(one) for one in found["launches"])
        return BuiltKernel(operator=op, launches=launches, **{name: found[name] for name in _KEPT})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is written again


def _launch(found: dict[str, Any]) -> Launch:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return Launch(**plain)
