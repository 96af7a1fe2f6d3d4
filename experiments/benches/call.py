"""Measure how much a call from Python adds to a kernel's own time: `optimize(..).kernel(a, b)`, the call that the README shows.

In every round, the backend measures the kernel again in its worker process. Then this process calls the kernel from Python in
several ways, and calls torch's function on the same inputs, which also returns a new output. Inputs begin `ARRAY_OFFSET` bytes
past a cache line, as in measurements and like NumPy's larger arrays. Only for the way `bound_at_lines` do they begin at a cache
line, like torch's own tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents import optimize
from agents.optimizer import Result
from agents.runs.calls import placed, seconds
from experiments.benches.lines import Lines, Steal, machine, resolved
from experiments.comparison.summary import interval
from gensor_gym import hardware, operators
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.baselines.torch import torch_function
from gensor_gym.measure.measurement import Status
from gensor_gym.operators.inputs import ARRAY_OFFSET


def run(config: DictConfig, emit: Lines) -> None:
    """Search for a kernel of each operator and time its calls; emit a line about the machine and one for each operator."""
    settings, hw = config.call, hardware.get("host")
    emit(kind="machine", threads=hw.units, **machine())
    for op in resolved(settings.operators):
        found = optimize(op, hw, settings.strategy, settings.trials, config.seed)
        emit(kind="call", operator=str(op), schedule=str(found.schedule), **_compared(found, settings, config.seed, hw))


def _compared(found: Result, settings: DictConfig, seed: int, hw: Hardware) -> dict[str, Any]:
    """Time the kernel that a search found, in its worker and in several ways to call it from Python, and torch's function.

    All take turns in every round.

    Return the median and interval over rounds of each time, and of what each way to call adds to the time in the worker.
    Raise RuntimeError if the kernel fails when it is measured again.
    """
    op, steal = found.task.operator, Steal()
    ways = _ways(found, operators.random_inputs(op, np.random.default_rng(seed)))
    rounds: list[dict[str, float]] = []
    with closing(get_backend("cpu", hw)) as backend:
        for _ in range(settings.rounds):
            (again,) = backend.measure(op, [found.schedule], hw)
            if again.status is not Status.OK:
                raise RuntimeError(f"{op}: measured again the kernel is {again.status.value}: {again.error}")
            rounds.append({"measured": again.seconds} | {name: seconds(call) for name, call in ways.items()})
    ours = [name for name in ways if name != "torch"]
    added = {f"{name}_adds": interval([one[name] - one["measured"] for one in rounds]) for name in ours}
    return {name: interval([one[name] for one in rounds]) for name in rounds[0]} | added | {"stolen": steal.share()}


def _ways(found: Result, drawn: tuple[np.ndarray, ...]) -> dict[str, Callable[[], object]]:
    inputs, at_lines = ([placed(array, offset) for array in drawn] for offset in (ARRAY_OFFSET, 0))
    import torch

    torch.set_num_threads(found.task.hardware.units)
    kernel, own = found.kernel, found.kernel(*inputs).copy()
    tensors = [torch.from_numpy(array) for array in inputs]
    return {
        "called": lambda: kernel(*inputs), "into_out": lambda: kernel(*inputs, out=own), "bound": kernel.bind(*inputs, own),
        "bound_at_lines": kernel.bind(*at_lines, own), "called_with_tensors": lambda: kernel(*tensors),
        "torch": torch_function(operators.resolve_one(str(found.task.operator)), tensors),
    }  # fmt: skip
