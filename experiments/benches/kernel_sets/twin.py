"""An int8 kernel compared with the float32 kernel of the same shape: both found by the same search, timed alternately."""

from __future__ import annotations

from typing import Any

from experiments.comparison.retime import Retimer
from experiments.comparison.summary import interval, ratio
from gensor_gym import operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.operators.types import Operator

TURNS = 4
"""Number of comparisons of each kernel, int8 and float32 alternately, so that both are timed in the same minutes."""


def float32_twin(op: Operator) -> Operator:
    """The int8 operator with float32 tensors and the same epilogue."""
    return operators.parse(str(op).replace(', dtype="int8"', ""))


def over_float32(op: Operator, mine: Schedule, twin: Operator, theirs: Schedule, retimer: Retimer) -> dict[str, Any]:
    """Times of both kernels and their ratio, over all turns together, or the error if a kernel could not be timed."""
    label = "kernel"
    times: dict[Operator, list[float]] = {op: [], twin: []}
    for turn in range(TURNS):
        folder = retimer.folder / f"turn_{turn}"
        timer = Retimer(retimer.backend, retimer.hardware, -(-retimer.rounds // TURNS), folder, retimer.torch_threads)
        for which, schedule in ((op, mine), (twin, theirs)):
            compared = timer.compare(which, {label: (schedule, 0.0)})
            if label in compared.dropped:
                return {"float32_error": f"{which}: {compared.dropped[label]}"}
            times[which] += compared.samples[label]
    return {
        "float32": interval(times[twin]),
        "float32_schedule": str(theirs),
        "over_float32": ratio(times[twin], times[op]),
    }
