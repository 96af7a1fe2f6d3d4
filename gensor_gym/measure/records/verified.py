"""Checks the kernels of stored programs, since a store may contain wrong records of other users.

A kernel is checked on this machine before `reuse` or `tuned` return it for the first time. Checks are noted in a file next to the
user's own store, because a store may be a copy. `imported.py` checks the form of records.
"""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from gensor_gym.cache.folders import make_cache_dir
from gensor_gym.cache.jsons import read_json, write_json
from gensor_gym.cache.owned import is_own
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.codegen.runtime.compile import CompileError
from gensor_gym.codegen.targets import target_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.inputs import decode, with_gaps, without_gaps
from gensor_gym.operators.types import Operator

SEED = 0


def verified(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware, digest: str = "") -> bool:
    """Whether the kernel of a legal program gives the reference's answer. The result is noted after the first check.

    If the answer is wrong or the kernel cannot be built, a RuntimeWarning says so. False without a warning if `digest` is not
    empty and differs from the kernel's digest, because then another kernel was timed.
    """
    try:
        kernel = remembered(op, schedule, hw)
    except (CompileError, ValueError) as error:
        return _left_out(op, schedule, f"not built: {error}")
    if digest not in ("", kernel.digest):
        return False
    if f"{kernel.digest} {target_of(hw).compiler()}" in (_noted(_notes()) or {}):
        return True
    if fault := fault_of(kernel):
        return _left_out(op, schedule, f"wrong: {fault}")
    note_verified(op, schedule, hw)
    return True


def note_verified(
    op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware, generated: Kernel | None = None
) -> None:
    """Record that a program's kernel needs no further check, because a worker of this process has verified it.

    `generated` is the kernel, if known.
    """
    key = f"{remembered(op, schedule, hw, generated).digest} {target_of(hw).compiler()}"
    write_json(_notes(), {**(_noted(_notes()) or {}), key: time.time()})


def _noted(path: Path) -> dict[str, Any] | None:
    """Return the notes of checked kernels in this user's file; None without a file. An unchanged file is read once."""
    if not is_own(path):
        return None
    known = path.stat()
    return _read(path, known.st_ino, known.st_size, known.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, number: int, size: int, changed: int) -> dict[str, Any] | None:
    """Return the content of a file of notes, cached. Inode number, size and time of change identify the file's version."""
    return read_json(path)


def fault_of(kernel: BuiltKernel) -> str:
    """Run a kernel on three sets of inputs, and check its outputs by the error bounds that measurements use.

    Return a message about wrong outputs; empty if all are right.
    """
    from gensor_gym.measure.answers.expectation import make_draws

    for draw in make_draws(kernel.operator, SEED):
        outputs = kernel.operator.outputs
        given = [with_gaps(output) for output in outputs]  # elements that the kernel does not write stay NaN
        inputs = map(with_gaps, kernel.operator.inputs, draw.inputs)
        kernel(*inputs, out=given[0] if len(given) == 1 else tuple(given))
        decoded = [decode(without_gaps(one, array), one.dtype) for array, one in zip(given, outputs, strict=True)]
        if fault := draw.fault(decoded[0] if len(decoded) == 1 else decoded):
            return fault
    return ""


def _left_out(op: Operator | Dataflow, schedule: Schedule | GirSchedule, why: str) -> bool:
    warnings.warn(f"{op}: {schedule} of the store is left out, its kernel is {why}", RuntimeWarning, stacklevel=3)
    return False


def _notes() -> Path:
    return make_cache_dir("tuned") / "verified.json"
