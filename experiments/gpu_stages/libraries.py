"""Stage 2: the best kernel that the model's ranking finds, against torch (cuBLAS, cuDNN) and torch.compile (Triton).

For each operator the top of the ranking is measured, and the fastest is timed again together with the library, in
interleaved rounds, by the same protocol: warm caches, CUDA graphs on both sides, TF32 for operators of that type only.
torch.compile comes in a second pass over the operators, because it takes seconds to compile, which must not keep operators
from the first.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from agents.markov import Markov, MarkovExtended
from agents.ranking import diverse
from experiments.gpu_stages.card import gpu_state
from experiments.gpu_stages.context import Context, read_rows
from experiments.gpu_stages.table import read_table
from experiments.gpu_stages.trials import FINAL, SEARCH, device_backends, run_trials, summary_of
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.intervals import ratio_interval
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.process import WorkerLost
from gensor_gym.operators.types import Operator

FILE = "operators.jsonl"
CANDIDATES: dict[type[Markov], int] = {MarkovExtended: 12, Markov: 4}
ROUNDS = 21
COMPILED_ROUNDS = 15
COMPILED = ("gemm", "batched_gemm", "gemv", "elementwise", "reduce_sum", "avg_pool2d", "max_pool2d")
"""Where torch.compile brings a kernel of its own; convolutions go to cuDNN either way."""
LEAST_SECONDS, SHARES = 4.0, 28
"""An operator's candidates are tried for so many seconds, or this part of the stage's time if that is more."""
SECOND = 0.25
"""Part of the stage's time kept for the second pass."""


def run(context: Context) -> dict[str, object]:
    """A row for each operator, then one for each with torch.compile."""
    hw = hardware.get(context.hardware)
    journal = context.journal(FILE)
    table = read_table().operators
    search, final = device_backends(SEARCH, FINAL)
    ahead = ThreadPoolExecutor(1)  # constructs for the operators to come while the device is busy
    found = {name: ahead.submit(candidates, op, hw, context.seed) for name, op in table.items() if journal.pending(name)}
    try:
        for name, op in table.items():
            if context.left > SECOND * context.seconds and journal.pending(name):
                journal.begin(name)
                journal.put(name, _eager(op, hw, found[name].result(), context, search, final))
        for name, op in table.items():
            key = f"{name} torch.compile"
            best = journal.done.get(name, {}).get("schedule")
            if best and op.name in COMPILED and context.left > 0 and journal.pending(key):
                journal.begin(key)
                journal.put(key, _compiled(op, Schedule.parse(best), hw, final))
    finally:
        ahead.shutdown(cancel_futures=True)
        search.close()
    return digest(Path(context.out), context.run)


def _eager(
    op: Operator, hw: Hardware, schedules: list[Schedule], context: Context, search: NativeBackend, final: NativeBackend
) -> dict:
    """Measure the candidates, then the winner against torch; where torch fails, the winner alone."""
    row: dict[str, object] = {"operator": str(op), "flops": op.flops, "bytes": op.compulsory_bytes}
    row["roofline_s"] = roofline_floor(op, hw)
    work = [(schedule, make_kernel(op, schedule, hw)) for schedule in schedules]
    until = time.monotonic() + max(LEAST_SECONDS, context.seconds / SHARES)
    tried = list(run_trials(search, hw, work, lambda: context.left > 0 and time.monotonic() < until))
    row["trials"] = [
        {"schedule": str(s), "status": m.status.value, "seconds": _finite(m), "error": m.error[-300:]} for s, m in tried
    ]
    good = [(schedule, m) for schedule, m in tried if m.status is Status.OK]
    if not good:
        return {**row, "error": "no candidate ran well"}
    schedule, measured = min(good, key=lambda pair: pair[1].seconds)
    row |= {"schedule": str(schedule), "conditions": measured.conditions}
    kernel = make_kernel(op, schedule, hw)
    assert isinstance(kernel, Kernel)
    for torch in (True, False):
        try:
            return {**row, **compared(final.compare({"gensor_gym": kernel}, hw, ROUNDS, torch=torch), op)}
        except (ValueError, RuntimeError, WorkerLost) as error:
            row["torch_error" if torch else "error"] = str(error)[-600:]
    return row


def _compiled(op: Operator, schedule: Schedule, hw: Hardware, final: NativeBackend) -> dict:
    """The winner against torch and torch.compile."""
    kernel = make_kernel(op, schedule, hw)
    assert isinstance(kernel, Kernel)
    row: dict[str, object] = {"operator": str(op), "schedule": str(schedule)}
    try:
        samples = final.compare({"gensor_gym": kernel}, hw, COMPILED_ROUNDS, torch=True, torch_compile=True)
    except (ValueError, RuntimeError, WorkerLost) as error:
        return {**row, "error": str(error)[-600:]}
    return {**row, **compared(samples, op)}


def candidates(op: Operator, hw: Hardware, seed: int) -> list[Schedule]:
    """The top of the model's ranking over the extended space and over Gensor's, each once."""
    ranked = []
    for strategy, count in CANDIDATES.items():
        chosen = strategy()
        graph = ConstructionGraph(op, hw, chosen.space)
        built = chosen.construct(graph, np.random.default_rng(seed))
        best = diverse(built.schedules, chosen.per_register_tile)[:count]
        ranked += [((place + 0.5) / count, schedule) for place, schedule in enumerate(best)]
    ranked.sort(key=lambda pair: pair[0])  # the time may run out: both spaces are represented in any beginning
    return list(dict.fromkeys(schedule for _, schedule in ranked))


def compared(samples: dict[str, list[float]], op: Operator) -> dict[str, object]:
    """Raw samples, medians with intervals, rates, and how many times faster than each library (above 1: faster)."""
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
    """Seconds, None where there are none: JSON has no infinity."""
    return measurement.seconds if measurement.status is Status.OK else None


def digest(out: Path, run: str) -> dict[str, object]:
    """Speed-ups by operator and their geometric means."""
    rows = {row["key"]: row for row in read_rows(out / FILE) if row.get("run") == run}
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
        "geomean_over_torch": _geomean(eager),
        "geomean_over_torch_compile": _geomean(compiled),
        "speedup_over": speedups,
        "tflops": {key: row["tflops"] for key, row in rows.items() if "tflops" in row},
        "errors": errors,
    }


def _geomean(values: list[float]) -> float | None:
    """Geometric mean, None of nothing."""
    return float(np.exp(np.mean(np.log(values)))) if values else None
