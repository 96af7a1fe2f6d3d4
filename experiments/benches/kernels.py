"""Kernels against torch: the best of ten candidates of the traverser, timed in interleaved rounds with torch's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents import get_strategy
from agents.optimize import run as search
from experiments.benches.lines import Lines, Steal, machine
from experiments.retime import TORCH, Retimer
from experiments.summary import geometric_mean, interval, ratio
from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.types import Operator


def run(config: DictConfig, emit: Lines) -> None:
    """One line for each shape, one over all, and a figure."""
    settings = config.kernels
    hw = hardware.get("host")
    emit(kind="machine", fma_loop_flops=hw.peak_of("float32"), threads=hw.units, **machine())
    folder = Path(config.output)
    store = settings.store or str(folder / "kernels.sqlite")
    retimer = Retimer(get_backend("cpu", hw), hw, settings.rounds, folder / "comparisons")
    shapes = settings.shapes if isinstance(settings.shapes, str) else list(settings.shapes)
    rows = []
    for op in operators.resolve(shapes):
        rows.append(_shape(op, settings, config.seed, store, retimer))
        emit(kind="shape", **rows[-1])
    timed = [row for row in rows if row.get("over_torch")]
    emit(
        kind="all", shapes=len(rows), timed=len(timed),
        over_torch=geometric_mean(row["over_torch"]["median"] for row in timed),
        faster=sum(row["over_torch"]["low"] > 1 for row in timed),
        slower=sum(row["over_torch"]["high"] < 1 for row in timed),
        by_class={
            name: geometric_mean(row["over_torch"]["median"] for row in timed if row["operator"].startswith(f"{name}("))
            for name in dict.fromkeys(row["operator"].partition("(")[0] for row in timed)
        },
    )  # fmt: skip
    if config.figures and timed:
        from experiments.benches.kernels_figure import draw

        draw(timed, folder / "kernels.png")


def _shape(op: Operator, settings: DictConfig, seed: int, store: str, retimer: Retimer) -> dict[str, Any]:
    """Search, then time the winner with torch."""
    hw = retimer.hardware
    strategy = get_strategy(settings.strategy)
    session = Session(Task(op, hw, retimer.backend, strategy.space), Budget(trials=settings.trials), store)
    search(strategy, session, seed)
    floor = roofline_floor(op, hw)
    row: dict[str, Any] = {
        "operator": str(op),
        "trials": session.trials,
        "failed": sum(trial.status != "OK" for trial in session.trace),
        "roofline_s": floor,
        "fma_bound_s": op.flops / hw.peak_of(op.dtype) if op.body == "multiply_add" else None,
    }
    if session.best is None:
        return {**row, "error": f"no kernel ran well: {[trial.status for trial in session.trace]}"}
    schedule, measurement = session.best
    steal = Steal()
    compared = retimer.compare(op, {"kernel": (schedule, measurement.seconds)})
    if "kernel" not in compared.samples or TORCH not in compared.samples:
        return {**row, "schedule": str(schedule), "error": str(compared.dropped)}
    ours, torch = compared.samples["kernel"], compared.samples[TORCH]
    return {
        **row, "kernel": interval(ours), "torch": interval(torch), "over_torch": ratio(torch, ours),
        "of_roofline": floor / float(np.median(ours)), "flops_per_second": op.flops / float(np.median(ours)),
        "stolen": steal.share(), "schedule": str(schedule),
    }  # fmt: skip
