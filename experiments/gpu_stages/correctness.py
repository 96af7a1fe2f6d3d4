"""Stage 1: kernels of every family against their float64 references, on the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from experiments.gpu_stages.context import Context, read_rows
from experiments.gpu_stages.families import cases, features
from experiments.gpu_stages.trials import CHECK, Work, device_backends, facts, run_trials
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Status

FILE = "correctness.jsonl"
PER_OPERATOR = 14
ANSWERED = (Status.OK.value, Status.IMPLAUSIBLE.value)
"""The answer was right; times mean nothing in this stage."""


def run(context: Context) -> dict[str, object]:
    """Verify as many as the time allows; a row for each."""
    hw = hardware.get(context.hardware)
    journal = context.journal(FILE)
    (backend,) = device_backends(CHECK)

    def work() -> Iterator[Work[tuple[str, str, str, list[str]]]]:
        for op, schedule, made in cases(hw, context.seed, PER_OPERATOR):
            key = f"{op} {schedule}"
            if journal.pending(key):
                source = made.source if isinstance(made, Kernel) else ""
                yield (str(op), str(schedule), source, sorted(features(schedule, made))), made

    try:
        for (op, schedule, source, uses), measurement in run_trials(backend, hw, work(), lambda: context.left > 0):
            row = {"operator": op, "schedule": schedule, "features": uses, **facts(measurement)}
            if measurement.status.value not in ANSWERED:
                row["source"] = source
            journal.put(f"{op} {schedule}", row)
    finally:
        backend.close()
    return digest(Path(context.out), context.run)


def digest(out: Path, run: str) -> dict[str, object]:
    """Counts by status, and what failed."""
    rows = [row for row in read_rows(out / FILE) if row.get("run") == run]
    failed = [row for row in rows if row["status"] not in ANSWERED]
    answered = {name for row in rows if row["status"] in ANSWERED for name in row["features"]}
    return {
        "checked": len(rows),
        "right": len(rows) - len(failed),
        "operators": len({row["operator"] for row in rows}),
        "statuses": dict(Counter(row["status"] for row in rows)),
        "features_right": sorted(answered),
        "failures": [{name: row[name] for name in ("operator", "schedule", "status", "error")} for row in failed[:20]],
    }
