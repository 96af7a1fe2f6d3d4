"""A kernel and torch's function as their users call them: from Python, each with a new output.

Both run in this process, alternately, on the same memory, with the process's default allocator settings. Inputs begin
ARRAY_OFFSET bytes past a cache line, like NumPy's larger arrays. Torch runs on one thread and on our number of threads, and the
faster counts. A turn begins with uncounted calls: the other library's threads may still spin, and caches contain its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.runs.calls import placed, seconds
from experiments.comparison.summary import interval, ratio
from gensor_gym import codegen, operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.baselines.torch import torch_function
from gensor_gym.measure.stats.verdict import verdict
from gensor_gym.operators.inputs import ARRAY_OFFSET
from gensor_gym.operators.types import Operator

KERNEL = "kernel"


def compared(op: Operator, schedule: Schedule, hw: Hardware, rounds: int, seed: int) -> dict[str, Any]:
    """Seconds of a call, ours and torch's at its best number of threads, their ratio and the verdict.

    Raise ValueError if torch has no such function.
    """
    import torch

    inputs = [placed(array, ARRAY_OFFSET) for array in operators.random_inputs(op, np.random.default_rng(seed))]
    kernel = codegen.build(op, schedule, hw)
    theirs = torch_function(op, [torch.from_numpy(array) for array in inputs])
    before = torch.get_num_threads()
    samples: dict[Any, list[float]] = {KERNEL: []} | {threads: [] for threads in sorted({hw.units, 1})}
    try:
        with torch.inference_mode():
            for _ in range(rounds):
                for name, found in samples.items():
                    if name != KERNEL:
                        torch.set_num_threads(name)
                    found.append(seconds((lambda: kernel(*inputs)) if name == KERNEL else theirs))
    finally:
        torch.set_num_threads(before)
    ours = samples.pop(KERNEL)
    return beside_torch({threads: (ours, theirs) for threads, theirs in samples.items()})


def beside_torch(samples: Mapping[int, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """Our time and torch's at its best number of threads, their ratio, the verdict; `samples`: torch's threads -> (ours, its)."""
    threads = min(samples, key=lambda count: float(np.median(samples[count][1])))
    ours, theirs = samples[threads]
    return {
        "kernel": interval(ours), "torch": interval(theirs), "torch_threads": threads, "over_torch": ratio(theirs, ours),
        "verdict": verdict(ours, theirs),
    }  # fmt: skip
