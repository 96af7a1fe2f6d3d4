"""Stage 2: the best kernel that the model's ranking finds, compared with torch (cuBLAS, cuDNN) and torch.compile (Triton).

The first candidates of each operator are tried, and the fastest is timed again together with the library, in interleaved rounds,
by the same protocol: warm caches, CUDA graphs on both sides, TF32 only for operators of that type. Candidates of several
operators are made and compiled while one is timed (`turns`). After all operators had their turn, the operators furthest behind
get another. torch.compile takes seconds to compile, so it comes last, if there is time left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from experiments.device.card import gpu_state
from experiments.device.context import Context, StageJournal
from experiments.device.stages.candidates import made
from experiments.device.table import read_operators
from experiments.device.work.makers import open_makers
from experiments.device.work.progress import Progress, say
from experiments.device.work.trials import FINAL, SEARCH, device_pipeline, or_without_torch, summary_of
from experiments.device.work.turns import Entry, Turns
from experiments.statistics import geometric_mean
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.device_trials import device_backends
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.stats.intervals import ratio_interval
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.operators.types import Operator

FILE = "operators.jsonl"
ROUNDS = 21
COMPILED_ROUNDS = 15
COMPILED = ("gemm", "batched_gemm", "gemv", "elementwise", "reduce_sum", "avg_pool2d", "max_pool2d")
"""Operators for which torch.compile generates a kernel; convolutions go to cuDNN with and without it."""
RESERVED = 0.08
"""Share of the stage's time kept for comparing the last programs."""


def run(context: Context) -> dict[str, object]:
    """Write a row for each operator and round, then a row for each operator with torch.compile; return the digest."""
    hw = hardware.get(context.hardware)
    table = read_operators()
    search, final = device_backends(SEARCH, FINAL)
    with closing(search), closing(context.journal(FILE)) as journal, open_makers() as makers:
        pending = [name for name in table if journal.pending(name)]
        jobs = {name: makers.submit(made, table[name], hw.name, context.seed) for name in pending}
        entries = [Entry(name, table[name], jobs[name]) for name in pending]
        for entry in _tried(entries, context, hw, search):
            if context.left > 0:
                journal.begin(entry.name)
                journal.put(entry.name, _row(entry, hw, final, journal))
        for name, op in table.items():
            key = f"{name} torch.compile"
            best = journal.done.get(name, {}).get("schedule")
            if best and op.name in COMPILED and context.left > 0:
                journal.once(key, _compiled, op, Schedule.parse(best), hw, final)
    return digest(context)


def _tried(entries: list[Entry], context: Context, hw: Hardware, search: NativeBackend) -> Iterator[Entry]:
    """Yield operators as their rounds end, to be compared at once, and finally the operators in the middle of a round."""

    def left() -> float:
        return context.left - RESERVED * context.seconds

    turns = Turns(entries, left)
    pipeline = device_pipeline(search, hw, lambda ticket: ticket[0], turns.admit)
    progress = Progress("candidates")
    for ticket, measurement in pipeline.run(turns.work(), lambda: left() > 0):
        turns.take(ticket, measurement, pipeline.busy)
        progress.count(f"{sum(entry.rounds > 0 for entry in entries)} of {len(entries)} operators compared")
        yield from turns.settled()
        turns.next_round()
    yield from turns.settled()
    yield from turns.unsettled()


def _row(entry: Entry, hw: Hardware, final: NativeBackend, journal: StageJournal) -> dict[str, object]:
    """Row of an operator: the tried programs, and the fastest compared with torch.

    If a later round finds no faster program, the row keeps the earlier times.
    """
    op = entry.op
    row: dict[str, object] = {"operator": str(op), "flops": op.flops, "bytes": op.compulsory_bytes}
    row |= {"roofline_s": roofline_floor(op, hw), "rounds": entry.rounds}
    row["trials"] = [
        {"schedule": str(s), "status": m.status.value, "seconds": _finite(m), "error": m.error[-300:]} for s, m in entry.tried
    ]
    if entry.best is None:
        return {**row, "error": entry.failed or "no candidate ran well"}
    schedule, measured = entry.best
    before = journal.done.get(entry.name, {})
    if before.get("schedule") == str(schedule) and "seconds" in before:
        return {**before, **row}
    row |= {"schedule": str(schedule), "conditions": measured.conditions}
    kernel = make_kernel(op, schedule, hw)
    assert isinstance(kernel, Kernel)
    samples, errors = or_without_torch(lambda torch: final.compare({"gensor_gym": kernel}, hw, ROUNDS, torch=torch))
    if not samples:
        return {**row, **errors}
    found = compared(samples, op)
    entry.ahead = min((ratio["median"] for ratio in found["speedup_over"].values()), default=None)
    say(f"{entry.name}: {len(entry.tried)} tried, library over ours {entry.ahead or 'unknown'}")
    return {**row, **errors, **found}


def _compiled(op: Operator, schedule: Schedule, hw: Hardware, final: NativeBackend) -> dict[str, object]:
    """Compare the winner with torch and torch.compile and return the row."""
    kernel = make_kernel(op, schedule, hw)
    assert isinstance(kernel, Kernel)
    row: dict[str, object] = {"operator": str(op), "schedule": str(schedule)}
    try:
        samples = final.compare({"gensor_gym": kernel}, hw, COMPILED_ROUNDS, torch=True, torch_compile=True)
    except (ValueError, RuntimeError, WorkerLost) as error:
        return {**row, "error": str(error)[-600:]}
    return {**row, **compared(samples, op)}


def compared(samples: dict[str, list[float]], op: Operator) -> dict[str, Any]:
    """Raw samples, medians with intervals, rates, and speed-ups over each library (above 1: ours is faster)."""
    ours = samples["gensor_gym"]
    return {
        "samples": samples,
        "seconds": {name: summary_of(values) for name, values in samples.items()},
        "tflops": {name: op.flops / float(np.median(values)) / 1e12 for name, values in samples.items()},
        "speedup_over": {
            name: dict(zip(("median", "low", "high"), ratio_interval(values, ours), strict=True))
            for name, values in samples.items()
            if name != "gensor_gym"
        },
        "cache": "warm",
        "precision": op.dtype,
        "gpu": gpu_state(),
    }


def _finite(measurement: Measurement) -> float | None:
    """Seconds of a measurement, or None if it failed, because JSON has no infinity."""
    return measurement.seconds if measurement.status is Status.OK else None


def digest(context: Context) -> dict[str, object]:
    """Speed-ups by operator and their geometric means."""
    rows = {row["key"]: row for row in context.rows(FILE)}
    speedups = {
        key: {name: ratio["median"] for name, ratio in row["speedup_over"].items()}
        for key, row in rows.items()
        if "speedup_over" in row
    }
    eager = [over["torch"] for key, over in speedups.items() if "torch" in over and "torch.compile" not in over]
    compiled = [over["torch.compile"] for over in speedups.values() if "torch.compile" in over]
    errors = {
        key: next(value for name, value in row.items() if name.endswith("error"))
        for key, row in rows.items()
        if any(name.endswith("error") for name in row)
    }
    return {
        "timed": len([row for row in rows.values() if "seconds" in row]),
        "geomean_over_torch": geometric_mean(eager),
        "geomean_over_torch_compile": geometric_mean(compiled),
        "speedup_over": speedups,
        "tflops": {key: row["tflops"] for key, row in rows.items() if "tflops" in row},
        "errors": errors,
    }
