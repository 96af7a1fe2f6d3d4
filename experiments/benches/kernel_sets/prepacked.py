"""Prepacked kernels compared with prepacked oneDNN: each keeps the weights between calls, in its own layout.

The candidates are the best programs of an ordinary search, changed to pack the weights if they did not. No side of this
comparison packs its weights in every call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.benches.kernel_sets.called import KERNEL, beside_torch
from experiments.benches.lines import Steal
from experiments.benches.searched import searched
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.legality import is_legal
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.operators.types import Operator

CANDIDATES = 10
"""Number of the search's best programs that are tried prepacked."""
TORCH = "torch.prepacked"


def shape(op: Operator, settings: DictConfig, seed: int, store: str, backend: NativeBackend, hw: Hardware) -> dict[str, Any]:
    """Search, try the best programs prepacked, and time the fastest against oneDNN on one and on all of our threads."""
    row = {"operator": str(op), "prepacked": True}
    session = searched(op, hw, backend, settings.strategy, settings.trials, seed, store)
    good = sorted((trial for trial in session.trace if trial.status == "OK"), key=lambda trial: trial.seconds)
    schedules = [packed(Schedule.parse(trial.schedule)) for trial in good[:CANDIDATES]]
    kernels = [(schedule, k) for schedule in schedules if (k := _kernel(op, schedule, hw)) is not None]
    built = backend.compile([kernel for _, kernel in kernels])
    tried = [(backend.trial(b, hw), schedule, b) for b, (schedule, _) in zip(built, kernels, strict=True)]
    best = min(tried, key=lambda trial: trial[0].seconds, default=None)
    if best is None or isinstance(best[2], Measurement) or not np.isfinite(best[0].seconds):
        return {**row, "error": f"no prepacked kernel ran well: {[trial[0].status for trial in tried]}"}
    steal = Steal()
    try:
        found = {
            threads: backend.compare({KERNEL: best[2].kernel}, hw, settings.rounds, torch=True, torch_threads=threads)
            for threads in sorted({hw.units, 1})
        }
    except (ValueError, RuntimeError, WorkerLost) as error:
        return {**row, "error": str(error).strip().splitlines()[-1]}
    beside = beside_torch({threads: (samples[KERNEL], samples[TORCH]) for threads, samples in found.items()})
    row |= {"kernel": beside["kernel"], "torch_prepacked": beside["torch"], "torch_threads": beside["torch_threads"]}
    ours = found[beside["torch_threads"]][KERNEL]
    row |= {"over_prepacked_torch": beside["over_torch"], "flops_per_second": op.flops / float(np.median(ours))}
    return {**row, "stolen": steal.share(), "schedule": str(best[1])}


def packed(schedule: Schedule) -> Schedule:
    """The schedule with the knob set that packs the second operand."""
    row = schedule.row.copy()
    row[KNOB + KNOB_INDEX["pack_b"]] = 1
    return Schedule(row)


def _kernel(op: Operator, schedule: Schedule, hw: Hardware) -> Kernel | None:
    """The prepacked kernel of a schedule; None if the schedule is illegal or its kernel keeps no packed weights."""
    if not is_legal(op, schedule, hw) or not (kernel := generate(op.freeze(), schedule, hw)).prepacked:
        return None
    return kernel
