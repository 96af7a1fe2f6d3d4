"""Kernels compared with torch: a search's result and torch's function, timed in interleaved rounds, operator by operator.

Every kernel has two times. The isolated time comes from a C loop in a worker, with an existing output; torch keeps its freed
memory. The called time comes from Python in this process, and both sides make a new output (`kernel_sets.called`).

The strategy and, optionally, reference searches with more trials find a kernel each; all of them and torch are timed together.
Torch runs on one thread and on our number of threads, and the faster counts. The register-resident multiply-add loop of
`hardware/probe.c` runs just before and after each operator, so that shares refer to the same minute. GENSOR_GYM_THREADS=1 runs
everything on one thread. An int8 operator is also compared with its float32 twin. A second start with the same settings resumes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from omegaconf import DictConfig

from agents.core.playoff import playoff
from experiments.benches.kernel_sets import called, prepacked
from experiments.benches.kernel_sets.called import KERNEL
from experiments.benches.kernel_sets.overall import overall
from experiments.benches.kernel_sets.twin import float32_twin, over_float32
from experiments.benches.lines import Lines, Steal, machine
from experiments.benches.searches.searched import searched
from experiments.common.journal import Journal
from experiments.common.settings import code_digest, short_hash
from experiments.comparison.retime import TORCH, Comparison, Retimer
from experiments.comparison.summary import interval, ratio
from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware import probe
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.stats.verdict import verdict
from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Operator

Winners = dict[str, tuple[Schedule, float]]
"""Label -> (schedule, seconds that its search measured)."""
QUIET = 0.1
"""Quantile of a kernel's samples that is compared with the multiply-add loop's best rate."""


def run(config: DictConfig, emit: Lines) -> None:
    """Emit one line for each shape and one over all, and draw the figure."""
    settings = config.kernels
    hw = hardware.get("host")
    emit(kind="machine", fma_loop_flops=hw.peak_of("float32"), threads=hw.units, **machine())
    folder = Path(config.output)
    store = settings.store or str(folder / "kernels.sqlite")
    backend = get_backend("cpu", hw)
    retimers = {
        threads: Retimer(backend, hw, settings.rounds, folder / "comparisons", threads)
        for threads in sorted({hw.units, 1}, reverse=True)
    }
    shapes = settings.shapes if isinstance(settings.shapes, str) else list(settings.shapes)
    ops = list(dict.fromkeys(operators.resolve(shapes)))
    if settings.prepacked:
        for op in ops:
            emit(kind="prepacked", **prepacked.shape(op, settings, config.seed, store, cast(NativeBackend, backend), hw))
        return
    rows = []
    with Journal(folder / "kernels" / "done.jsonl") as done:
        for op in ops:
            rows.append(_once(done, op, settings, config.seed, store, retimers))
            emit(kind="shape", **rows[-1])
    timed = [row for row in rows if row.get("over_torch")]
    if not timed:
        return
    emit(kind="all", shapes=len(rows), timed=len(timed), **overall(timed))
    if config.figures:
        from experiments.benches.kernel_sets.figure import draw

        draw(timed, folder / "kernels.png")


def _once(
    done: Journal, op: Operator, settings: DictConfig, seed: int, store: str, retimers: dict[int, Retimer]
) -> dict[str, Any]:
    """The line of a shape: from the journal if it was timed with the same settings and code, otherwise timed now."""
    asked = {name: settings[name] for name in ("strategy", "trials", "rounds")} | {"reference": str(settings.reference)}
    key = short_hash([str(op), asked, seed, list(retimers), processor_name(), code_digest()])
    if key in done.rows:
        return {name: value for name, value in done.rows[key].items() if name != "key"}
    row = _shape(op, settings, seed, store, retimers)
    if "error" not in row:
        done.add({"key": key, **row})
    return row


def _shape(op: Operator, settings: DictConfig, seed: int, store: str, retimers: dict[int, Retimer]) -> dict[str, Any]:
    """Search, then time the winners with torch; return the line of the shape."""
    retimer = next(iter(retimers.values()))
    found, row = _search(op, settings, seed, store, retimer)
    if KERNEL not in found:
        return row
    schedule = found[KERNEL][0]
    loop, steal = [_fma_loop()], Steal()
    compared = {threads: timer.compare(op, found) for threads, timer in retimers.items()}
    loop.append(_fma_loop())
    row |= {"fma_loop_flops": max(loop), "stolen": steal.share(), "schedule": str(schedule)}
    missing = {name: why for c in compared.values() for name, why in c.dropped.items()}
    if missing:
        return {**row, "error": str(missing)}
    row |= _ratios(op, retimer.hardware, compared, max(loop), found)
    row["called"] = called.compared(op, schedule, retimer.hardware, settings.rounds, seed)
    return row | _twin(op, schedule, settings, seed, store, retimer) if op.dtype == "int8" else row


def _twin(op: Operator, schedule: Schedule, settings: DictConfig, seed: int, store: str, retimer: Retimer) -> dict[str, Any]:
    """Search for the float32 kernel of the same shape; return the int8 kernel's speed-up over it."""
    twin = float32_twin(op)
    found, row = _search(twin, settings, seed, store, retimer)
    if KERNEL not in found:
        return {"float32_error": row["error"]}
    return over_float32(op, schedule, twin, found[KERNEL][0], retimer)


def _search(op: Operator, settings: DictConfig, seed: int, store: str, retimer: Retimer) -> tuple[Winners, dict[str, Any]]:
    """(winners by label, report of the searches): `kernel` is the strategy's winner, other labels name references."""
    hw = retimer.hardware
    wanted = [(KERNEL, settings.strategy, settings.trials)]
    wanted += [(f"{name}@{settings.reference.trials}", name, settings.reference.trials) for name in settings.reference.strategies]
    found: Winners = {}
    row: dict[str, Any] = {"operator": str(op), "roofline_s": roofline_floor(op, hw)}
    row["fma_bound_s"] = op.flops / hw.peak_of(op.dtype) if is_product(op) else None
    for label, name, trials in wanted:
        session = searched(op, hw, retimer.backend, name, trials, seed, store)
        final = playoff(session)
        if final is not None:
            found[label] = (final[0], final[1].seconds)
        if label == KERNEL:
            row |= {"trials": session.trials, "failed": sum(trial.status != "OK" for trial in session.trace)}
            if final is None:
                row["error"] = f"no kernel ran well: {[trial.status for trial in session.trace]}"
    return found, row


def _ratios(op: Operator, hw: Hardware, compared: dict[int, Comparison], loop: float, found: Winners) -> dict[str, Any]:
    """Our time and torch's at its best thread count, and our shares of the roofline, the multiply-add loop and the reference."""
    floor, best = roofline_floor(op, hw), min(compared, key=lambda threads: float(np.median(compared[threads].samples[TORCH])))
    samples = compared[best].samples
    ours, torch = samples[KERNEL], samples[TORCH]
    fastest = min(found, key=lambda name: float(np.median(samples[name])))
    row: dict[str, Any] = {
        "kernel": interval(ours), "torch": interval(torch), "torch_threads": best, "over_torch": ratio(torch, ours),
        "verdict": verdict(ours, torch),
        "of_roofline": floor / float(np.median(ours)), "flops_per_second": op.flops / float(np.median(ours)),
    }  # fmt: skip
    if is_product(op) and op.dtype == "float32":
        quiet = {name: float(np.quantile(samples[name], QUIET)) for name in dict.fromkeys((KERNEL, fastest, TORCH))}
        row["quiet_share_of_fma_loop"] = {name: op.flops / seconds / loop for name, seconds in quiet.items()}
    if len(found) > 1:
        row |= {"best": fastest, "best_over_torch": ratio(torch, samples[fastest]), "of_reference": ratio(samples[fastest], ours)}
        row["best_schedule"] = str(found[fastest][0])
    return row


def _fma_loop() -> float:
    """Operations per second of the register-resident multiply-add loop on all our threads, measured now."""
    return probe.run(cpu_info(), find_compiler(), memory=False).figures["float32"]
